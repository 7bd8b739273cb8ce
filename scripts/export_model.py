#!/usr/bin/env python3
"""ea-export, for a clone: see ea_fairseq/commands/export.py."""

import sys

from ea_fairseq.commands.export import main

if __name__ == "__main__":
    sys.exit(main())
