"""What a corpus.yml may say: every key, its default and its meaning."""

import json
import math
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin

from .. import yaml_file
from ..files import check_file_name
from ..text.tokens import Tokenization

KINDS = ("train", "valid", "test")
SCHEMES = ("https://", "http://")  # of addresses to download from

#: A language is a part of options, of file names and of fairseq's pair de-en: no dash, no slash.
LANGUAGE = re.compile("[A-Za-z0-9]+(_[A-Za-z0-9]+)*")

# What Moses' tokenizer would never leave whole; less what fairseq calls its own symbols.
_TAG = re.compile(r"<(?!(?:s|pad|unk)>)[A-Za-z0-9_-]+>")

_EXPECTED = {
    str: "text, in quotation marks",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "'key: value' lines",
}


@dataclass(frozen=True)
class Cleaning:
    """Key `clean`: the pairs kept for training. Validation and test sets are never cleaned."""

    min: int = 1
    max: int = 250
    ratio: float | None = None  # longer side / shorter side, at most
    unit: str = "words"  # words: before subwords are learned; subwords: after they are applied


@dataclass(frozen=True)
class Part:
    """One pair of files of a split; `path` holds {lang}, and {side} where it says src or ref.

    Of a corpus of one language, and of tsv, it is one file, and `path` need not hold {lang}.
    """

    path: str
    archive: str | None = None  # the tar or zip file that holds it
    # lines, tags (TED training text), segments (XML or SGML test sets), tsv (lines of source, tab,
    # target and whatever follows behind another tab), or bytes: each byte is a token, its number,
    # and the byte 10 ends a line
    format: str = "lines"
    span: list[int] | None = None  # of bytes: the first, and the one after the last
    # Of training text alone (see mixing.py):
    weight: float = 1  # how often each pair is taken: 3 times; 0.5: every second one
    tag: str | None = None  # first token of each source, such as <BT> for back-translated text


_FORMATS = ("lines", "tags", "segments", "tsv", "bytes")
# Keys of a part that came later: at their defaults they are left out of the settings, which stay
# those of data that was prepared before.
_ADDED = {"weight": 1, "tag": None, "span": None}


@dataclass(frozen=True)
class Download:
    """Files that lie in one place; each of `urls` holds {file} and is tried in turn."""

    urls: list[str]
    files: dict[str, str | None]  # name -> SHA-256 or MD5, or nothing where it is not known


@dataclass(frozen=True)
class Corpus:
    """A whole corpus.yml, checked."""

    name: str  # corpora of one name share their downloads
    language: str | None = None  # of a language model's text; of translations the two that follow
    source_lang: str | None = None
    target_lang: str | None = None
    reader: str = "plain"  # plain: `files`; cldr: generated, `sizes` and `seed`
    files: dict[str, list[Part]] = field(default_factory=dict)  # split -> parts, in order
    downloads: list[Download] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    seed: int = 1
    tokenize: Tokenization = field(default_factory=Tokenization)
    clean: Cleaning = field(default_factory=Cleaning)
    # n: every n-th training pair becomes validation data. {valid: n, test: m}: so many pairs with
    # different sources are drawn by `seed` (see holding_out.py).
    hold_out: int | dict[str, int] | None = None
    # bpe or sentencepiece, learned on both languages together; none: a language model's tokens
    # are the text's own
    subword: str = "bpe"
    subword_size: int = 10000  # merges, or sentencepiece's vocabulary
    dictionary: str = "joint"  # joint: one for both languages; separate: one each

    @property
    def languages(self) -> tuple[str, ...]:
        """Source and target language, or the one of a language model."""
        return (self.language,) if self.language else (self.source_lang, self.target_lang)

    @property
    def named_languages(self) -> dict[str, str]:
        """The languages by the keys that name them here."""
        keys = ("language",) if self.language else ("source_lang", "target_lang")
        return dict(zip(keys, self.languages, strict=True))

    @property
    def post_process(self) -> str | None:
        """fairseq's ``--post-process`` that makes words of this corpus' subwords."""
        return {"bpe": "subword_nmt", "sentencepiece": "sentencepiece"}.get(self.subword)

    @property
    def unit(self) -> str:
        """What a token or several are one of: a word, or a character where files are read so."""
        formats = {part.format for parts in self.files.values() for part in parts}
        return "character" if "bytes" in formats else "word"

    @property
    def test_sets(self) -> list[str]:
        """The test sets' names, in the order of fairseq's subsets test, test1, test2 ..."""
        names = [*(self.files if self.reader == "plain" else self.sizes), *self.held_out]
        return [name for name in names if name not in ("train", "valid")]

    @property
    def held_out(self) -> dict[str, int]:
        """The splits drawn from the training text, and their numbers of pairs."""
        return self.hold_out if isinstance(self.hold_out, dict) else {}

    @property
    def splits(self) -> list[str]:
        """train, valid, and the test sets."""
        return ["train", "valid", *self.test_sets]

    @property
    def tags(self) -> set[str]:
        """The tags of the training text's parts."""
        return {part.tag for part in self.files.get("train", []) if part.tag is not None}

    def settings(self) -> dict:
        """All that decides on the prepared data, as JSON gives it back. URLs do not."""
        data = asdict(self)
        del data["downloads"]
        for key in {"language", "source_lang", "target_lang"} - set(self.named_languages):
            del data[key]
        for part in (part for parts in data["files"].values() for part in parts):
            for name, default in _ADDED.items():
                if part[name] == default:
                    del part[name]
        data["tokenize"] = self.tokenize.as_json()
        return json.loads(json.dumps(data))


def load(path: Path, **changes: str | None) -> Corpus:
    """Reads a corpus.yml.

    Args:
        path: the file; its key `base` names another one, relative to it, that it adds to.
        changes: keys that replace those of the file, where not None.

    Raises:
        ValueError: the file is no YAML mapping, or a key or value is not known.
    """
    data = _read(path, ())
    data.setdefault("name", path.resolve().parent.name)
    try:
        given = {key: value for key, value in changes.items() if value is not None}
        _check_columns(data, given)
        return _build(data | given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read(path: Path, seen: tuple[Path, ...]) -> dict:
    path = path.resolve()
    if path in seen:
        raise ValueError(f"{path}: its base leads back to it")
    if len(seen) > 100:
        raise ValueError(f"{seen[0]}: has more than 100 bases")
    data = yaml_file.read(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected 'key: value' lines")
    base = data.pop("base", None)
    if base is not None and not isinstance(base, str):
        raise ValueError(f"{path}: base is {base!r}: expected the name of a file")
    if not base:
        return data
    based = _read(path.parent / base, (*seen, path))
    try:
        _check_columns(based, data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return _merged(based, data)


def _check_columns(base: dict, delta: dict) -> None:
    """Refuses to exchange the languages of files whose columns they name."""
    files = base.get("files")
    if "files" in delta or not isinstance(files, dict):  # of another type: refused by _check_types
        return
    after = base | delta
    columns = [
        (split, part.get("path"))
        for split, value in files.items()
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, dict) and part.get("format") == "tsv"
    ]
    for key, other in (("source_lang", "target_lang"), ("target_lang", "source_lang")):
        if columns and after.get(key) is not None and after[key] == base.get(other):
            split, path = columns[0]
            raise ValueError(
                f"{key} is {after[key]}, which is the {other} of {path} (files: {split}), of "
                "format tsv, whose first column is the source: name files with the columns in this "
                "order under files"
            )


def _merged(base: dict, delta: dict) -> dict:
    """Nested keys of `delta` replace those of `base`; `files` is replaced as a whole.

    So are the languages: one takes the place of two, and two that of one.
    """
    result = dict(base)
    if "language" in delta:
        result = {k: v for k, v in base.items() if k not in ("source_lang", "target_lang")}
    elif "source_lang" in delta or "target_lang" in delta:
        result.pop("language", None)
    for key, value in delta.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict) and key != "files"
        result[key] = _merged(base[key], value) if both else value
    return result


def _build(data: dict) -> Corpus:
    _check_keys(Corpus, data, "")
    _check_languages(data)
    _check_types(Corpus, data, "")
    data = dict(data)
    data["tokenize"] = tokenization(data.get("tokenize", {}))
    data["clean"] = _section(Cleaning, data.get("clean", {}), "clean")
    data["downloads"] = [_download(download) for download in data.get("downloads", [])]
    alone = "language" in data
    files = data.get("files", {})
    data["files"] = {name: _parts(name, value, alone) for name, value in files.items()}
    corpus = Corpus(**data)
    check_file_name("name", corpus.name)
    for name, size in corpus.sizes.items():
        _positive(f"sizes: {name}", size)
    _choice("reader", corpus.reader, ("plain", "cldr"))
    _choice("subword", corpus.subword, ("bpe", "sentencepiece", *(["none"] if alone else [])))
    _choice("dictionary", corpus.dictionary, ("joint", "separate"))
    _choice("clean: unit", corpus.clean.unit, ("words", "subwords"))
    _choice("tokenize: tokenizer", corpus.tokenize.tokenizer, ("moses", "none"))
    _positive("subword_size", corpus.subword_size)
    _positive("clean: min", corpus.clean.min, least=0)
    _positive("clean: max", corpus.clean.max)
    for name, size in corpus.held_out.items():
        _positive(f"hold_out: {name}", size)
    if corpus.hold_out is not None and not corpus.held_out:
        _positive("hold_out", corpus.hold_out, least=2)
    if corpus.clean.ratio is not None and not corpus.clean.ratio >= 1:
        raise ValueError(f"clean: ratio is {corpus.clean.ratio!r}: expected a number from 1")
    _check_splits(corpus)
    return corpus


#: Rules of tokenization that may be those of some splits alone.
_BY_SPLIT = ("nfc", "normalize", "straight_apostrophes", "printable_only")


def _check_languages(data: dict) -> None:
    pair = [key for key in ("source_lang", "target_lang") if key in data]
    if "language" in data and pair:
        raise ValueError(
            f"both language and {pair[0]} are given: expected one language, of a language model's "
            "text, or the two of translations"
        )
    for key in ("language",) if "language" in data else ("source_lang", "target_lang"):
        if not isinstance(data.get(key), str):  # YAML reads the bare word `no` as false
            raise ValueError(f"{key} is {data.get(key)!r}: expected a language code, quoted")
        if not LANGUAGE.fullmatch(data[key]):
            raise ValueError(
                f"{key} is {data[key]!r}: expected a language code of letters, digits and _"
            )
    if pair and data["source_lang"] == data["target_lang"]:
        raise ValueError(f"source_lang and target_lang are both {data['source_lang']!r}")


def _check_splits(corpus: Corpus) -> None:
    key = "files" if corpus.reader == "plain" else "sizes"
    names = getattr(corpus, key)
    everyth = corpus.hold_out is not None and not corpus.held_out
    needed = {"train"} if everyth or "valid" in corpus.held_out else {"train", "valid"}
    for name in sorted(needed - set(names)):
        raise ValueError(f"{key} has no {name!r}: expected train, valid and the test sets")
    for name in ("valid",) if everyth else corpus.held_out:
        if name in names or name == "train":
            raise ValueError(f"both hold_out and {key}: {name} are given: expected one of them")
    if corpus.held_out and corpus.reader != "plain":
        raise ValueError(f"hold_out: reader {corpus.reader} makes all splits itself, see sizes")
    _check_held_out(corpus)
    if not corpus.test_sets:
        raise ValueError(f"{key} has no test set: expected train, valid and the test sets")
    for name in [*names, *corpus.held_out]:
        check_file_name(key, name)
        if set(name) & set(", "):
            raise ValueError(
                f"{key}: {name!r} has a space or a comma, which divide names elsewhere"
            )


def _check_held_out(corpus: Corpus) -> None:
    """Refuse rules of tokenization that would not hold for what is held out: it is a part of the
    training text, and processed with that."""
    held = {name if name == "valid" else "test" for name in corpus.held_out}
    for key in _BY_SPLIT:
        kinds = set(getattr(corpus.tokenize, key))
        if wrong := sorted(kind for kind in held if (kind in kinds) != ("train" in kinds)):
            raise ValueError(
                f"tokenize: {key} is [{', '.join(sorted(kinds))}]: hold_out takes {wrong[0]} out "
                "of the training text, which has one rule for all: choose true or false"
            )


def _section(cls: type, data: object, where: str):
    if not isinstance(data, dict):
        raise ValueError(f"{where} is {data!r}: expected 'key: value' lines")
    _check_keys(cls, data, f"{where}: ")
    _check_types(cls, data, f"{where}: ")
    try:
        return cls(**data)
    except TypeError as error:
        missing = sorted({f.name for f in fields(cls)} - set(data))
        raise ValueError(f"{where}: lacks one of {', '.join(missing)}") from error


def tokenization(data: object) -> Tokenization:
    """The settings under the key `tokenize`.

    Raises:
        ValueError: a key or value is not known.
    """
    settings = _section(Tokenization, data, "tokenize")
    lists = {}
    for key in _BY_SPLIT:
        value = getattr(settings, key)
        if not isinstance(value, bool | list | tuple):
            raise ValueError(
                f"tokenize: {key} is {value!r}: choose true, false or a list of splits"
            )
        lists[key] = tuple(KINDS if value is True else value or ())
        for kind in lists[key]:
            _choice(f"tokenize: {key}", kind, KINDS)
    return Tokenization(**{**asdict(settings), **lists})


def _download(data: object) -> Download:
    download = _section(Download, data, "downloads")
    for url in download.urls:
        if not isinstance(url, str) or "{file}" not in url:
            raise ValueError(f"downloads: urls: {url!r} does not hold {{file}}")
        if not url.lower().startswith(SCHEMES):
            raise ValueError(f"downloads: urls: {url!r}: choose from {', '.join(SCHEMES)}")
    for name, checksum in download.files.items():
        check_file_name("downloads: files", name)
        if not isinstance(checksum, str | None):
            raise ValueError(f"downloads: files: {name} is {checksum!r}: expected a checksum")
    return download


def _parts(split: str, value: object, alone: bool) -> list[Part]:
    where = f"files: {split}"
    parts = []
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, str):  # a prefix: the files are PREFIX.LANG or PREFIX.LANG.gz
            part = {"path": part + ".{lang}"}
        part = _section(Part, part, where)
        _choice(f"{where}: format", part.format, _FORMATS)
        if part.span is not None:
            _check_span(where, part)
        if part.archive is not None:
            check_file_name(f"{where}: archive", part.archive)
        if "{lang}" not in part.path and not alone and part.format != "tsv":
            raise ValueError(f"{where}: path {part.path!r} does not hold {{lang}}")
        if split != "train" and (part.weight, part.tag) != (1, None):
            raise ValueError(f"{where}: weight and tag are for the parts of train")
        if not 0 < part.weight < math.inf:
            raise ValueError(f"{where}: weight is {part.weight!r}: expected a number above 0")
        if part.tag is not None and not _TAG.fullmatch(part.tag):
            raise ValueError(
                f"{where}: tag is {part.tag!r}: expected letters, digits, _ and - between < and >, "
                "such as <BT>, and no symbol of fairseq's"
            )
        parts.append(part)
    return parts


def _check_span(where: str, part: Part) -> None:
    if part.format != "bytes":
        raise ValueError(f"{where}: span goes with format bytes, not {part.format}")
    if len(part.span) != 2:
        raise ValueError(f"{where}: span is {part.span!r}: expected [first byte, end]")
    first, end = part.span
    _positive(f"{where}: span: first byte", first, least=0)
    _positive(f"{where}: span: end", end)
    if end <= first:
        raise ValueError(f"{where}: span is {part.span!r}: expected an end behind the first byte")


def _check_keys(cls: type, data: dict, where: str) -> None:
    known = [f.name for f in fields(cls)]
    for key in data:
        if key not in known:
            raise ValueError(f"{where}unknown key {key!r}: choose from {', '.join(known)}")


def _check_types(cls: type, data: dict, where: str) -> None:
    """Compare values with the annotations of `cls`, as far as those are types of _EXPECTED."""
    for item in fields(cls):
        value = data.get(item.name, item.default)
        union = isinstance(item.type, UnionType)  # X | None
        kinds = get_args(item.type) if union else (item.type,)
        kinds = [get_origin(kind) or kind for kind in kinds]
        if item.name not in data or not set(kinds) <= {*_EXPECTED, type(None)}:
            continue
        fits = isinstance(value, tuple(kinds)) or (float in kinds and isinstance(value, int))
        if not fits or (isinstance(value, bool) and bool not in kinds):
            expected = " or ".join(_EXPECTED.get(kind, "nothing") for kind in kinds)
            raise ValueError(f"{where}{item.name} is {value!r}: expected {expected}")


def _choice(key: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{key} is {value!r}: choose from {', '.join(choices)}")


def _positive(key: str, value: object, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{key} is {value!r}: expected a whole number from {least}")
