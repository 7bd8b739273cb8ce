"""Generation and scoring: every input answered, limits by sentence."""
