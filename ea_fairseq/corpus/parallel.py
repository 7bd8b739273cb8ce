"""A function over a stream: on all cores, in order, with flat memory, showing its progress."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
Result = TypeVar("Result")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
CHUNK = 500  # items per task: enough to drown the cost of passing them between processes


def ordered_map(
    function: Callable[[list[Item]], Result],
    items: Iterable[Item],
    workers: int,
    label: str,
    chunk: int = CHUNK,
) -> Iterator[Result]:
    """Yields `function(chunk)` for each run of `chunk` items, in order.

    At most three chunks per worker exist at any time. The executor's own map would read the
    whole stream ahead. The function is called in other processes (in this one for a single worker)
    and must be picklable; the label is what the progress bar says.
    """
    stream = iter(items)
    chunks = iter(lambda: list(itertools.islice(stream, chunk)), [])
    interactive = sys.stderr.isatty()
    with tqdm(
        desc=label, unit=" lines", unit_scale=True, mininterval=0.5 if interactive else 15
    ) as bar:
        if workers <= 1:
            for part in chunks:
                yield function(part)
                bar.update(len(part))
            return
        executor = _executor(workers)
        pending: deque = deque()
        try:
            for part in chunks:
                pending.append((executor.submit(function, part), len(part)))
                if len(pending) >= 3 * workers:
                    yield _take(pending, bar)
            while pending:
                yield _take(pending, bar)
            executor.shutdown()
        except BaseException as error:
            for worker in multiprocessing.active_children():
                worker.kill()
            executor.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise RuntimeError(f"{label}: a worker process died: out of memory?") from error
            raise


def _executor(workers: int) -> ProcessPoolExecutor:
    """Starts all workers: the executor does so at the first task."""
    with _signals_later():
        executor = ProcessPoolExecutor(workers, initializer=_start, initargs=(os.getpid(),))
        executor.submit(int).result()
    return executor


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Handles signals after the block: what a handler raises inside a fork is ignored.

    Blocking them in this thread would not do, because another thread may receive them.
    """
    caught = []
    handlers = {
        number: signal.signal(number, lambda number, _: caught.append(number)) for number in SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in caught:
            signal.raise_signal(number)


def _start(parent: int) -> None:
    """In a worker: leaves it to the parent to react to Ctrl-C, and ends when the parent is gone.

    A killed parent cannot stop its workers, which would wait for it forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _take(pending: deque, bar: tqdm):
    future, size = pending.popleft()
    result = future.result()
    bar.update(size)
    return result
