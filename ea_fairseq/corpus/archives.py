"""Taking single files out of tar archives, compressed or not, and out of zip archives."""

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from ..files import named_error, new_file

ZIP = (b"PK\3\4", b"PK\5\6")  # the first bytes; the second of an archive without files
OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
BLOCK = 1 << 20


def extract(archive: Path, members: dict[str, Path]) -> None:
    """Writes each wanted member of `archive` to its path, in one pass.

    Args:
        archive: a .tar, .tar.gz, .tgz, .tar.bz2, .tar.xz or .zip file.
        members: name inside the archive -> file to write. Nothing else is written, so a
            malicious archive cannot reach other files.

    Raises:
        ValueError: the archive is broken or lacks a member.
    """
    try:
        # Not by zipfile.is_zipfile(): it takes a tar file for the zip file that it ends with.
        take = _from_zip if _start(archive).startswith(ZIP) else _from_tar
        missing = members.keys() - take(archive, members)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{archive}: broken archive ({error})") from error
    except RuntimeError as error:  # zipfile's: a password, a compression that it does not know
        raise ValueError(f"{archive}: broken archive ({error})") from error
    except OSError as error:
        if error.errno is not None:  # the system's errors have a number, those of gzip and bz2 none
            raise
        raise ValueError(f"{archive}: broken archive ({error})") from error
    if missing:
        raise ValueError(f"{archive}: holds no {', '.join(sorted(missing))}")


def _from_tar(archive: Path, members: dict[str, Path]) -> set[str]:
    """Writes the members that are there, of one that is there twice the last, as tar does.

    Returns:
        their names
    """
    found = set()
    with _open(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for info in tar:
                name = str(PurePosixPath(info.name))  # "./a/b" is a/b
                if name in members and info.isfile():
                    _write(tar.extractfile(info), info.name, info.size, members[name])
                    found.add(name)
        while stream.read(BLOCK):  # the checksum comes at the end of the compressed data
            pass
    return found


def _from_zip(archive: Path, members: dict[str, Path]) -> set[str]:
    """As `_from_tar`."""
    found = set()
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            name = str(PurePosixPath(info.filename))
            if name in members and not info.is_dir():
                with opened.open(info) as content:
                    _write(content, info.filename, info.file_size, members[name])
                found.add(name)
    return found


def _start(archive: Path) -> bytes:
    with open(archive, "rb") as file:
        return file.read(8)


def _open(archive: Path):
    start = _start(archive)
    for magic, opener in OPENERS.items():
        if start.startswith(magic):
            return opener(archive, "rb")
    return open(archive, "rb")


def _write(content: IO[bytes], name: str, size: int, path: Path) -> None:
    with new_file(path) as temporary, open(temporary, "wb") as file:
        while block := content.read(BLOCK):
            try:
                file.write(block)
            except OSError as error:
                raise named_error(error, path) from error
        if file.tell() != size:
            raise tarfile.ReadError(f"{name} is cut short")
