"""Training: batches, restarts, early stopping, half precision, torchrun."""
