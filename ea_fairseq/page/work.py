"""One thread that computes for all requests, which wait in a queue with an end."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

_DONE = object()


class Busy(Exception):
    """As many requests wait as may."""


class Late(Exception):
    """A request took longer than it may."""


class Worker:
    """Runs jobs one at a time, in a thread of its own, and hands on their results as they come.

    A job that fails, takes too long or has nobody left who waits for it leaves the others alone:
    it ends at its next result.

    Args:
        most: jobs that may wait or run at once
        seconds: that a job may take, waiting included
    """

    def __init__(self, most: int, seconds: float):
        self.most, self.seconds = most, seconds
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._count, self._lock = 0, threading.Lock()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="page-worker", daemon=True).start()

    def stop(self) -> None:
        """Ends what runs at its next result, and whatever comes later at once."""
        self._stopped.set()

    def start(self, job: Callable[[], Iterator[Any]]) -> AsyncIterator[Any]:
        """Puts a job at the end of the queue.

        Returns:
            its results; they must be read or closed. Reading raises `Late`, or what the job raised.

        Raises:
            Busy: if the queue is full.
        """
        with self._lock:
            if self._count >= self.most:
                raise Busy
            self._count += 1
        results: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue()
        loop, nobody_waits = asyncio.get_running_loop(), threading.Event()
        deadline = time.monotonic() + self.seconds

        def hand_on(item: Any, error: BaseException | None = None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(results.put_nowait, (item, error))

        def run() -> None:
            try:
                for item in job() if not nobody_waits.is_set() else ():
                    hand_on(item)
                    if nobody_waits.is_set() or self._stopped.is_set():
                        break
                hand_on(_DONE)
            except BaseException as error:  # noqa: B036  (the thread serves other requests, too)
                hand_on(None, error)
            finally:
                with self._lock:
                    self._count -= 1

        self._jobs.put(run)
        return self._read(results, nobody_waits, deadline)

    async def _read(
        self, results: asyncio.Queue, nobody_waits: threading.Event, deadline: float
    ) -> AsyncIterator[Any]:
        try:
            while True:
                try:
                    async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                        item, error = await results.get()
                except TimeoutError:
                    raise Late from None
                if error is not None:
                    raise error
                if item is _DONE:
                    return
                yield item
        finally:
            nobody_waits.set()

    def _run(self) -> None:
        while True:
            self._jobs.get()()
