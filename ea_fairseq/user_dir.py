"""``--user-dir``: a folder with variants of one's own, imported as fairseq imports it."""

from __future__ import annotations

import argparse
import logging
import traceback
from pathlib import Path

from .errors import UserError


def add_user_dir(parser: argparse._ActionsContainer) -> None:
    """Adds the option to a command that uses trained models."""
    parser.add_argument(
        "--user-dir", type=Path, metavar="DIR", help="a folder with variants of your own"
    )


def import_user_dir(path: Path | None) -> None:
    """Imports a folder of one's own, whose variants register themselves, after the plugin.

    Args:
        path: a Python package; None: there is none

    Raises:
        UserError: naming the folder, if it is none, or what failed in it.
    """
    if path is None:
        return
    if not (path / "__init__.py").is_file():
        raise UserError(f"--user-dir {path}: is no folder with an __init__.py")
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)  # what fairseq's modules have to say when they are imported
    try:
        from fairseq import utils

        from . import plugin  # noqa: F401

        utils.import_user_module(argparse.Namespace(user_dir=str(path)))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = " ".join(str(error).split())
        raise UserError(
            f"--user-dir {path}: {type(error).__name__}: {reason} ({place.filename}, line "
            f"{place.lineno})"
        ) from error
    finally:
        logging.disable(disabled)
