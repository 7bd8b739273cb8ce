"""What scripts/benchmark.py measures, one module per kind of work."""
