#!/usr/bin/env python3
"""ea-recipe, for a clone: see ea_fairseq/commands/recipe.py."""

import sys

from ea_fairseq.commands.recipe import run

if __name__ == "__main__":
    sys.exit(run())
