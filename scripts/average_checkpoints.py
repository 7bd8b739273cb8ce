#!/usr/bin/env python3
"""ea-average, for a clone: see ea_fairseq/commands/average.py."""

import sys
from pathlib import Path

# Works without installing the package, from any directory.
sys.path.append(str(Path(__file__).resolve().parent.parent))

from ea_fairseq.commands.average import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
