"""The page's connections: whoever is slow on purpose loses his own, and nobody else waits."""

import contextlib
import json
import socket
import time

import pytest
from page_server import ask, served
from small_folders import write_folder

from ea_fairseq import Translator
from ea_fairseq.page.connections import Bounds

HALF = b"GET /page.css HTTP/1.1\r\nhost: localhost\r\nx-slow: "
WHOLE = b"GET /page.css HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return Translator(write_folder(tmp_path_factory.mktemp("models") / "ea"), threads=1)


@contextlib.contextmanager
def connected(port, *sent):
    """Connections, each of which has sent something."""
    with contextlib.ExitStack() as stack:
        found = []
        for data in sent:
            one = socket.create_connection(("127.0.0.1", port), timeout=600)
            found.append(stack.enter_context(one))
            one.sendall(data)
        yield found


def read_answer(connection):
    """An answer to `WHOLE`."""
    with connection.makefile("rb") as file:
        status = file.readline()
        headers = {}
        while (line := file.readline().strip()) != b"":
            name, _, value = line.partition(b": ")
            headers[name] = value
        return status, file.read(int(headers[b"content-length"]))


def closed(connection):
    """Whether the other side closes a connection, without a word, before it is given up."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def soon(condition):
    end = time.monotonic() + 600
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("sent", [b"", HALF])
def test_a_head_has_a_time(translator, sent):
    bounds = Bounds(head_seconds=0.5)
    with served({"ea": translator}, bounds) as port, connected(port, sent, sent) as slow:
        assert [closed(one) for one in slow] == [True, True]
        assert soon(lambda: not bounds.held)


def test_letters_now_and_then_do_not_lengthen_it(translator):
    bounds = Bounds(head_seconds=1.0)
    with served({"ea": translator}, bounds) as port, connected(port, HALF) as (slow,):
        start = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < start + 20:
                slow.sendall(b"x")
                time.sleep(0.1)


def test_so_has_the_head_behind_an_answer(translator):
    """uvicorn's time between two requests ends with the first byte of the second."""
    bounds = Bounds(head_seconds=0.5)
    with served({"ea": translator}, bounds) as port, connected(port, WHOLE) as (one,):
        for _ in range(3):
            assert read_answer(one)[0].startswith(b"HTTP/1.1 200")
            time.sleep(0.7)  # longer than a head may take: none has begun
            one.sendall(WHOLE)
        read_answer(one)
        one.sendall(HALF)
        assert closed(one)


def test_an_answer_may_take_longer_than_a_head(translator):
    class Slow:
        def __getattr__(self, name):
            return getattr(translator, name)

        def translate(self, text, **options):
            time.sleep(1.0)
            return translator.translate(text, **options)

    with served({"ea": Slow()}, Bounds(head_seconds=0.3)) as port:
        assert ask(port, "/api/translate", {"text": "w1", "model": "ea"})[0] == 200


def test_an_answer_that_is_not_taken_has_a_time(translator):
    """More than lies in the buffers between the two, and nothing of it is read."""
    bounds = Bounds(answer_seconds=1.0)
    with served({"ea": translator}, bounds) as port, connected(port, b"") as (slow,):
        slow.settimeout(2.0)
        sent, taken = 0, b""
        with contextlib.suppress(OSError):  # the server reads no further
            while sent < 3000:
                slow.sendall(WHOLE)
                sent += 1
        assert soon(lambda: not bounds.held)
        with contextlib.suppress(OSError):
            while data := slow.recv(1 << 20):
                taken += data
        assert taken.count(b"HTTP/1.1 200") < sent
        assert ask(port, "/page.css")[0] == 200


@pytest.mark.parametrize("limit", ["most", "most_of_a_peer"])
def test_half_heads_make_room(translator, limit):
    bounds = Bounds(head_seconds=60.0, **{limit: 3})
    with served({"ea": translator}, bounds) as port, connected(port, *[HALF] * 5) as slow:
        assert [closed(one) for one in slow[:2]] == [True, True]
        for _ in range(2):
            assert ask(port, "/page.css")[0] == 200
        slow[4].sendall(b"\r\n\r\n")
        assert read_answer(slow[4])[0].startswith(b"HTTP/1.1 200")


def test_those_that_are_answered_do_not(translator):
    """With all of a peer's connections at work, one more is closed; others' are not touched."""
    body = json.dumps({"text": "w1", "model": "ea"}).encode()
    head = b"POST /api/translate HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    bounds = Bounds(most_of_a_peer=2)
    with served({"ea": translator}, bounds) as port, connected(port, head, head) as working:
        assert soon(lambda: sum(one.answering for one in list(bounds.held)) == 2)
        with connected(port, b"") as (more,):
            assert closed(more)
        elsewhere = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
        with elsewhere:
            elsewhere.sendall(WHOLE)
            assert read_answer(elsewhere)[0].startswith(b"HTTP/1.1 200")
        for one in working:
            one.sendall(body)
            assert one.recv(100).startswith(b"HTTP/1.1 200")
