"""The former name of :mod:`ea_fairseq.attention.variants`, for variants written for it.

Registers the models with fairseq, as importing this package did then.
"""

from .. import plugin  # noqa: F401
from ..attention.variants import *  # noqa: F403
