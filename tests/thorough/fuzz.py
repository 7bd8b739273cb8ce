"""Files of any bytes are read, or refused in one line: what reads them never fails otherwise.

    python tests/thorough/fuzz.py recipe -max_total_time=600     (with atheris installed)

The first argument is one of TARGETS, the others are libFuzzer's. `test_fuzz.py` calls the same
functions with what hypothesis invents.
"""

import struct
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]


def refused(read, error, path):
    """True if `read` raises that error, in one line that names the file, or one beside it."""
    try:
        read()
    except error as caught:
        beside = str(Path(path).parent) if isinstance(path, Path) else path
        assert "\n" not in str(caught) and beside in str(caught), str(caught)
        return True
    return False


def written(folder, name, data):
    path = Path(folder) / name
    path.write_bytes(data)
    return path


def recipe(data, folder):
    """A recipe, or what stands behind --set: options reach fairseq's own parsers as strings."""
    from ea_fairseq.recipes.says import recipe

    path = written(folder, "recipe.yml", data)
    refused(lambda: recipe.load_recipe(path), ValueError, path)
    text = data.decode(errors="replace").replace("\n", " ")
    whole = ROOT / "examples" / "translation" / "cldr.de-en" / "transformer_lite.yml"
    refused(lambda: recipe.load_recipe(whole, [text]), ValueError, f"--set {text}")


def corpus(data, folder):
    """The settings of a corpus."""
    from ea_fairseq.corpus import config

    path = written(folder, "corpus.yml", data)
    refused(lambda: config.load(path).settings(), ValueError, path)


def text(data, folder):
    """Raw text: as many lines as line feeds say, no control characters, all words come back."""
    from ea_fairseq.corpus import inputs, readers
    from ea_fairseq.errors import UserError
    from ea_fairseq.guard.interactive import read_lines
    from ea_fairseq.text.tokens import clean_line, protect_marker

    path = written(folder, "text.de", data)
    count = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    lines = []
    if not refused(lambda: lines.extend(read_lines(str(path))), UserError, path):  # gzip, UTF-16
        assert len(lines) == count
    lines = []
    source = inputs.Source(path, str(path), "lines", path.name)
    if not refused(lambda: lines.extend(readers.read_lines(source)), ValueError, path):
        assert len(lines) == count
    for line in lines:
        clean = clean_line(line)
        assert len(clean.splitlines()) <= 1 and "\x00" not in clean and clean == clean.strip()
        for kind in ("bpe", "sentencepiece"):
            safe = protect_marker(clean, kind)
            assert ("@@" if kind == "bpe" else "\u2581") not in safe


def segments(data, folder):
    """Test sets in XML or SGML, and TED's tags."""
    from ea_fairseq.corpus import inputs, readers

    path = written(folder, "text.xml", data)
    for kind in ("segments", "tags"):
        source = inputs.Source(path, str(path), kind, path.name)
        refused(lambda s=source, k=kind: list(readers.FORMATS[k](s)), ValueError, path)


def checkpoint(data, folder):
    """A checkpoint from anybody."""
    from ea_fairseq.checkpoints.reading import read_checkpoint
    from ea_fairseq.errors import UserError

    path = written(folder, "checkpoint.pt", data)
    refused(lambda: read_checkpoint(str(path)), UserError, path)


def binarized(data, folder):
    """fairseq's binary data: the first two bytes say how much of it is the index."""
    import numpy as np
    from fairseq.data import Dictionary

    from ea_fairseq.errors import UserError
    from ea_fairseq.guard.binarized_data import check_files, check_tokens

    cut = struct.unpack("<H", data[:2].ljust(2, b"\0"))[0]
    written(folder, "text.idx", data[2 : 2 + cut])
    written(folder, "text.bin", data[2 + cut :])
    path = str(Path(folder) / "text")
    words = Dictionary()
    words.add_symbol("w1")

    def read():
        kind = check_files(path)
        check_tokens(path, kind, words)

    if not refused(read, UserError, path):
        from fairseq.data.indexed_dataset import MMapIndexedDataset

        for tokens in MMapIndexedDataset(path):
            assert tokens[-1] == words.eos() and int(np.max(tokens.numpy())) < len(words)


TARGETS = {
    function.__name__: function
    for function in (recipe, corpus, text, segments, checkpoint, binarized)
}


def main():
    import atheris

    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"fuzz.py: error: name what to fuzz: choose from {', '.join(TARGETS)}")
    target = TARGETS[sys.argv.pop(1)]
    with tempfile.TemporaryDirectory() as folder:
        with atheris.instrument_imports(include=["ea_fairseq", "corpus", "recipes", "yaml"]):
            target(b"", folder)  # imports what it needs
        atheris.Setup(sys.argv, lambda data: target(data, folder))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
