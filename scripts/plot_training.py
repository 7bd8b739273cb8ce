#!/usr/bin/env python3
"""ea-plot, for a clone: see ea_fairseq/commands/plot.py."""

import sys

from ea_fairseq.commands.plot import main

if __name__ == "__main__":
    sys.exit(main())
