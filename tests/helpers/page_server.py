"""The page's server in this process, and what asks it."""

import contextlib
import http.client
import json
import socket
import threading

import uvicorn

from ea_fairseq.page.api import make_app
from ea_fairseq.page.connections import server_config
from ea_fairseq.page.server import allowed_hosts

HOSTS = allowed_hosts(None)


@contextlib.contextmanager
def served(translators, bounds=None, **limits):
    """The port of a server of these models, with `Bounds` of its connections."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = make_app(translators, HOSTS, **limits)
    config = server_config(app, bounds, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def ask(port, path, body=None, headers=None, method=None, timeout=600):
    """Status, headers and body of an answer; a body that is no bytes is sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    headers = {"content-type": "application/json", **(headers or {})}
    method = method or ("GET" if body is None else "POST")
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        with connection.getresponse() as answer:
            return answer.status, answer.headers, answer.read().decode()
