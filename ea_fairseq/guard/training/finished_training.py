"""Does not train on where training has finished.

fairseq asks whether ``--max-update`` or ``--stop-time-hours`` is reached only after an update: each
start makes one more, and overwrites the checkpoints with it.

Replaced in fairseq:
- ``Trainer.load_checkpoint``: where the checkpoint has reached either, the training ends at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from .training_program import end_at_once


def _end_where_finished(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        extra_state = original(self, *args, **kwargs)
        limits, updates = self.cfg.optimization, self.get_num_updates()
        # Of the checkpoint, not of the clock: all processes of a job must decide alike.
        hours = self._previous_training_time / 3600
        if 0 < limits.max_update <= updates:
            end_at_once(
                f"this training is finished: {updates} updates of --max-update "
                f"{limits.max_update}; a higher one lets it go on"
            )
        elif 0 < limits.stop_time_hours < hours:
            end_at_once(
                f"this training is finished: {hours:.3g} hours of --stop-time-hours "
                f"{limits.stop_time_hours:g}; a higher one lets it go on"
            )
        return extra_state

    return load_checkpoint


def install() -> None:
    """Make fairseq look at its limits before the first update."""
    Trainer.load_checkpoint = _end_where_finished(Trainer.load_checkpoint)
