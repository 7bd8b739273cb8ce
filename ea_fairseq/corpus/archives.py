"""Taking single files out of tar archives, compressed or not."""

import bz2
import gzip
import lzma
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from ..files import named_error, new_file

OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
BLOCK = 1 << 20


def extract(archive: Path, members: dict[str, Path]) -> None:
    """Writes each wanted member of `archive` to its path, in one pass.

    Args:
        archive: a .tar, .tar.gz, .tgz, .tar.bz2 or .tar.xz file.
        members: name inside the archive -> file to write. Nothing else is written, so a
            malicious archive cannot reach other files.

    Raises:
        ValueError: the archive is broken or lacks a member.
    """
    missing = dict(members)
    try:
        with _open(archive) as stream:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for info in tar:
                    name = str(PurePosixPath(info.name))  # "./a/b" is a/b
                    if name in missing and info.isfile():
                        _write(tar, info, missing.pop(name))
            while stream.read(BLOCK):  # the checksum comes at the end of the compressed data
                pass
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{archive}: broken archive ({error})") from error
    except OSError as error:
        if error.errno is not None:  # the system's errors have a number, those of gzip and bz2 none
            raise
        raise ValueError(f"{archive}: broken archive ({error})") from error
    if missing:
        raise ValueError(f"{archive}: holds no {', '.join(sorted(missing))}")


def _open(archive: Path):
    with open(archive, "rb") as file:
        start = file.read(8)
    for magic, opener in OPENERS.items():
        if start.startswith(magic):
            return opener(archive, "rb")
    return open(archive, "rb")


def _write(tar: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(info)
    with new_file(path) as temporary, open(temporary, "wb") as file:
        while block := content.read(BLOCK):
            try:
                file.write(block)
            except OSError as error:
                raise named_error(error, path) from error
        if file.tell() != info.size:
            raise tarfile.ReadError(f"{info.name} is cut short")
