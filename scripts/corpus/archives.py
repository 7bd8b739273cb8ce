"""Taking single files out of tar archives, compressed or not."""

import gzip
import lzma
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from .files import named_error, new_file


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
        with tarfile.open(archive, "r|*") as tar:
            for info in tar:
                name = str(PurePosixPath(info.name))  # "./a/b" is a/b
                if name in missing and info.isfile():
                    _write(tar, info, missing.pop(name))
                if not missing:  # the rest of a large archive need not be read
                    return
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{archive}: broken archive ({error})") from error
    if missing:
        raise ValueError(f"{archive}: holds no {', '.join(sorted(missing))}")


def _write(tar: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(info)
    with new_file(path) as temporary:
        try:
            with open(temporary, "wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
        except OSError as error:
            if isinstance(error, tarfile.TarError | gzip.BadGzipFile):
                raise
            raise named_error(error, path) from error
        if temporary.stat().st_size != info.size:
            raise tarfile.ReadError(f"{info.name} is cut short")
