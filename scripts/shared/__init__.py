"""What the commands share: files written whole or not at all, locks, settings in YAML."""
