"""Which versions of transformers this is tested with."""

import re
import warnings
from importlib import metadata

from ..errors import UserError

#: The oldest that is served, which is the one that the tests run with.
TESTED = (5, 23)


def check_transformers() -> None:
    """Refuses a transformers that is missing or too old; warns of one that is newer.

    Raises:
        UserError: with what to install
    """
    tested = ".".join(map(str, TESTED))
    try:
        version = metadata.version("transformers")
    except metadata.PackageNotFoundError:
        raise UserError(
            "ea_fairseq.hf needs transformers: pip install ea_fairseq[transformers]"
        ) from None
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < TESTED:
        raise UserError(f"ea_fairseq.hf needs transformers {tested} or newer, not {version}")
    if found > TESTED:
        warnings.warn(
            f"ea_fairseq.hf is tested with transformers {tested}, not {version}", stacklevel=3
        )
