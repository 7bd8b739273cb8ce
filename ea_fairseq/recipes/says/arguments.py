"""Command-line options that all programs about recipes have."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--work-dir`` and ``--set``."""
    work_dir_argument(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="override an option of the section train, or SECTION.OPTION=VALUE; may be repeated",
    )


def work_dir_argument(parser: argparse.ArgumentParser) -> None:
    """``--work-dir``."""
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path("work"),
        help="folder for data/ and runs/ (default: work/ in the current folder)",
    )
