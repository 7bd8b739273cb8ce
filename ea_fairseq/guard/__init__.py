"""Changes that make fairseq safe with files and complete with inputs, applied from the plugin.

fairseq itself stays as installed. Each module here, but for helpers of several, replaces a few of
its functions, lists them at its top with the reason, and has an ``install()`` that does the
replacing. By topic:

    checkpoints/  read safely, written whole, and only those that fit
    training/     the same batches after a restart, a clean stop, early stopping, half precision
    data/         text and binarized data: every line counted, damaged files refused
    generation/   every input answered, limits by sentence
    options/      options and start-up of fairseq's commands
"""

from __future__ import annotations

from importlib import import_module

from .. import errors

_MODULES = (
    "checkpoints.safe_loading",
    "checkpoints.literal_settings",
    "checkpoints.checkpoint_fit",
    "checkpoints.variant_identity",
    "checkpoints.atomic_saving",
    "checkpoints.best_checkpoints",
    "checkpoints.save_lock",
    "training.clean_stop",
    "training.early_stopping",
    "training.finished_training",  # after early_stopping, which begins others
    "checkpoints.text_identity",  # after checkpoint_fit, whose refusals would come first
    "training.batching",
    "data.binarized_data",
    "generation.empty_sources",
    "generation.dirty_input",
    "data.raw_text",
    "data.control_words",  # after raw_text, whose lines it looks at
    "data.prepared_folder",
    "data.subword_marks",
    "generation.search_settings",
    "generation.length_limits",
    "generation.forced_draws",
    "training.mixed_precision",
    "options.numpy_2",
    "checkpoints.adaptive_layers",
    "training.averaged_training",
    "generation.scored_blocks",
    "options.missing_options",
    "generation.generation_options",
    "options.option_values",
    "options.whole_help",
    "options.quiet",
    "training.torchrun",
    "training.bfloat16",  # last, so that its answer is asked before torchrun asks about TPUs
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


# At its import fairseq gets all changes: before a module here is half imported.
from .. import plugin  # noqa: E402, F401  isort: skip
import fairseq  # noqa: E402, F401  isort: skip
