"""Evolving attention for fairseq: the ``--user-dir`` entry point."""
