"""What every request must keep to, before anything of it is read or computed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# Scripts, styles and requests of this page alone; no page may frame it, and none learns of it.
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


#: Bytes of a refused request that are thrown away at most, as a multiple of the largest body.
_THROWN_AWAY = 64


class Refused(Exception):
    """A request that is answered with an error and not looked at further.

    Args:
        status: HTTP's
        message: for whoever asked
        more: whether more of its body may come
    """

    def __init__(self, status: int, message: str, more: bool = True):
        self.status, self.message, self.more = status, message, more


class Guard:
    """ASGI middleware around the page.

    - The Host header must be a name given: a foreign name that was pointed at this address (DNS
      rebinding) reaches nothing.
    - A request that a browser sends for another site's page (its Origin is not ours) is refused,
      and no header lets such a page read an answer.
    - A body has a size and a time in which it must have come.

    What is left of the body of a refused request is read, up to a size and a time, and thrown away:
    closed before that, the connection would be reset, and the answer lost with it.

    Args:
        app: the application
        hosts: names and addresses, without port, under which the page is asked for
        largest: bytes of a body
        seconds: until a body has come
    """

    def __init__(self, app: App, hosts: frozenset[str], largest: int, seconds: float):
        self.app, self.hosts, self.largest, self.seconds = app, hosts, largest, seconds

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _with_headers(send)
        try:
            self._check(scope)
            receive = await self._body(receive)
        except Refused as refused:
            await self._refuse(refused, receive, send)
            return
        await self.app(scope, receive, send)

    def _check(self, scope: MutableMapping[str, Any]) -> None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts = [value.decode("latin-1") for value in headers.get(b"host", [])]
        if len(hosts) != 1 or host_name(hosts[0]) not in self.hosts:
            raise Refused(400, "this host name is not served here; see --host")
        for origin in headers.get(b"origin", []):
            if origin.decode("latin-1") != f"{scope.get('scheme', 'http')}://{hosts[0]}":
                raise Refused(403, "requests of other sites are not answered")
        for length in headers.get(b"content-length", []):
            if not length.isdigit() or int(length) > self.largest:
                raise Refused(413, f"a request may have {self.largest:,} bytes")

    async def _body(self, receive: Receive) -> Receive:
        """The request's body, read whole; then what comes after it."""
        body = b""
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        break
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self.largest:
                        raise Refused(413, f"a request may have {self.largest:,} bytes", more)
                    if not more:
                        break
        except TimeoutError:
            raise Refused(408, f"the request did not come within {self.seconds:g} s") from None
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        return again

    async def _refuse(self, refused: Refused, receive: Receive, send: Send) -> None:
        """Answers at once, and ends the answer when the body has come."""
        body = json.dumps({"detail": refused.message}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        left, more = _THROWN_AWAY * self.largest, refused.more
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.seconds):
                while more and left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    more = message.get("more_body", False)  # none where they have hung up
        await send({"type": "http.response.body", "body": b""})


def host_name(header: str) -> str:
    """A Host header without its port: ``[::1]:8000`` is ``[::1]``."""
    name, separator, port = header.rpartition(":")
    return (name if separator and port.isdigit() else header).lower()


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await send(message)

    return wrapped
