#!/usr/bin/env python3
"""ea-evaluate, for a clone: see ea_fairseq/commands/evaluate.py."""

import sys

from ea_fairseq.commands.evaluate import main

if __name__ == "__main__":
    sys.exit(main())
