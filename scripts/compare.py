#!/usr/bin/env python3
"""ea-compare, for a clone: see ea_fairseq/commands/compare.py."""

import sys

from ea_fairseq.commands.compare import main

if __name__ == "__main__":
    sys.exit(main())
