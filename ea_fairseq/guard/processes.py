"""Runs fairseq's commands under ``torchrun`` as one job, on GPUs or the CPU.

Replaced in fairseq:
- ``distributed.utils.call_main``: fairseq takes up what torchrun put into the environment only
  where it sees several GPUs. With one GPU in each node, or none, every process silently trained
  alone, all of them into one save folder. Here they always form the job that torchrun started. Each
  process takes the GPU of its number in the node; on the CPU they talk through gloo.
  And fairseq ends with the connections open: a thread of theirs that still holds a tensor when
  Python is gone takes the process down (SIGABRT, "terminate called without an active exception"),
  and the job fails after its training is done. Here they are closed first, in processes that
  fairseq starts itself too, and before that what the command has made is given up: torch's
  DistributedDataParallel, where it is the last to hold the connections, waits for their thread
  without letting go of Python, which that thread may need to end: the process hangs.
  ``fairseq-eval-lm`` reads a text in one process: each of several printed the perplexity of its
  part. On the command line fairseq takes ``--bf16`` for ``--tpu`` and fails for want of
  ``torch_xla``: where that is not installed, no TPU is used.
- ``distributed.utils._broadcast_object_slow``: sends the checkpoint that rank 0 has read, by then
  made of fairseq's objects, through ``torch.save`` and ``torch.load``, where the safe unpickler
  refuses it. It uses torch's own call for sending objects between the processes of one job.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import inspect
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils

from ..errors import UserError
from .around import around

_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")


@around(distributed_utils, "call_main")
def _run_as_one_job(original: Any, cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
    if cfg.common.bf16 and importlib.util.find_spec("torch_xla") is None:
        cfg.common.tpu = cfg.distributed_training.tpu = False
    if Path(inspect.getfile(main)).name == "eval_lm.py":  # its module may be __main__
        read_by_one(cfg)
    join_job(cfg)
    return original(cfg, functools.partial(_run_and_leave, main), **kwargs)


def join_job(cfg: Any) -> None:
    """Enter the number of processes, and which of them this is, into a command's settings.

    Nothing happens outside torchrun, in a job of one process, and where the command line says
    itself how to connect (``--distributed-init-method``).
    """
    options = cfg.distributed_training
    if options.distributed_init_method is not None or not all(v in os.environ for v in _VARIABLES):
        return
    if int(os.environ["WORLD_SIZE"]) == 1 or options.pipeline_model_parallel or cfg.common.tpu:
        return
    options.distributed_init_method = "env://"
    options.distributed_world_size = int(os.environ["WORLD_SIZE"])
    options.distributed_rank = int(os.environ["RANK"])
    options.distributed_no_spawn = True  # torchrun has started the processes
    if torch.cuda.is_available() and not cfg.common.cpu:
        # The rest is 0 where each process is shown its own GPU alone.
        options.device_id = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
        return
    options.device_id = 0
    options.distributed_backend = "gloo"
    if options.ddp_backend in ("c10d", "pytorch_ddp"):
        raise UserError(
            f"--ddp-backend {options.ddp_backend} needs GPUs; several processes on the CPU need"
            " --ddp-backend legacy_ddp"
        )


def leave_job() -> None:
    """Close the connections to the other processes, and end the threads that serve them."""
    if torch.distributed.is_initialized():
        gc.collect()  # a trainer that is gone may hold its group in a circle of references
        vars(distributed_utils.get_global_group).pop("_global_group", None)
        torch.distributed.destroy_process_group()


def _run_and_leave(main: Callable[..., Any], cfg: Any, **kwargs: Any) -> None:
    """Run a command and close what it opened. A function of its own module, so that processes that
    fairseq starts find it, and the plugin with it."""
    try:
        main(cfg, **kwargs)
    except SystemExit as stop:  # all processes have stopped at a signal, after the same update
        traceback.clear_frames(stop.__traceback__)  # they hold the trainer
        leave_job()
        raise
    if torch.distributed.is_initialized():
        torch.distributed.barrier(distributed_utils.get_global_group())
    leave_job()


def read_by_one(cfg: Any) -> None:
    """Have a language model's perplexity computed by one process.

    Raises:
        UserError: torchrun has started several.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and all(v in os.environ for v in _VARIABLES):
        raise UserError("fairseq-eval-lm reads the text in one process: start it without torchrun")
    cfg.distributed_training.distributed_world_size = 1  # fairseq's default: as many as GPUs


@around(distributed_utils, "_broadcast_object_slow")
def _broadcast_object(
    original: Any, obj: Any, src_rank: int, group: Any, dist_device: torch.device
) -> Any:
    box = [obj]
    torch.distributed.broadcast_object_list(box, src=src_rank, group=group, device=dist_device)
    return box[0]
