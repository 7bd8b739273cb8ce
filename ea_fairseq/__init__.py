"""Evolving attention for fairseq: the ``--user-dir`` entry point.

Importing this package registers the model ``ea_transformer`` and its architectures, and makes
fairseq's checkpoints load safely under current versions of torch (see :mod:`ea_fairseq.compat`).
"""

try:
    import fairseq.models  # noqa: F401
    import fairseq.tasks  # noqa: F401
except Exception as error:
    # fairseq 0.12.2 does not fail with an ImportError on Python 3.11, but inside a dataclass.
    raise ImportError(
        "ea_fairseq needs a working fairseq: pip install ve-fairseq==0.12.3 "
        f"(and remove any other package named fairseq). Importing fairseq failed with: "
        f"{type(error).__name__}: {error}"
    ) from None

from . import compat
from .models import ea_transformer  # noqa: F401  (registers the architectures)

__version__ = "0.1.0"

compat.install()
