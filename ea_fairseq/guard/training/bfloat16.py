"""Training in bfloat16 on GPUs and on the CPU.

Replaced in fairseq:
- ``distributed.utils.call_main``: on the command line fairseq takes ``--bf16`` for ``--tpu`` and
  fails for want of ``torch_xla``. Where that is not installed, no TPU is used.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

from fairseq.distributed import utils as distributed_utils


def _without_tpu(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_main(cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
        if cfg.common.bf16 and importlib.util.find_spec("torch_xla") is None:
            cfg.common.tpu = False
            cfg.distributed_training.tpu = False
        return original(cfg, main, **kwargs)

    return call_main


def install() -> None:
    """Make fairseq's commands start this way."""
    distributed_utils.call_main = _without_tpu(distributed_utils.call_main)
