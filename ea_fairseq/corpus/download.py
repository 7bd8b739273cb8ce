"""Fetching one file: mirrors in turn, resuming, checksum."""

import http.client
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tqdm import tqdm

from ..files import checksum_failure, locked, named_error

TIMEOUT = 30  # seconds without a byte
ATTEMPTS = 3  # per URL; each goes on where the last one stopped
BLOCK = 1 << 18

# Without urllib's own handlers of file:, ftp: and data:, to which a server could redirect as well.
_opener = urllib.request.OpenerDirector()
for _handler in (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
):
    _opener.add_handler(_handler())


def fetch(name: str, urls: list[str], checksum: str | None, folder: Path) -> Path:
    """Downloads a file unless `folder` has it already; returns its path.

    What has arrived stays in `NAME.part`, so that the next call goes on there. The final name
    appears only once the file is complete and its checksum right.

    Args:
        name: the file's name, put where a URL holds {file}.
        urls: tried in turn.
        checksum: SHA-256 or MD5 in hex, or None where it is not known.
        folder: made if missing.

    Raises:
        ValueError: no URL worked, or none gave the right file.
    """
    path = folder / name
    with locked(folder):
        if path.is_file():
            failure = checksum_failure(path, checksum) or _web_page(path)
            if failure is None:
                return path
            print(f"{path}: {failure}; downloading it again", file=sys.stderr)
        failures = []
        for url in (url.replace("{file}", name) for url in urls):
            failure = _from_one(url, checksum, folder / (name + ".part"))
            if failure is None:
                os.replace(folder / (name + ".part"), path)
                return path
            failures.append(f"{url}: {failure}")
    raise ValueError(
        f"could not download {name}: {'; '.join(failures)}. "
        "Without a network, give a folder that holds it with --raw"
    )


def _from_one(url: str, checksum: str | None, part: Path) -> str | None:
    """Completes `part` from one URL; returns why it could not, or None."""
    failure = ""
    for _ in range(ATTEMPTS):
        try:
            _continue(url, part)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError) as error:
            failure = str(getattr(error, "reason", "") or error)
            if isinstance(error, urllib.error.HTTPError):
                failure = f"HTTP {error.code} {failure}"
                if error.code == 416:  # there is nothing from here on: the part is of no use
                    part.unlink(missing_ok=True)
                    continue
                break
            if not part.exists():  # not even a connection: trying again at once is no use
                break
            continue
        except TimeoutError:
            failure = f"nothing arrived for {TIMEOUT} seconds"
            continue
        failure = checksum_failure(part, checksum) or _web_page(part)
        if failure is None:
            return None
        part.unlink()  # a mirror's other file, or a wrong start: begin anew
    return failure


def _web_page(path: Path) -> str | None:
    """Why a file cannot be what was asked for: a server's page, with a login or an error."""
    with open(path, "rb") as file:
        start = file.read(1000).lstrip().lower()
    return "is a web page" if start.startswith((b"<!doctype html", b"<html")) else None


def _continue(url: str, part: Path) -> None:
    """Asks for what `part` lacks and appends it."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "ea_fairseq"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    with _opener.open(request, timeout=TIMEOUT) as response:
        first, total = _extent(response)
        if first not in (0, have):
            raise http.client.HTTPException(f"sent bytes from {first} when asked from {have}")
        with (
            open(part, "ab" if first else "wb") as file,
            tqdm(desc=part.stem, total=total, initial=first, unit="B", unit_scale=True) as progress,
        ):
            while block := response.read(BLOCK):
                try:
                    file.write(block)
                except OSError as error:
                    raise named_error(error, part) from error
                progress.update(len(block))
    size = part.stat().st_size
    if total is not None and size != total:
        raise ConnectionError(f"the connection broke after {size} of {total} bytes")


def _extent(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """First byte sent, and size of the whole file where the server tells."""
    match = re.match(r"bytes (\d{1,18})-\d+/(\d{1,18})$", response.headers.get("Content-Range", ""))
    if response.status == 206 and match:
        return int(match[1]), int(match[2])
    length = response.headers.get("Content-Length")
    return 0, int(length) if re.fullmatch(r"\d{1,18}", length or "") else None
