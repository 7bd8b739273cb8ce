"""Plain attention does nothing to its maps."""
