"""Checkpoints: read safely, written whole, and only those that fit."""
