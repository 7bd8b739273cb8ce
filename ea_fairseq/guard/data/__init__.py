"""Text and binarized data: every line counted, damaged files refused."""
