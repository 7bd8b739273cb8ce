"""A model as a folder that can be moved, zipped and handed on.

    config.json          what is in the folder and how to use it, see `ModelConfig`
    model.safetensors    the weights
    dict.<language>.txt  fairseq's dictionaries, source and target; of a language model dict.txt
    codes                BPE codes, or sentencepiece.model; neither where text comes split already
    README.md            the model card

Nothing in it is run: numbers, JSON and text. Every file but the card has its SHA-256 in
config.json, and is checked against it when it is read.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..corpus.config import tokenization
from ..errors import UserError
from ..files import new_folder, read_json, sha256, write_json, write_lines
from ..text.processing import SUBWORDS, TextProcessing, TextSettings

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
CODES = {"bpe": "codes", "sentencepiece": "sentencepiece.model", "none": None, "bytes": None}

#: What models are for: fairseq's names of the tasks.
TRANSLATION, LANGUAGE_MODELING = TASKS = ("translation", "language_modeling")

_LANGUAGE = re.compile(r"[A-Za-z0-9_-]{1,40}")


#: The greatest beam, and the greatest length penalty in either direction.
MOST_BEAM = 1000
MOST_LENPEN = 10
#: Tokens of a translation for each of its source.
MOST_LEN_A = 1000


@dataclass(frozen=True)
class Search:
    """The beam search that a model is meant for, in fairseq-generate's words and defaults.

    A hypothesis has at most ``max_len_a`` times the source's tokens, its end among them, and
    ``max_len_b`` more, or ``min_len`` where that is more; of a language model, the source is the
    prefix, whose tokens count, behind the end of another text.
    """

    beam: int = 5
    lenpen: float = 1.0
    unkpen: float = 0.0
    unnormalized: bool = False
    min_len: int = 1
    max_len_a: float = 0.0
    max_len_b: int = 200

    def __post_init__(self) -> None:
        """Refuses what no search can do.

        Raises:
            UserError: naming the setting, its value and the choices
        """
        for name, least in (("beam", 1), ("min_len", 0), ("max_len_b", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise UserError(f"{name} is {value!r}: expected a whole number from {least}")
        for name in ("lenpen", "unkpen", "max_len_a"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not math.isfinite(value):
                raise UserError(f"{name} is {value!r}: expected a number")
        # A number of hypotheses that is a slip fills the memory; and so large a power of a length
        # is no number any more, or zero.
        if self.beam > MOST_BEAM:
            raise UserError(f"beam is {self.beam}: expected a whole number from 1 to {MOST_BEAM}")
        if abs(self.lenpen) > MOST_LENPEN:
            expected = f"a number from -{MOST_LENPEN} to {MOST_LENPEN}"
            raise UserError(f"lenpen is {self.lenpen}: expected {expected}")
        if not 0 <= self.max_len_a <= MOST_LEN_A:
            expected = f"a number from 0 to {MOST_LEN_A}"
            raise UserError(f"max_len_a is {self.max_len_a!r}: expected {expected}")
        if not self.max_len_a and self.max_len_b < self.min_len:
            raise UserError(
                f"max_len_b is {self.max_len_b}: expected at least min_len, {self.min_len}, where"
                " max_len_a is 0"
            )
        if type(self.unnormalized) is not bool:
            raise UserError(f"unnormalized is {self.unnormalized!r}: choose true or false")


@dataclass(frozen=True)
class Longest:
    """The longest sources that a model was trained on, a few exceptions apart; None: not known.

    Text with more subwords or sentences in a line is translated in parts.
    """

    tokens: int | None = None
    sentences: int | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(
                    f"longest: {item.name} is {value!r}: expected a whole number from 1, or null"
                )


@dataclass(frozen=True)
class ModelConfig:
    """What config.json says.

    Attributes:
        arch: fairseq's name of the architecture
        options: the model's options, as fairseq's parser names them with underscores
        text: languages, tokenization and subwords; a language model writes the language it reads
        longest: the longest sources of the training data
        search: the search that the model is meant for
        scores: by test set, what evaluate.py wrote: scores with labels and signatures
        versions: of what the model was made with
        command: the command that made the folder
        task: one of `TASKS`
    """

    arch: str
    options: dict[str, Any]
    text: TextSettings
    longest: Longest = field(default_factory=Longest)
    search: Search = field(default_factory=Search)
    scores: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    task: str = TRANSLATION

    @property
    def dictionaries(self) -> tuple[str, str]:
        """Names of the source's and the target's dictionary: of a language model the same."""
        if self.task == LANGUAGE_MODELING:
            return "dict.txt", "dict.txt"
        return f"dict.{self.text.source_lang}.txt", f"dict.{self.text.target_lang}.txt"

    @property
    def codes(self) -> str | None:
        """Name of the file of the subwords, or None."""
        return CODES[self.text.subword]


@dataclass(frozen=True)
class ModelFolder:
    """A folder that was read and found whole."""

    path: Path
    config: ModelConfig

    @property
    def dictionaries(self) -> tuple[Path, Path]:
        """The source's and the target's dictionary."""
        source, target = self.config.dictionaries
        return self.path / source, self.path / target

    def text_processing(self) -> TextProcessing:
        """What makes tokens of raw text, and text of tokens."""
        codes = self.config.codes
        return TextProcessing(self.config.text, None if codes is None else self.path / codes)

    def weights(self) -> dict[str, Tensor]:
        """The model's parameters and buffers by name.

        Raises:
            UserError: if the file holds something else.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(self.path / WEIGHTS)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{self.path / WEIGHTS}: cannot be read: {error}") from error


def read_model_folder(path: str | Path) -> ModelFolder:
    """A model folder, after looking at all that is in it.

    Raises:
        UserError: naming the file, if it is missing, of another format, damaged or exchanged.
    """
    path = Path(path)
    if path.is_file():
        raise UserError(
            f"{path}: is a file: expected a model folder{_model_of(path)}, or make one: ea-export "
            f"{path} FOLDER"
        )
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; a model folder is made by ea-export")
    if not (path / CONFIG).exists():
        inside = path / "model"
        hint = (
            f"it is in {inside}" if (inside / CONFIG).exists() else "train and export a model first"
        )
        raise UserError(f"{path}: no model folder, without {CONFIG}: {hint}")
    try:
        content = read_json(path / CONFIG)
        config = _parse(content)
        checksums = content["files"]
    except OSError as error:
        raise UserError(f"{path / CONFIG}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = str(error)
        if str(path) not in message:
            missing = isinstance(error, KeyError)
            message = f"{path / CONFIG}: {f'{error} is missing' if missing else message}"
        raise UserError(message) from error
    for name in _file_names(config):
        _check(path / name, checksums.get(name) if isinstance(checksums, dict) else None)
    return ModelFolder(path, config)


def _model_of(path: Path) -> str:
    """The model folder beside a run's checkpoint, for a message."""
    beside = [folder / "model" for folder in path.absolute().parents[:2]]
    found = next((folder for folder in beside if (folder / CONFIG).exists()), None)
    return "" if found is None else f", such as {found}"


def write_model_folder(
    path: Path,
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    dictionaries: tuple[Path, Path],
    codes: Path | None,
) -> None:
    """Writes a model folder, whole or not at all.

    Args:
        path: the folder; an earlier model folder there is replaced
        config: all that config.json says, but the checksums
        weights: parameters (torch.nn.Parameter, which are counted) and buffers; of those that
            share their memory, one
        dictionaries: fairseq's, source and target
        codes: the file of the subwords, None where config.text.subword is "none"

    Raises:
        UserError: if something else has the name.
    """
    from safetensors.torch import save
    from torch.nn import Parameter

    if path.exists() and not (path.is_dir() and _replaceable(path)):
        raise UserError(f"{path}: is there already and is no model folder; choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(path) as folder:
        # Not save_file, whose file nobody else may read.
        contiguous = {name: value.detach().contiguous() for name, value in weights.items()}
        (folder / WEIGHTS).write_bytes(save(contiguous))
        for source, name in zip(dictionaries, config.dictionaries, strict=True):
            shutil.copyfile(source, folder / name)
        if codes is not None:
            shutil.copyfile(codes, folder / config.codes)
        files = {name: sha256(folder / name) for name in _file_names(config)}
        parameters = sum(v.numel() for v in weights.values() if isinstance(v, Parameter))
        write_json(folder / CONFIG, {**_as_json(config), "parameters": parameters, "files": files})
        write_lines(folder / CARD, model_card(config, parameters))


#: Task -> for the model card: class, method, command, and what the model does with its training.
_USES = {
    TRANSLATION: (
        *("Translator", "translate", "ea-translate 'THIS FOLDER' <source.txt >translation.txt"),
        "can translate, and whose translations it imitates",
    ),
    LANGUAGE_MODELING: (
        *("LanguageModel", "generate", "ea-generate 'THIS FOLDER' <beginnings.txt >texts.txt"),
        "writes, and whose texts it imitates",
    ),
}


def _own_variant(arch: str) -> list[str]:
    """What a card says of a variant that is not part of this package."""
    from ..attention.variants import architectures  # takes torch

    if arch not in architectures():
        return []
    variant, _ = architectures()[arch]
    module = variant.build.__module__.partition(".")[0]
    if module == __package__.partition(".")[0]:
        return []
    return [
        f"Its attention, `{variant.name}`, is not part of ea_fairseq: the folder `{module}`, which",
        f"defines it, is needed too. Add `--user-dir {module}` to the command, and",
        f"`import {module}` to the program.",
        "",
    ]


def model_card(config: ModelConfig, parameters: int) -> list[str]:
    """The lines of README.md: what the model is, how good it is, how to use it."""
    source, target = config.text.source_lang, config.text.target_lang
    is_pair = config.task == TRANSLATION
    lines = [
        f"# Translation from {source} to {target}" if is_pair else f"# Language model: {source}",
        "",
        f"{config.arch}, {parameters:,} parameters, trained with fairseq and ea_fairseq.",
        "",
    ]
    if config.scores:
        lines += ["| test set | measure | score | signature |", "|---|---|---|---|"]
        for test_set, scores in config.scores.items():
            for score in scores["scores"]:
                shown = f"{score['score']:.{score.get('digits', 2)}f}"
                lines.append(
                    f"| {test_set} | {score['label']} | {shown} | `{score['signature']}` |"
                )
        lines.append("")
    if takes := config.text.takes:
        lines += [
            f"**Text must be {takes}**, with a space",
            "between tokens: raw text would be read as unknown words.",
            "",
        ]
    longest = config.longest
    limits = [
        f"{count} {name}"
        for count, name in ((longest.tokens, "subwords"), (longest.sentences, "sentence(s)"))
        if count is not None
    ]
    if limits:
        lines += [
            f"It was trained on lines of up to {' and '.join(limits)}; longer text is translated",
            "in parts, split where sentences end.",
            "",
        ]
    name, method, command, does = _USES[config.task]
    lines += [
        "```python",
        f"from ea_fairseq import {name}",
        "",
        f'print({name}("THIS FOLDER").{method}("..."))',
        "```",
        "",
        "```bash",
        command,
        "```",
        "",
        *_own_variant(config.arch),
        "The folder holds numbers, JSON and text; nothing in it is run. What the model was trained",
        f"on decides what it {does}, their mistakes and",
        "prejudices included.",
        "",
        "Made with " + ", ".join(f"{name} {v}" for name, v in config.versions.items() if v) + ":",
        "",
        f"    {config.command}",
    ]
    return lines


def _as_json(config: ModelConfig) -> dict[str, Any]:
    content = {"format": FORMAT, **asdict(config)}
    content["text"]["tokenize"] = config.text.tokenize.as_json()
    return json.loads(json.dumps(content))  # tuples become lists, as they will be read


def _parse(content: Any) -> ModelConfig:
    """What `_as_json` wrote, checked key by key."""
    if not isinstance(content, dict) or "format" not in content:
        raise UserError("is no model's config.json: it has no 'format'")
    if content["format"] != FORMAT:
        raise UserError(
            f"format {content['format']!r}: this version of ea_fairseq reads format {FORMAT}"
        )
    text = _section(TextSettings, content["text"], "text")
    for language in (text["source_lang"], text["target_lang"]):
        if not isinstance(language, str) or not _LANGUAGE.fullmatch(language):
            raise UserError(f"text: {language!r} is no language code")
    if text["subword"] not in SUBWORDS:
        choices = ", ".join(SUBWORDS)
        raise UserError(f"text: subword is {text['subword']!r}: choose from {choices}")
    text["tokenize"] = tokenization(text["tokenize"])
    arch, options = content["arch"], content["options"]
    if not isinstance(arch, str) or not isinstance(options, dict):
        raise UserError("arch is a name and options are 'key: value' pairs")
    task = content.get("task", TRANSLATION)  # of earlier versions, which had no other
    if task not in TASKS:
        raise UserError(f"task is {task!r}: choose from {', '.join(TASKS)}")
    others = {name: content[name] for name in ("scores", "versions", "command")}
    for name, value in others.items():
        if not isinstance(value, str if name == "command" else dict):
            raise UserError(f"{name} is {value!r}")
    return ModelConfig(
        arch=arch,
        options=options,
        text=TextSettings(**text),
        longest=Longest(**_section(Longest, content["longest"], "longest")),
        search=Search(**_section(Search, content["search"], "search")),
        task=task,
        **others,
    )


def _section(cls: type, content: Any, name: str) -> dict[str, Any]:
    """A section's keys, which must be those of a dataclass."""
    keys = {item.name for item in fields(cls)}
    if not isinstance(content, dict) or content.keys() != keys:
        raise UserError(f"{name}: expected the keys {', '.join(sorted(keys))}, not {content!r}")
    return dict(content)


def _file_names(config: ModelConfig) -> list[str]:
    """Every file with a checksum."""
    names = [WEIGHTS, *config.dictionaries, *([config.codes] if config.codes else [])]
    return list(dict.fromkeys(names))


def _check(path: Path, expected: Any) -> None:
    try:
        with open(path, "rb"):
            actual = sha256(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if actual != expected:
        raise UserError(
            f"{path}: damaged or exchanged: its SHA-256 is {actual}, {CONFIG} says {expected}"
        )


def _replaceable(path: Path) -> bool:
    """Whether a folder is empty, or a model folder and nothing else."""
    names = {entry.name for entry in path.iterdir()}
    known = {CONFIG, WEIGHTS, CARD, *filter(None, CODES.values())}
    others = [name for name in names - known if not re.fullmatch(r"dict(\.[\w-]+)?\.txt", name)]
    return not names or (CONFIG in names and not others)
