"""Bounds on the time that a connection takes, and on the number of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass
class Bounds:
    """What the connections of a server may hold together.

    uvicorn waits without end for a request's head, and for a client to take its answer. Both hold a
    connection, and when all are held, nobody else is answered. Here, where there are as many as may
    be, the one that has waited longest for a head makes room for a new one; where none waits, the
    new one is closed.

    Args:
        head_seconds: until a request's head is whole, counted from its first byte or, for the first
            request, from the connection
        answer_seconds: from then until its answer has been taken
        most: connections at once
        most_of_a_peer: of them, those from one address
    """

    head_seconds: float = 10.0
    answer_seconds: float = 90.0
    most: int = 500
    most_of_a_peer: int = 100
    held: dict[BoundedProtocol, None] = field(default_factory=dict)  # the longest wait first

    def make_room(self, peer: str) -> bool:
        """Whether there is room for one more connection, which may have been made for it."""
        of_peer = [connection for connection in self.held if connection.peer == peer]
        return (len(of_peer) < self.most_of_a_peer or _drop_one(of_peer)) and (
            len(self.held) < self.most or _drop_one(list(self.held))
        )


def _drop_one(connections: Iterable[BoundedProtocol]) -> bool:
    for connection in connections:
        if not connection.answering:
            connection.drop()
            return True
    return False


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 within `Bounds`.

    A connection that breaks one is closed without an answer: its client takes none, or is a browser
    that connected in advance.
    """

    def __init__(self, bounds: Bounds, **options: Any):
        super().__init__(**options)
        self.bounds, self.peer = bounds, ""
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for_head = False
        self._request: Any = None  # uvicorn's state of the last one whose head came

    @property
    def answering(self) -> bool:
        """Whether a request is being answered, or its answer has not been taken."""
        return self._at_work() or self.transport.get_write_buffer_size() > 0

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.peer = (transport.get_extra_info("peername") or ("",))[0]
        if self.bounds.make_room(self.peer):
            self._wait_for_head()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        self._wait_for_answer()
        if not self._at_work() and not self._waits_for_head:
            self._wait_for_head()

    def on_response_complete(self) -> None:
        """uvicorn's call when an answer is written, maybe not further than into the buffer."""
        super().on_response_complete()  # goes on with a request that has come already
        self._wait_for_answer()
        if not self.answering:
            self._stop()

    def drop(self) -> None:
        """Closes the connection at once; what has not been taken of an answer is lost."""
        self._forget()
        self.transport.abort()

    def _at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._waits_for_head = True
        self._start(self.bounds.head_seconds)

    def _wait_for_answer(self) -> None:
        if self.cycle is not self._request:  # another head has come
            self._request, self._waits_for_head = self.cycle, False
            self._start(self.bounds.answer_seconds)

    def _start(self, seconds: float) -> None:
        self._forget()
        self.bounds.held[self] = None
        self._timer = self.loop.call_later(seconds, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._waits_for_head or self.answering:
            self.drop()

    def _forget(self) -> None:
        self._stop()
        self.bounds.held.pop(self, None)


def server_config(app: Any, bounds: Bounds | None = None, **options: Any) -> uvicorn.Config:
    """uvicorn's settings for a server within bounds.

    Args:
        app: the application
        bounds: default: those of `Bounds`
        options: of `uvicorn.Config`
    """
    return uvicorn.Config(
        app,
        http=partial(BoundedProtocol, bounds or Bounds()),  # type: ignore[arg-type]
        ws="none",  # whose protocol would take the connection over, without bounds
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
        **options,
    )
