"""Whole-or-nothing writing, checksums and locks."""

import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, get_args

from .errors import UserError


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes `path` if the block succeeds and vanishes if it fails."""
    temporary = _temporary(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        shutil.rmtree(path, ignore_errors=True)  # a folder that is not empty is not replaced
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextlib.contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A new, empty folder that is gone after the block."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary file name that becomes `path` if the block succeeds and vanishes if it fails.

    Of a symbolic link, the file that it leads to is replaced. A device or a pipe, which no file may
    replace, is handed to the block itself.
    """
    check_output(path)
    if is_stream(path):
        yield path
        return
    path = path.resolve()
    temporary = _temporary(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary(path: Path) -> Path:
    """Where something is written first: hidden, for NAME.tmp may be a file of the user's own."""
    return path.with_name(f".{path.name}.tmp")


def silence_terminal() -> None:
    """Sends to nowhere what would be written to a terminal that is gone, where writing fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        with contextlib.suppress(OSError):  # closed
            if stat.S_ISCHR(os.fstat(stream).st_mode):
                os.dup2(nowhere, stream)
    os.close(nowhere)


def force_to_disk(path: Path | str) -> None:
    """Have a file's content, or a folder's entries, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_stream(path: Path) -> bool:
    """Whether what has this name is written to as it is: a device, a pipe, an open file."""
    # /dev/stdout may lead to a file, in which the shell's own place must stay.
    opened = path.absolute().as_posix().startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return path.exists() and (opened or not (path.is_file() or path.is_dir()))


def writing_mode(path: Path) -> str:
    """What `open` writes a file with: a stream may have something in it, as by the shell's >>."""
    return "a" if is_stream(path) else "w"


def check_output(path: Path, option: str = "", read: Iterable[Path] = ()) -> None:
    """Refuses a file to write before any work is done for it.

    Args:
        path: the file to write
        option: what it was given with, for the message
        read: files that are read, none of which is written over

    Raises:
        UserError: naming the file, which is a folder or one of those that are read.
    """
    name = f"{option} {path}".strip()
    if path.is_dir():
        raise UserError(f"{name}: is a folder; name a file")
    for other in read:
        if path.is_file() and other.exists() and path.samefile(other):
            raise UserError(f"{name}: is the same file as {other}, which is read; choose another")


def check_folder_of(path: Path, option: str = "") -> None:
    """Refuses a file to write whose folder is not there: a slip would make one.

    Raises:
        UserError: naming both.
    """
    if not (folder := path.absolute().parent).is_dir():
        raise UserError(f"{option} {path}: {folder} is no folder; make it, or name another".strip())


def check_outputs(files: dict[str, Path | None], read: Iterable[Path] = ()) -> None:
    """:func:`check_output` and :func:`check_folder_of` of several files, no two of which are one.

    Args:
        files: option -> the file to write, or None where the option was not given
        read: files that are read

    Raises:
        UserError: naming the file.
    """
    read, seen = list(read), {}
    for option, path in files.items():
        if path is None:
            continue
        check_output(path, option, read)
        check_folder_of(path, option)
        if (other := seen.setdefault(path.resolve(), option)) != option:
            raise UserError(f"{option} {path}: is the file of {other}; choose another")


def check_file_name(key: str, name: str) -> None:
    """Refuses what is no single part of a path: a file of that name would lie somewhere else.

    Raises:
        UserError: naming the name, and the key that gives it.
    """
    bad = not name or name[0] in ".-" or len(name.encode(errors="replace")) > 200
    if bad or re.search(r"[/\\\x00-\x1f\x7f\ud800-\udfff]", name):
        raise UserError(
            f"{key}: {name!r} cannot name a file: no slash, no . or - at its beginning, "
            "200 bytes at most"
        )


#: The first bytes of files that are no lines of UTF-8 -> what they are.
_OTHER_FILES = {
    b"\x1f\x8b": "compressed (gzip); unpack it first: gunzip",
    b"BZh91AY&SY": "compressed (bzip2); unpack it first: bunzip2",
    b"\xfd7zXZ\0": "compressed (xz); unpack it first: unxz",
    b"\x28\xb5\x2f\xfd": "compressed (zstd); unpack it first: unzstd",
    b"PK\3\4": "a zip archive; unpack it first: unzip",
    b"\xff\xfe": "UTF-16; make UTF-8 of it first: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "UTF-16; make UTF-8 of it first: iconv -f UTF-16 -t UTF-8",
}
#: Two letters of English in UTF-16 without a byte order mark: valid UTF-8, a letter a word.
_WIDE = re.compile(rb"(?P<LE>(?:[^\0]\0){2})|(?P<BE>(?:\0[^\0]){2})")


def check_is_text(start: bytes, name: str) -> None:
    """Refuses what is known by its first bytes (10 are enough) as something other than UTF-8 text.

    Raises:
        UserError: naming the file and what it is.
    """
    for first, what in _OTHER_FILES.items():
        if start.startswith(first):
            raise UserError(f"{name}: is {what}")
    if wide := _WIDE.match(start):
        code = f"UTF-16{wide.lastgroup}"
        raise UserError(f"{name}: is {code}; make UTF-8 of it first: iconv -f {code} -t UTF-8")


def count_lines(file: IO[bytes], name: str) -> int:
    """The number of lines of a file that was just opened, the last one without line feed too.

    Raises:
        UserError: the file is no text, see `check_is_text`.
    """
    first = next(file, b"")
    check_is_text(first, name)
    return bool(first) + sum(1 for _ in file)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a text file, whole or not at all, and the folder that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as temporary, LineWriter(temporary) as file:
        for line in lines:
            file.write(line)


def read_lines(path: Path) -> list[str]:
    """Lines of a file (.gz: unpacked), of which only newlines separate them, without a byte order
    mark.

    Raises:
        ValueError: naming the file, if it cannot be read.
    """
    return list(lines_of(path))


def lines_of(path: Path) -> Iterator[str]:
    """:func:`read_lines`, one after the other, for files larger than the memory."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        # newline="\n": a carriage return or a Unicode line separator is a part of a line.
        with opener(path, "rt", encoding="utf-8-sig", newline="\n") as lines:
            for line in lines:
                yield line.removesuffix("\n")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (EOFError, zlib.error) as error:  # of gzip's
        raise ValueError(f"{path}: cannot be read: {error}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None


def write_json(path: Path, content: Any) -> None:
    """Writes indented JSON, whole or not at all."""
    write_lines(path, json.dumps(content, indent=2, ensure_ascii=False).split("\n"))


def read_json(path: Path, kind: type = dict) -> Any:
    """The content of a JSON file.

    Args:
        path: of the file
        kind: what it must hold: dict for an object, or list

    Raises:
        UserError: naming the file, if it cannot be read or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_int=parse_int)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except RecursionError:
        raise UserError(f"{path}: not JSON: nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, kind):
        wanted = {dict: "an object", list: "a list"}[kind]
        raise UserError(f"{path}: holds {type(content).__name__}, not {wanted}")
    return content


#: JSON's types, as messages call them.
_KINDS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def check_shape(found: Any, shape: Any, name: str) -> None:
    """Refuses what a JSON file holds where it is of other types than expected.

    Args:
        found: what it holds
        shape: a type or several (``int | None``); ``[shape]``, a list of such; ``{key: shape}``, an
            object that has these keys, or ``{str: shape}``, one of any keys that has one at least
        name: what the message calls it

    Raises:
        UserError: naming the key and its value.
    """
    kinds = get_args(shape) or (shape if isinstance(shape, type) else type(shape),)
    any_key = isinstance(shape, dict) and str in shape
    if type(found) not in kinds or (any_key and not found):
        expected = " or ".join(_KINDS[kind] for kind in kinds)
        filled = ", not an empty one" if any_key else ""
        raise UserError(f"{name} is {shortened(repr(found))}: expected {expected}{filled}")
    parts: dict[Any, Any] = {}
    if isinstance(shape, dict):
        parts = dict.fromkeys(found, shape[str]) if any_key else shape
    elif isinstance(shape, list):
        parts, found = dict.fromkeys(range(len(found)), shape[0]), dict(enumerate(found))
    for key, part in parts.items():
        if key not in found:
            raise UserError(f"{name}: lacks {key}")
        check_shape(found[key], part, " ".join(f"{name}: {shortened(str(key))}".split()))


def parse_int(digits: str) -> int:
    """A whole number of a file.

    Raises:
        ValueError: it does not fit into 64 bits: nothing here counts so far, and what it meets
            (torch's sizes, floats) fails on it in ways of their own.
    """
    # Python itself has a bound, of thousands of digits.
    number = int(digits) if len(digits) <= 20 else 2**63
    if not -(2**63) <= number < 2**63:
        raise UserError(f"{shortened(digits)}: too large a number")
    return number


def shortened(text: str, most: int = 30) -> str:
    """The beginning of a text that may be of any length, for a message."""
    return text if len(text) <= most else f"{text[:most]}..."


def read_json_or_none(path: Path) -> Any:
    """The object in a JSON file; None where there is no such file, or no object in it."""
    try:
        return read_json(path)
    except ValueError:
        return None


def sha256(path: Path) -> str:
    """The SHA-256 checksum of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_failure(path: Path, expected: str | None) -> str | None:
    """What is wrong with a file's checksum (SHA-256, or MD5 if that short); None if nothing."""
    if expected is None:
        return None
    algorithm = "md5" if len(expected) == 32 else "sha256"
    with open(path, "rb") as file:
        actual = hashlib.file_digest(file, algorithm).hexdigest()
    if actual == expected.lower():  # some publish them in capitals
        return None
    return f"wrong checksum: {algorithm} is {actual}, expected {expected}"


@contextlib.contextmanager
def locked(
    folder: Path,
    name: str = ".lock",
    shared: bool = False,
    waits_for: str = "another run to finish",
) -> Iterator[int]:
    """Holds a lock of a folder, so that two runs never write there at once; waits for it.

    Args:
        folder: made if it is not there.
        name: of the lock's file.
        shared: whether others may hold it too who ask for it so: for those who read.
        waits_for: what is said where somebody else holds it.

    Yields the descriptor. Processes that are given it, or started with close_fds=False, hold the
    lock too: should this one be killed, the next run waits until what it started is gone.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "w") as file:
        os.set_inheritable(file.fileno(), True)
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder}: waiting for {waits_for}", file=sys.stderr, flush=True)
            fcntl.flock(file, kind)
        yield file.fileno()


def is_locked(folder: Path) -> bool:
    """Whether a run holds the lock of a folder now, alone or with others."""
    try:
        with open(folder / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


class LineWriter:
    """A UTF-8 text file written line by line; its errors (a full disk, say) name the file."""

    def __init__(self, path: Path):
        self.path = path
        self.file = open(path, f"{writing_mode(path)}b", buffering=1 << 20)

    def write(self, line: str) -> None:
        """Writes `line`, which holds no line feed, and a line feed."""
        try:
            self.file.write(line.encode("utf-8") + b"\n")
        except OSError as error:
            raise named_error(error, self.path) from error

    def close(self) -> None:
        """Flushes and closes."""
        try:
            self.file.close()
        except OSError as error:
            raise named_error(error, self.path) from error

    def __enter__(self) -> "LineWriter":
        return self

    def __exit__(self, exc_type, exc, traceback) -> None:
        if exc_type is None:
            self.close()
        else:  # the first error is the one to report, not the one of flushing what is left
            with contextlib.suppress(OSError):
                self.file.close()


def named_error(error: OSError, path: Path | str) -> OSError:
    """The same error with the file's name in it: write() leaves it out."""
    number = error.errno or errno.EIO
    return OSError(number, error.strerror or os.strerror(number), str(path))
