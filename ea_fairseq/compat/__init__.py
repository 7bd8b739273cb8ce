"""Changes that make fairseq safe with files and complete with inputs, applied from the plugin.

fairseq itself stays as installed. Each module here replaces a few of its functions, lists them at
its top with the reason, and has an ``install()`` that does the replacing.
"""

from __future__ import annotations

from .. import errors
from . import (
    atomic_saving,
    batching,
    bfloat16,
    binarized_data,
    checkpoint_fit,
    clean_stop,
    dirty_input,
    early_stopping,
    empty_sources,
    literal_settings,
    safe_loading,
    save_lock,
    torchrun,
)

_installed = False


def install() -> None:
    """Apply all changes to the fairseq of this process. Calling it again changes nothing."""
    global _installed
    if _installed:
        return
    errors.install()
    for module in (
        safe_loading,
        literal_settings,
        checkpoint_fit,
        atomic_saving,
        save_lock,
        clean_stop,
        early_stopping,
        batching,
        binarized_data,
        empty_sources,
        dirty_input,
        torchrun,
        bfloat16,  # before torchrun, which asks about TPUs
    ):
        module.install()
    _installed = True
