"""fairseq-preprocess: dictionaries and binary data.

It runs without the plugin, whose way to read dirty text (guard/preprocess.py) is not needed:
the text has no control characters, is UTF-8, and nobody gives it a dictionary.
"""

import os
import shlex
import signal
import struct
import subprocess
import sys
from pathlib import Path

from .config import Corpus


def subsets(test_sets: list[str]) -> dict[str, str]:
    """fairseq's name of each test set -> its own: test, test1, test2 ..."""
    return {f"test{n or ''}": name for n, name in enumerate(test_sets)}


def command(corpus: Corpus, text: Path, output: Path, workers: int) -> list[str]:
    """The fairseq-preprocess command for the files of folder `text`."""
    arguments = [sys.executable, "-m", "fairseq_cli.preprocess"]
    pair = {"source-lang": corpus.source_lang, "target-lang": corpus.target_lang}
    end = f".{corpus.language}" if corpus.language else ""  # of a pair, fairseq adds it
    options = {
        **({} if corpus.language else pair),
        "trainpref": text / f"train{end}",
        "validpref": text / f"valid{end}",
        "testpref": ",".join(str(text / f"{name}{end}") for name in corpus.test_sets),
        "destdir": output,
        "workers": workers,
    }
    # One word each: fairseq takes any word that begins with --user-dir for that option.
    arguments += [f"--{name}={value}" for name, value in options.items()]
    if corpus.language:
        arguments.append("--only-source")
    elif corpus.dictionary == "joint":
        arguments.append("--joined-dictionary")
    return arguments


def dictionary_name(corpus: Corpus, lang: str) -> str:
    """The file of a language's dictionary, as fairseq-preprocess and the tasks name it."""
    return "dict.txt" if corpus.language else f"dict.{lang}.txt"


def binarize(
    corpus: Corpus, text: Path, output: Path, workers: int, pairs: dict[str, int]
) -> dict[str, int]:
    """Runs fairseq-preprocess on the folder `text` and checks what it wrote.

    Args:
        pairs: expected number of pairs in each split.

    Returns:
        Entries of each language's dictionary, fairseq's special ones included.

    Raises:
        RuntimeError: the command failed or lost a line.
    """
    arguments = command(corpus, text, output, workers)
    print(shlex.join(arguments), file=sys.stderr, flush=True)
    status, last = _run(arguments)
    if status:
        raise RuntimeError(f"{output}: fairseq-preprocess failed (status {status}): {last}")
    names = {"train": "train", "valid": "valid", **subsets(corpus.test_sets)}
    for subset, name in names.items():
        for lang in corpus.languages:
            pair = f".{corpus.source_lang}-{corpus.target_lang}.{lang}"
            index = output / f"{subset}{'' if corpus.language else pair}.idx"
            found = _sentences(index)
            if found != pairs[name]:
                raise RuntimeError(f"{index}: {found} sentences, expected {pairs[name]}")
    return {
        lang: 4 + sum(1 for _ in open(output / dictionary_name(corpus, lang), "rb"))
        for lang in corpus.languages
    }


def _run(arguments: list[str]) -> tuple[int, str]:
    """Runs a command, showing what it prints; returns its exit status and its last line."""
    last = ""
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that its worker processes can be stopped along with it
        close_fds=False,  # see locked()
    ) as process:
        try:
            for line in process.stdout:
                print(line, end="", file=sys.stderr, flush=True)
                last = line.strip() or last
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    return process.returncode, last


def _sentences(index: Path) -> int:
    """Number of sentences in fairseq's memory-mapped format, from the head of its index."""
    magic, _version, _dtype, sentences = struct.unpack("<9sQBQ", index.read_bytes()[:26])
    if magic != b"MMIDIDX\x00\x00":
        raise RuntimeError(f"{index}: not an index of fairseq's mmap format")
    return sentences
