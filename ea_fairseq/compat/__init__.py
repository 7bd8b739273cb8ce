"""Changes that make fairseq safe with files and complete with inputs, applied from the plugin.

fairseq itself stays as installed. Each module here, but for helpers of several, replaces a few of
its functions, lists them at its top with the reason, and has an ``install()`` that does the
replacing.
"""

from __future__ import annotations

from importlib import import_module

from .. import errors

_MODULES = (
    "safe_loading",
    "literal_settings",
    "checkpoint_fit",
    "variant_identity",
    "atomic_saving",
    "best_checkpoints",
    "save_lock",
    "clean_stop",
    "early_stopping",
    "finished_training",  # after early_stopping, which lets a training begin that has not stopped
    "text_identity",  # after checkpoint_fit, whose refusals would come first
    "batching",
    "binarized_data",
    "empty_sources",
    "dirty_input",
    "raw_text",
    "control_words",  # after raw_text, whose lines it looks at
    "prepared_folder",
    "subword_marks",
    "search_settings",
    "length_limits",
    "forced_draws",
    "mixed_precision",
    "numpy_2",
    "adaptive_layers",
    "scored_blocks",
    "missing_options",
    "generation_options",
    "option_values",
    "whole_help",
    "quiet",
    "torchrun",
    "bfloat16",  # last, so that its answer is asked before torchrun asks about TPUs
)
_installed = False


def install() -> None:
    """Apply all changes to the fairseq of this process. Calling it again changes nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    errors.install()
    for name in _MODULES:
        import_module(f".{name}", __name__).install()


# At its import fairseq gets all changes (see plugin.py): before a module here is half imported.
import fairseq  # noqa: E402, F401
