#!/usr/bin/env python3
"""ea-recipe, for a clone: see ea_fairseq/recipes/command.py."""

import sys

from ea_fairseq.recipes.command import run

if __name__ == "__main__":
    sys.exit(run())
