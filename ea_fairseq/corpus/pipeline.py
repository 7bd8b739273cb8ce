"""The steps of preparation, each written whole or not at all.

    raw/, tok/   clean sentences, and their tokens
    codes        subwords learned on the training text of both languages; empty without any
    bpe/         text split into subwords
    bin/         what fairseq-preprocess makes of it

state.json says which steps are done, prepared.json that all are.
"""

import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from ..files import (
    LineWriter,
    locked,
    new_folder,
    read_json_or_none,
    scratch_folder,
    sha256,
    write_json,
)
from ..text.control_words import as_unknown
from ..text.subwords import apply
from ..text.tokens import Tokenizer, clean_line, has_usual_form
from ..text.usual_form import accents_apart
from . import inputs, subwords
from .binarize import binarize, subsets
from .cleaning import trainable, why_dropped
from .config import Corpus
from .holding_out import draw, key
from .mixing import PartText, divide
from .parallel import ordered_map
from .readers import Pair, read_pairs

FORMAT = 1  # raise it when the same settings come to give other data
STATE = "state.json"
FINAL = "prepared.json"
MADE = ("raw", "tok", "codes", "bpe", "bin", STATE, FINAL)
LIBRARIES = ("sacremoses", "subword-nmt", "sentencepiece", "ve-fairseq", "babel", "num2words")

# one pair: clean source and target, tokenised source and target; of one language, two lines
Lines = tuple[str, ...]


def prepare(
    corpus: Corpus, folder: Path, output: Path, raw: Path | None, downloads: Path, workers: int
) -> dict:
    """Prepares a corpus; does nothing if `output` holds it already, and finishes what is begun.

    Args:
        corpus: the settings.
        folder: where the corpus.yml is.
        output: folder to write.
        raw: local folder of the original files; None to download them.
        downloads: where downloads are kept.
        workers: number of processes.

    Returns:
        The content of prepared.json.

    Raises:
        ValueError: bad input.
        OSError: a file cannot be read or written.
        RuntimeError: a program that this one calls failed.
    """
    if "," in str(output):  # fairseq-preprocess takes it as a separator
        raise ValueError(f"{output}: fairseq-preprocess cannot take a path with a comma")
    with locked(output, shared=True):  # runs that use it need not end first
        if done := _found(corpus, folder, output, raw):
            return _report("already prepared", output, done)
    with locked(output):
        if done := _found(corpus, folder, output, raw):
            return _report("already prepared", output, done)
        sources = inputs.locate(corpus, folder, raw, downloads)
        files = inputs.files_of(sources)
        state = {
            "settings": data_settings(corpus),
            "test_sets": subsets(corpus.test_sets),
            "inputs": {name: sha256(file) for name, file in files.items()},
            "input_bytes": {name: file.stat().st_size for name, file in files.items()},
            "steps": {},
        }
        inputs.check_not_trained_on(sources, state["inputs"])
        _check_replaceable(output, files.values())
        begun = read_json_or_none(output / STATE)
        if begun is not None and begun == {**state, "steps": begun.get("steps")}:
            state = begun
        _run_steps(corpus, sources, output, workers, state)
        done = _summary(corpus, state)
        write_json(output / FINAL, done)
        tok = output / "tok"
        return _report("prepared", output, done, unknown_words(corpus, tok), overlap(corpus, tok))


def _found(corpus: Corpus, folder: Path, output: Path, raw: Path | None) -> dict | None:
    """The content of prepared.json where all that is wanted is there already; else None."""
    done = read_json_or_none(output / FINAL)
    if done is None or not all((output / name).exists() for name in MADE):
        return None
    # Downloads are told apart by the settings, which name them, and by their checksums.
    files = inputs.local_files(corpus, folder, raw)
    settings, files = inputs.named_as_prepared(done, data_settings(corpus), files)
    # The settings' JSON objects have no order, but the test sets do.
    if (done["settings"], done["test_sets"]) != (settings, subsets(corpus.test_sets)):
        return None
    if inputs.corrected(inputs.listed_sha256(corpus), done["inputs"]):
        return None
    same = done["inputs"].keys() == files.keys() and all(
        file is None or sha256(file) == done["inputs"][name] for name, file in files.items()
    )
    return done if same else None


def data_settings(corpus: Corpus) -> dict:
    """All that decides about the data made of given inputs, as prepared.json keeps it."""
    return {"format": FORMAT, **corpus.settings()}


def _summary(corpus: Corpus, state: dict) -> dict:
    """The content of prepared.json."""
    steps = state["steps"]
    apart = steps["text"].get("accents_apart")
    return {
        "settings": state["settings"],
        "inputs": state["inputs"],
        "input_bytes": state["input_bytes"],
        **corpus.named_languages,
        "test_sets": state["test_sets"],
        "pairs": steps["bpe"],
        "training_pairs_read": steps["text"]["read"],
        "dropped": _dropped(steps),
        **({"accents_apart": apart} if apart else {}),
        "dictionary": steps["bin"],
        "post_process": corpus.post_process,
        "versions": {name: version(name) for name in LIBRARIES},
    }


def _dropped(steps: dict) -> dict[str, int]:
    """Why training pairs were dropped, and how many, by words and then by subwords."""
    dropped = dict(steps["text"].get("dropped", {}))
    # A preparation that an earlier version began has no word of it.
    too_long = steps["text"].get("train", 0) - steps["bpe"]["train"]
    return dropped | ({"limits on subwords": too_long} if too_long > 0 else {})


def unknown_words(corpus: Corpus, tok: Path) -> dict[str, float]:
    """Words of each file of tokenised text that the training text does not have, in percent of the
    file's words; of text that is not divided into words nothing."""
    if corpus.tokenize.tokenizer != "moses":
        return {}
    found = {}
    for lang in corpus.languages:
        text = {split: subwords.read_tokens(tok / f"{split}.{lang}") for split in corpus.splits}
        training = text.pop("train")
        counts = {
            split: Counter(word for line in lines for word in line.split())
            for split, lines in text.items()
        }
        unknown = set().union(*counts.values())
        for line in training:
            unknown.difference_update(line.split())
        for split, words in counts.items():
            if part := sum(words[word] for word in unknown & words.keys()):
                found[f"{split}.{lang}"] = 100 * part / words.total()
    return found


def overlap(corpus: Corpus, tok: Path) -> dict[str, str]:
    """Of each split that is measured with: how many of its sources are trained on, if some are."""
    name = corpus.languages[0]
    sources = {
        split: list(subwords.read_tokens(tok / f"{split}.{name}"))
        for split in corpus.splits
        if split != "train"
    }
    wanted = set().union(*sources.values())
    training = subwords.read_tokens(tok / f"train.{name}", corpus.tags)
    known = {line for line in training if line in wanted}
    counts = {split: sum(line in known for line in lines) for split, lines in sources.items()}
    return {
        split: f"{count:,} of {len(sources[split]):,}" for split, count in counts.items() if count
    }


def _report(
    word: str,
    output: Path,
    done: dict,
    words: dict[str, float] | None = None,
    trained_on: dict[str, str] | None = None,
) -> dict:
    counts = _by_split(done["pairs"])
    dropped = ", ".join(f"{count:,} {why}" for why, count in done.get("dropped", {}).items())
    read = done["training_pairs_read"]
    what = "lines" if "language" in done else "pairs"
    line = f"{counts} {what}" + (f"; of {read:,} read were dropped: {dropped}" if dropped else "")
    if words:
        parts = ", ".join(f"{name} {part:.1f} %" for name, part in words.items())
        line += f"; words that are not in the training text: {parts}"
    if unknown := _unknown(output):
        line += "; unknown tokens: " + ", ".join(f"{name} {part} %" for name, part in unknown)
    if trained_on:
        parts = ", ".join(f"{split} {count}" for split, count in trained_on.items())
        line += f"; {'lines' if 'language' in done else 'sources'} that are trained on too: {parts}"
    print(f"{output}: {word}: {line}", file=sys.stderr)
    _warn_of_codes(output, done["settings"])
    if apart := done.get("accents_apart"):
        print(
            f"warning: {output}: accents stand apart from their letters (Unicode's NFD), and the "
            f"tokenizer may tear them off, in {what} of {_by_split(apart)}: `tokenize: "
            "{nfc: true}` in corpus.yml joins them",
            file=sys.stderr,
        )
    return done


def _warn_of_codes(output: Path, settings: dict) -> None:
    """Says which languages have none of Moses' rules for the form of their code."""
    for name in ("language", "source_lang", "target_lang"):
        code = settings.get(name)
        if code and settings["tokenize"]["tokenizer"] == "moses" and not has_usual_form(code):
            print(
                f"warning: {output}: {name} is {code}: Moses' rules for apostrophes, quotation "
                "marks and abbreviations go by codes of two small letters, such as en: of this one "
                "it takes none",
                file=sys.stderr,
            )


def _unknown(output: Path) -> list[tuple[str, str]]:
    """The files of split text with tokens that the dictionary lacks, and their part in percent,
    as fairseq-preprocess has written it down."""
    try:
        log = (output / "bin" / "preprocess.log").read_text(encoding="utf-8", errors="replace")
    except OSError:  # of data that somebody has copied without it
        return []
    found = re.findall(r"/bpe/([^/\n]+): \d+ sents, \d+ tokens, ([\d.]+)% replaced", log)
    return [(name, part) for name, part in found if float(part) > 0]


def _by_split(counts: dict[str, int]) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in counts.items())


def _check_replaceable(output: Path, files: Collection[Path]) -> None:
    """Refuses a folder whose content this program did not make, or that the input lies in."""
    present = [name for name in MADE if (output / name).exists()]
    notes = [read_json_or_none(output / name) for name in (STATE, FINAL)]
    if present and not any(note is not None and "settings" in note for note in notes):
        raise ValueError(
            f"{output}: holds {', '.join(present)}, made by something else: choose another --output"
        )
    replaced = {(output / name).resolve() for name in MADE}
    for file in files:
        if replaced & {file.resolve(), *file.resolve().parents}:
            raise ValueError(f"{file}: lies in what --output replaces: choose another --output")


def _clear(output: Path) -> None:
    """Removes an earlier preparation."""
    present = [name for name in MADE if (output / name).exists()]
    # What says that the folder is this program's goes last, and what says it is complete first.
    for name in sorted(present, key=lambda name: (name == STATE, name != FINAL)):
        path = output / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _run_steps(
    corpus: Corpus, sources: inputs.Sources, output: Path, workers: int, state: dict
) -> None:
    """Does the steps that are not done; state.json keeps what they return.

    An earlier preparation of something else stays until the new text is there.
    """
    raw, tok, codes, bpe, binary = (output / name for name in ("raw", "tok", "codes", "bpe", "bin"))

    def step(name: str, function: Callable[[], object], *makes: Path) -> None:
        if name not in state["steps"] or not all(path.exists() for path in makes):
            state["steps"][name] = function()
            write_json(output / STATE, state)

    def replace() -> None:
        _clear(output)
        write_json(output / STATE, state)

    step("text", lambda: _tokenize(corpus, sources, output, workers, replace), raw, tok)
    step("codes", lambda: _learn(corpus, tok, codes, workers), codes)
    step("bpe", lambda: _split(corpus, tok, codes, bpe, workers), bpe)
    step("bin", lambda: _binarize(corpus, bpe, binary, workers, state["steps"]["bpe"]), binary)


def _tokenize(
    corpus: Corpus,
    sources: inputs.Sources,
    output: Path,
    workers: int,
    before_replacing: Callable[[], None],
) -> dict[str, int]:
    """Writes raw/ and tok/; returns the number of training pairs read and kept."""
    with (
        scratch_folder(output / ".extracted.tmp") as extracted,
        new_folder(output / "raw") as raw,
        new_folder(output / "tok") as tok,
    ):
        held: dict[int, str] = {}
        if corpus.reader == "cldr":
            from . import cldr  # takes packages of the extra "recipes"

            generate = cldr.generate_alone if corpus.language else cldr.generate
            generated = generate(*corpus.languages, corpus.sizes, corpus.seed)
            texts = {split: [PartText(pairs)] for split, pairs in generated.items()}
        else:
            unpacked = inputs.unpack(sources, extracted)
            texts = {split: _texts(corpus, split, found) for split, found in unpacked.items()}
            if corpus.held_out:
                training = _texts(corpus, "train", unpacked["train"])
                pairs = chain.from_iterable(text.pairs for text in training if text.tag is None)
                nfc = "train" in corpus.tokenize.nfc
                held = draw(pairs, corpus.held_out, corpus.seed, corpus.clean, nfc)
        with ExitStack() as stack:
            writers = {
                split: [
                    stack.enter_context(LineWriter(folder / f"{split}.{lang}"))
                    for folder in (raw, tok)
                    for lang in corpus.languages
                ]
                for split in corpus.splits
            }
            counts = tokenize_splits(corpus, texts, writers, workers, held)
        if counts["train"] < len(held):
            sizes = ", ".join(f"{split}: {size}" for split, size in corpus.held_out.items())
            raise ValueError(
                f"hold_out takes {len(held):,} pairs ({sizes}) and leaves {counts['train']:,} to "
                "train on: hold out fewer"
            )
        before_replacing()
    return counts


def _texts(corpus: Corpus, split: str, files: list[tuple[inputs.Source, ...]]) -> list[PartText]:
    """The sentences of each part of a split, read when they are asked for."""
    return [
        PartText(read_pairs(*pair), part.weight, part.tag)
        for part, pair in zip(corpus.files[split], files, strict=True)
    ]


def tokenize_splits(
    corpus: Corpus,
    texts: dict[str, list[PartText]],
    writers: dict[str, list[LineWriter]],
    workers: int,
    held: dict[int, str] | None = None,
) -> dict[str, Any]:
    """Cleans and tokenises all splits.

    Args:
        texts: the parts of each split.
        writers: for each split, where the items of its `Lines` go.
        held: what is held out of the training text, as `holding_out.draw` gives it.

    Returns:
        Numbers of training pairs: read; kept by cleaning (for other splits, too, if held out);
        dropped, by reason; and `train`, those written, as often as their weights say. Where there
        are any, `accents_apart`: of each split, the pairs with accents that Moses' rules may tear
        off their letters, and that `nfc` would join.
    """
    read = kept = untagged = written = 0
    dropped: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    left = dict(held or {})

    def fit(lines: Lines) -> bool:
        """As for `holding_out.draw`: of pairs with one source, the first may be unfit."""
        return trainable(lines[: len(corpus.languages)], corpus.clean, unit=corpus.clean.unit)

    for split, text in ((split, text) for split, parts in texts.items() for text in parts):
        function = partial(tokenize_chunk, corpus, split)
        for chunk in ordered_map(function, text.pairs, workers, f"tokenize {split}"):
            for lines, reason in chunk:
                to, copies = split, 1
                if split == "train":
                    read += 1
                    number = key(lines[0], corpus.seed) if held else 0
                    if number in left and reason != "empty" and text.tag is None and fit(lines):
                        to, reason = left.pop(number), None
                    elif held and number in held:
                        reason = "same source as one held out"
                    if reason is not None:
                        dropped[reason] += 1
                        continue
                    kept += 1
                    if corpus.hold_out and not held and text.tag is None:
                        untagged += 1
                        to = "train" if untagged % corpus.hold_out else "valid"
                    if to == "train":
                        source = len(corpus.languages)  # the first of the tokenised lines
                        lines = (*lines[:source], text.tagged(lines[source]), *lines[source + 1 :])
                        copies = text.copies()
                        written += copies
                if corpus.tokenize.tokenizer == "moses":
                    apart[to] += any(map(accents_apart, lines[: len(corpus.languages)]))
                for writer, line in zip(writers[to], lines, strict=True):
                    for _ in range(copies):
                        writer.write(line)
    counts = {"read": read, "kept": kept, "dropped": dict(dropped.most_common()), "train": written}
    return counts | ({"accents_apart": dict(+apart)} if +apart else {})


_tokenizer = lru_cache(Tokenizer)  # once in each process: it compiles large patterns


def tokenize_chunk(corpus: Corpus, split: str, pairs: list[Pair]) -> list[tuple[Lines, str | None]]:
    """Cleans and tokenises some pairs; with each, why not to train on it, if not."""
    kind = split if split in ("train", "valid") else "test"
    tokenizers = [
        _tokenizer(lang, corpus.tokenize, kind, corpus.subword) for lang in corpus.languages
    ]
    tags = corpus.tags
    result: list[tuple[Lines, str | None]] = []
    for pair in pairs:
        clean = tuple(clean_line(line, kind in corpus.tokenize.nfc) for line in pair)
        tokens = tuple(tokenize(line) for tokenize, line in zip(tokenizers, clean, strict=True))
        reason = None
        if split == "train":
            for line in tokens:
                if divide(line, tags)[0]:
                    raise ValueError(
                        f"train: {line[:60]!r} begins with a tag of corpus.yml: choose another"
                    )
            reason = why_dropped(tokens, corpus.clean, unit="words")
        result.append(((*clean, *tokens), reason))
    return result


def _learn(corpus: Corpus, tok: Path, codes: Path, workers: int) -> None:
    if corpus.subword == "none":
        codes.touch()
        return
    training = [tok / f"train.{lang}" for lang in corpus.languages]
    size, seed, tags = corpus.subword_size, corpus.seed, corpus.tags
    subwords.learn(corpus.subword, training, size, seed, workers, codes, tags)


def _split(corpus: Corpus, tok: Path, codes: Path, bpe: Path, workers: int) -> dict[str, int]:
    """Writes bpe/; returns the number of pairs of each split."""
    counts = dict.fromkeys(corpus.splits, 0)
    with new_folder(bpe) as folder:
        for split in counts:
            names = [f"{split}.{lang}" for lang in corpus.languages]
            pairs = zip(*(subwords.read_tokens(tok / name) for name in names), strict=True)
            function = partial(split_chunk, corpus, split, codes)
            with ExitStack() as stack:
                writers = [stack.enter_context(LineWriter(folder / name)) for name in names]
                for chunk in ordered_map(function, pairs, workers, f"{corpus.subword} {split}"):
                    counts[split] += len(chunk)
                    for pair in chunk:
                        for writer, line in zip(writers, pair, strict=True):
                            writer.write(line)
    for split, count in counts.items():
        if count == 0:
            what = "line" if corpus.language else "pair of sentences"
            raise ValueError(f"{split}: no {what} is left: see clean, hold_out")
    return counts


def split_chunk(corpus: Corpus, split: str, codes: Path, pairs: list[Pair]) -> list[Pair]:
    """Splits some pairs into subwords; drops training pairs that are too long in subwords.

    A piece that is one of fairseq's symbols becomes the unknown word, as where a model is used.
    """
    known = corpus.tags if split == "train" else ()
    first, *others = zip(*pairs, strict=True)
    tags, first = zip(*(divide(line, known) for line in first), strict=True)
    sides = [first, *others]
    if corpus.subword != "none":
        sides = [apply(corpus.subword, codes, list(lines)) for lines in sides]
    sides = [[as_unknown(line) for line in lines] for lines in sides]
    return [
        (tag + pair[0], *pair[1:])
        for tag, pair in zip(tags, zip(*sides, strict=True), strict=True)
        if split != "train" or trainable(pair, corpus.clean, unit="subwords")
    ]


def _binarize(
    corpus: Corpus, bpe: Path, output: Path, workers: int, pairs: dict[str, int]
) -> dict[str, int]:
    with new_folder(output) as folder:
        return binarize(corpus, bpe, folder, workers, pairs)
