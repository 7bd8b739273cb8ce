"""The compiled library's file: built by the machine's own C++ compiler, kept, checked at every use.

A file cut short would end the process with a bus error as soon as it is loaded. So a file is
written whole or not at all, its checksum lies beside it, and one that does not fit is built anew.
"""

import contextlib
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from ...errors import UserError
from ...files import force_to_disk, sha256

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp",
    "-shared",
    "-fPIC",
)
LIMIT = 300  # seconds that a compilation may take

TARGET = "EA_FAIRSEQ_MARCH"
NATIVE = "native"
# The levels of the x86-64 ABI, and what /proc/cpuinfo calls what each adds to the one before.
LEVELS = {
    "x86-64-v2": "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
_CPUINFO = Path("/proc/cpuinfo")

# What tells processors apart in /proc/cpuinfo: x86, ARM, POWER, RISC-V.
_PROCESSOR = (
    "vendor_id",
    "cpu family",
    "model",
    "flags",
    "CPU ",
    "Features",
    "cpu\t",
    "isa",
    "uarch",
)


def compiler() -> list[str] | None:
    """The C++ compiler's command: ``$CXX``, which may be several words such as ``ccache g++``,
    else g++; None where there is none."""
    try:
        name, *options = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    except ValueError:  # quotation marks that do not close
        return None
    path = shutil.which(name)
    return None if path is None else [path, *options]


def runnable_targets(cpuinfo: Path = _CPUINFO) -> list[str]:
    """What the library may be built for on this machine, the default first.

    Args:
        cpuinfo: Linux's description of the processors
    """
    found = [NATIVE]
    known = _described(("flags",), cpuinfo)
    for level, flags in LEVELS.items():
        # Every processor of the machine must have them.
        if not known or not all(set(flags.split()) <= set(line.split()) for line in known):
            break
        found.append(level)
    return found


def target(cpuinfo: Path = _CPUINFO) -> str:
    """The instruction set that the library is built for, chosen by ``EA_FAIRSEQ_MARCH``.

    Raises:
        UserError: there is no such choice, or this processor would stop at an unknown instruction
    """
    chosen = os.environ.get(TARGET) or NATIVE
    choices = runnable_targets(cpuinfo)
    if chosen in choices:
        return chosen
    what = "this processor does not have it" if chosen in LEVELS else "no such choice"
    raise UserError(f"{TARGET}={chosen}: {what}; choices here are {', '.join(choices)}")


def built(command: list[str]) -> Path:
    """The library's file for this source, compiler and processor; compiled where it is missing.

    Args:
        command: that of `compiler`

    Raises:
        UserError: ``EA_FAIRSEQ_MARCH`` is none of the choices
        OSError: the file cannot be written or read, or its folder is not the user's own
        subprocess.SubprocessError: the compiler failed
    """
    chosen = target()
    sources = sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")])
    texts = [path.read_text(encoding="utf-8") for path in sources]
    version = _output([*command, "--version"], limit=60)
    # What is built for a level runs on any machine that has it.
    machine = processor() if chosen == NATIVE else chosen
    parts = (*texts, " ".join(FLAGS), *command, version, machine)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = _folder()
    _remove_leftovers(folder)
    path = folder / f"ea_fairseq-{digest}.so"
    if not _is_whole(path):
        _compile([*command, f"-march={chosen}"], path)
    return path


def _is_whole(path: Path) -> bool:
    """Whether the file is there, and is what was written."""
    checksum = _checksum_of(path)
    for file in (path, checksum):
        if file.exists() and not file.is_file():
            raise OSError(f"{file} is in the way of a file: remove it")
    if not path.exists():
        return False
    if checksum.exists() and checksum.read_bytes() == sha256(path).encode():
        return True
    logger.warning("%s is not what was written there: compiling it again", path)
    return False


def _checksum_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _compile(command: list[str], path: Path) -> None:
    logger.info("compiling the attention, once for this machine")
    with tempfile.TemporaryDirectory(dir=path.parent, suffix=".tmp") as folder:
        new = Path(folder) / path.name
        _output([*command, *FLAGS, *map(str, sorted(FOLDER.glob("*.cpp"))), "-o", str(new)], LIMIT)
        _checksum_of(new).write_bytes(sha256(new).encode())
        # Several processes may build at once. Should the file of one end up with the checksum of
        # another, the next process builds once more.
        for file in (_checksum_of(new), new):
            force_to_disk(file)
            os.replace(file, path.parent / file.name)
        force_to_disk(path.parent)


def _output(command: list[str], limit: float) -> str:
    """What a command prints, which may be in any encoding; its messages in English."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=limit,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed compilations left, but nothing that may still be in the making."""
    for leftover in folder.glob("*.tmp"):
        with contextlib.suppress(FileNotFoundError):  # of another process, which has just ended
            if time.time() - leftover.lstat().st_mtime > 2 * LIMIT:
                if leftover.is_dir() and not leftover.is_symlink():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    leftover.unlink()


def _folder() -> Path:
    """The user's own folder for the library; nobody else may write there, as it will be run.

    Raises:
        OSError: where it belongs to somebody else, others may write to it, or none is known
    """
    cache = os.environ.get("XDG_CACHE_HOME")
    if not cache:
        try:
            cache = Path.home() / ".cache"
        except RuntimeError:  # neither HOME nor an entry in the list of users
            raise OSError("no home folder: set XDG_CACHE_HOME or HOME") from None
    folder = Path(cache) / "ea_fairseq"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by others")
    return folder


def processor(cpuinfo: Path = _CPUINFO) -> str:
    """What -march=native depends on: a folder may be shared by machines of different kinds.

    Args:
        cpuinfo: Linux's description of the processors, which may be of several kinds
    """
    found = _described(_PROCESSOR, cpuinfo)
    return "\n".join([platform.machine(), *(found or [platform.processor()])])


def _described(names: tuple[str, ...], cpuinfo: Path) -> list[str]:
    """The lines of the description that begin with these names, each once."""
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as lines:
            return sorted({line.strip() for line in lines if line.startswith(names)})
    except OSError:
        return []
