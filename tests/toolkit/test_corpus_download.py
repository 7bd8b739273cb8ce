"""Downloads from a real server on this machine: resuming, mirrors, checksums, being offline."""

import hashlib
import http.server
import random
import re
import socket
import threading
from pathlib import Path

import pytest

from ea_fairseq.corpus import download
from ea_fairseq.corpus.download import fetch

DATA = random.Random(5).randbytes(300_000)
PAGE = b"\n<!DOCTYPE HTML><html><body>Sign in</body></html>"
SHA256 = hashlib.sha256(DATA).hexdigest()
MD5 = hashlib.md5(DATA).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """/good/ serves DATA with ranges, /plain/ without; /bad/ other data; /cut/ breaks off."""

    protocol_version = "HTTP/1.0"

    def do_GET(self):
        kind = self.path.split("/")[1]
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(asked[1]) if asked and kind != "plain" else 0
        self.server.asked.append((kind, first))
        if kind == "missing":
            return self.send_error(404)
        if kind == "away":
            self.send_response(302)
            self.send_header("Location", "ftp://127.0.0.1:9/f")
            return self.end_headers()
        if first >= len(DATA):
            return self.send_error(416)
        data = PAGE if kind == "page" else DATA[::-1] if kind == "bad" else DATA
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(data) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(data[first : first + 100_000] if kind == "cut" else data[first:])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()
        thread.join()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


@pytest.mark.parametrize("checksum", [SHA256, SHA256.upper(), MD5, MD5.upper(), None])
def test_a_file_arrives_whole_and_is_fetched_once(tmp_path, server, checksum):
    for _ in range(2):
        path = fetch("f.tgz", [server.url + "/good/{file}"], checksum, tmp_path / "new")
        assert path.read_bytes() == DATA
    assert server.asked == [("good", 0)]
    assert names(tmp_path / "new") == {"f.tgz"}


@pytest.mark.parametrize(
    ("name", "there", "kinds", "asked"),
    [
        ("f.part", DATA[:12345], ["good"], [("good", 12345)]),  # goes on where it stopped
        ("f.part", DATA[:12345], ["plain"], [("plain", 0)]),  # of a server without ranges
        ("f.part", b"x" * 1000, ["good"], [("good", 1000), ("good", 0)]),  # of something else
        ("f.part", DATA, ["good"], [("good", len(DATA)), ("good", 0)]),
        ("f.part", DATA + b"12345", ["good"], [("good", len(DATA) + 5), ("good", 0)]),
        ("f", b"old", ["good"], [("good", 0)]),
        ("f.part", b"", ["cut"], [("cut", 0), ("cut", 100_000), ("cut", 200_000)]),
        ("f.part", b"", ["missing", "good"], [("missing", 0), ("good", 0)]),  # mirrors in turn
        ("f.part", b"", ["bad", "good"], [*[("bad", 0)] * download.ATTEMPTS, ("good", 0)]),
    ],
)
def test_the_file_arrives_whatever_lay_there_and_breaks(
    tmp_path, server, name, there, kinds, asked
):
    (tmp_path / name).write_bytes(there)
    urls = [f"{server.url}/{kind}/{{file}}" for kind in kinds]
    assert fetch("f", urls, SHA256, tmp_path).read_bytes() == DATA
    assert server.asked == asked and names(tmp_path) == {"f"}


def test_a_wrong_checksum_everywhere_is_one_line_and_leaves_nothing(tmp_path, server):
    with pytest.raises(ValueError) as error:
        fetch("f", [server.url + "/bad/{file}"], SHA256, tmp_path)
    assert re.search(f"could not download f: .*/bad/f: wrong checksum.*{SHA256}", str(error.value))
    assert "\n" not in str(error.value)
    assert names(tmp_path) == set()


def test_a_web_page_is_no_file_even_without_a_checksum(tmp_path, server):
    (tmp_path / "f").write_bytes(PAGE)  # as an earlier version kept it
    urls = [f"{server.url}/{kind}/{{file}}" for kind in ("page", "good")]
    assert fetch("f", urls, None, tmp_path).read_bytes() == DATA
    with pytest.raises(ValueError, match="could not download g: .*/page/g: is a web page"):
        fetch("g", urls[:1], None, tmp_path)
    assert names(tmp_path) == {"f"}


def test_only_http_is_spoken_after_a_redirection_too(tmp_path, server):
    (tmp_path / "secret").write_text("x")
    for url in (f"file://{tmp_path}/secret", "data:,x", server.url + "/away/f"):
        with pytest.raises(ValueError, match="could not download f: .*unknown url type"):
            fetch("f", [url], None, tmp_path / "new")
    assert names(tmp_path / "new") == set()


def test_being_offline_is_one_line_that_names_the_way_out(tmp_path):
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/{{file}}"
        with pytest.raises(ValueError) as error:
            fetch("f.tgz", [url, "http://name.invalid/{file}"], None, tmp_path)
    message = str(error.value)
    assert "could not download f.tgz" in message and "--raw" in message
    assert "http://name.invalid/f.tgz" in message and "\n" not in message
    assert names(tmp_path) == set()


def test_silence_ends_in_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/{{file}}"
        with pytest.raises(ValueError, match="could not download f"):
            fetch("f", [url], None, tmp_path)
    assert names(tmp_path) == set()
