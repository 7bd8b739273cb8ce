"""The former name of :mod:`ea_fairseq.attention.options`, for variants written for it."""

from ..attention.options import *  # noqa: F403
