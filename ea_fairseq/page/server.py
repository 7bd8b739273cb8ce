"""The page on a port of this machine."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def serve(
    folders: Sequence[Path], host: str | None = None, port: int = 8000, **options: Any
) -> None:
    """Serves models until Ctrl-C.

    Args:
        folders: one model, or two to compare
        host: name or address to listen at; default: this machine alone
        port: TCP port; 0 for any
        options: of `Translator`

    Raises:
        UserError: naming what is missing, or the address that cannot be had.
    """
    if len(folders) > 2:
        raise UserError(f"--serve: {len(folders)} models are given: one, or two to compare")
    if not 0 <= port <= 65535:
        raise UserError(f"--port {port}: choose from 0 to 65535")
    try:
        import uvicorn

        from .api import make_app
        from .connections import server_config
    except ModuleNotFoundError as error:
        raise UserError(f"--serve needs {error.name}: pip install 'ea_fairseq[page]'") from error
    from ..inference.attention_maps import check_attentions
    from ..inference.translator import Translator

    listening = _listen(host or "127.0.0.1", port)
    with listening:
        names = [folder.resolve().name for folder in folders]
        if len(set(names)) < len(names):
            names = [str(folder) for folder in folders]
        if len(set(names)) < len(names):
            raise UserError(f"--serve: {folders[0]} is given twice")
        translators = {
            name: Translator(folder, **options) for name, folder in zip(names, folders, strict=True)
        }
        for folder, translator in zip(folders, translators.values(), strict=True):
            try:
                check_attentions(translator.models[0])
            except UserError as error:
                raise UserError(
                    f"--serve: {folder}: {error}: the page has nothing to show"
                ) from None
        app = make_app(translators, allowed_hosts(host))
        port = listening.getsockname()[1]
        shown = "127.0.0.1" if host is None else _bracketed(host)
        print(f"http://{shown}:{port}/ (Ctrl-C ends)", flush=True)
        if host is not None and not _is_loopback(host):
            print(
                f"warning: --host {host}: whoever reaches this machine's port {port} can use the "
                "models and this machine's time, without password or encryption",
                file=sys.stderr,
                flush=True,
            )
        config = server_config(app, log_level="warning", timeout_graceful_shutdown=3)
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            pass


def allowed_hosts(host: str | None) -> frozenset[str]:
    """What the Host header may say, without port.

    Of an address that stands for all of this machine's, those and its name are meant.
    """
    names = [*_LOOPBACK]
    if host is not None:
        names.append(_bracketed(host).lower())
        if host in ("0.0.0.0", "::"):
            names.append(socket.gethostname().lower())
            try:
                found = socket.getaddrinfo(socket.gethostname(), None)
            except OSError:
                found = []
            names += [_bracketed(address[4][0]) for address in found]
    return frozenset(names)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: {error.strerror or error}") from error
