"""Recipes: YAML files with ``base:`` files, merged section by section, option by option."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import yaml_file
from ...errors import perhaps_meant
from ...fairseq_options.checks import check_numbers
from ...fairseq_options.table import OPTIONS
from . import paths
from .tasks import LANGUAGE_MODELING, TRANSLATION, Task, task_of

#: Sections of a recipe that hold options; ``corpus`` (a path) and ``base`` stand beside them.
SECTIONS = TRANSLATION.sections

#: What all models of a corpus share, in its folder.
COMMON = "common.yml"

AVERAGE_KEYS = (
    "num-epoch-checkpoints",
    "num-update-checkpoints",
    "num-best-checkpoints",
    "checkpoint-upper-bound",
    "maximize-best-checkpoint-metric",
)
EVALUATE_KEYS = ("lowercase", "compound-split")

#: Options that the runner passes itself: the same recipe must work in any folder, with any seed.
OPTIONS_OF_THE_RUNNER = {
    "train": ("data", "user-dir", "save-dir", "seed", "restore-file", "train-subset"),
    "generate": ("data", "user-dir", "path", "results-path", "gen-subset"),
    # Of language models: what makes words of subwords is the corpus' to say.
    "evaluate": ("data", "user-dir", "path", "results-path", "gen-subset", "post-process"),
}


#: A recipe, its bases and theirs.
MOST_FILES = 100


@dataclass
class Recipe:
    """A recipe with all its bases merged in.

    ``origin[section, option]`` is the file (or ``--set``) that gave the option its value, for
    error messages. ``sections["average"]`` is None where the best checkpoint is used as it is.
    ``user_dir`` is what fairseq's commands import: the package, or a folder of one's own that does.
    """

    path: Path
    corpus: Path
    sections: dict[str, dict[str, Any] | None]
    origin: dict[tuple[str, str], str] = field(default_factory=dict)
    user_dir: Path = paths.USER_DIR

    @property
    def corpus_name(self) -> str:
        """Name of the folder that describes the corpus, such as ``multi30k.de-en``."""
        return self.corpus.resolve().parent.name

    @property
    def task(self) -> Task:
        """What the model is for."""
        return task_of(self.options("train"))

    @property
    def name(self) -> str:
        """Name of the recipe within its corpus, such as ``ea_transformer_lite``."""
        return self.path.stem

    @property
    def file(self) -> Path:
        """The file to change, for messages: the recipe's own, or what all models share."""
        return _written(self.path)

    def options(self, section: str) -> dict[str, Any]:
        """The options of a section; empty where the recipe has none."""
        return self.sections.get(section) or {}


def load_recipe(path: str | Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe, merge its bases into it, apply ``section.option=value`` overrides.

    ``CORPUS/NAME.yml`` need not exist where ``CORPUS/common.yml`` does: NAME is then one of the
    models in ``variants/``, an architecture, or a variant.

    Raises:
        ValueError: unknown sections or keys, bases that lead in a circle, unreadable YAML.
    """
    path = Path(path)
    parsed = [(f"--set {override}", _parse_override(override)) for override in overrides or []]
    for origin, content in parsed:  # what is wrong in itself is said before files are read
        _merge({"values": {}, "origin": {}}, content, origin)
    merged = _load_merged(path, (), [])
    for origin, content in parsed:
        _merge(merged, content, origin)
    if "corpus" not in merged["values"]:
        raise ValueError(f"{_written(path)}: neither it nor its bases have 'corpus: <corpus.yml>'")
    sections = {name: merged["values"].get(name, {}) for name in SECTIONS}
    recipe = Recipe(path, merged["values"]["corpus"], sections, merged["origin"])
    _check_sections(recipe)
    if not recipe.options("train"):
        raise ValueError(f"{_written(path)}: neither it nor its bases have a section 'train:'")
    return recipe


def _written(path: Path) -> Path:
    """A recipe's file, or ``common.yml`` where the recipe is a name beside it."""
    return path if path.exists() else path.parent / COMMON


def _check_sections(recipe: Recipe) -> None:
    """Refuse what belongs to the other task; one that there is not is left to options.py."""
    if recipe.options("train").get("task", TRANSLATION.name) not in OPTIONS["task"].choices:
        return
    for name in SECTIONS:
        if name not in recipe.task.sections and recipe.sections[name]:
            origin = recipe.origin[name, next(iter(recipe.sections[name]))]
            raise ValueError(
                f"{origin}: section '{name}': the task {recipe.task.name} has none (choose from "
                f"{', '.join(recipe.task.sections)})"
            )
    if recipe.task is TRANSLATION:
        for key, value in recipe.options("evaluate").items():
            _check_own_key("evaluate", key, value, recipe.origin["evaluate", key], EVALUATE_KEYS)


def _load_merged(path: Path, parents: tuple[Path, ...], read: list[Path]) -> dict[str, dict]:
    """Values of ``path`` over those of its bases, with the file that each option came from.

    ``read`` grows by every file, of which a few that name each other often could give millions.
    """
    if path.resolve() in parents:
        raise ValueError(f"{path}: is its own base, by way of {parents[-1]}")
    read.append(path)
    if len(read) > MOST_FILES:
        raise ValueError(f"{read[0]}: has more than {MOST_FILES} bases, with theirs")
    content = _read_yaml(path)
    bases = content.pop("base", [])
    merged: dict[str, dict] = {"values": {}, "origin": {}}
    for base in [bases] if isinstance(bases, str) else bases:
        from_base = _load_merged(path.parent / base, (*parents, path.resolve()), read)
        _merge(merged, from_base["values"], from_base["origin"])
    _merge(merged, content, str(path))
    return merged


def recipe_path(given: Path, variant: str | None) -> Path:
    """The recipe that a command line names: a file, or a corpus' folder (or the name of one that
    comes with the project) and a variant.

    A variant's recipe is ``CORPUS/VARIANT.yml``, which need not exist: see `load_recipe`.

    Raises:
        ValueError: a folder without a variant, or a file with one.
    """
    if not given.exists() and len(given.parts) == 1:
        given = paths.corpora().get(given.name, given)
    if given.is_dir():
        if not any(given.glob("*.yml")):
            raise ValueError(f"{given}: {_instead_of_a_corpus(given)}")
        if variant is None:
            raise ValueError(
                f"{given}: name a model with --variant (choose from {', '.join(variants(given))})"
            )
        return given / f"{variant}.yml"
    if not given.exists() and given.suffix not in (".yml", ".yaml"):
        raise ValueError(
            f"{given}: no such folder or corpus{_perhaps_a_corpus(given)} "
            f"(choose from {', '.join(paths.corpora())})"
        )
    if variant is not None:
        raise ValueError(f"{given}: --variant {variant} goes with a corpus' folder, not a file")
    return given


def _perhaps_a_corpus(given: Path) -> str:
    """A corpus that a mistyped name is like; other text in the same languages is another one."""
    beside = {entry.parent.name for entry in given.absolute().parent.glob(f"*/{COMMON}")}
    names = beside.union(paths.corpora())
    like = [name for name in names if difflib.get_close_matches(given.stem, [Path(name).stem])]
    return perhaps_meant(given.name, like)


def _instead_of_a_corpus(folder: Path) -> str:
    """What a folder without recipes is, and what it is for."""
    if (folder / "config.json").exists():
        return f"is a model folder: ea-translate {folder}"
    for run in (folder, *sorted(folder.glob("seed*"))):
        if (run / "model").is_dir():
            return f"is no corpus' folder but of a run: ea-translate {run / 'model'}"
    return f"is no corpus' folder: it has no {COMMON}"


def variants(corpus: Path) -> list[str]:
    """Every name that `load_recipe` takes beside a corpus' ``common.yml``."""
    task = _task_of_folder(corpus)
    own = [*corpus.glob("*.yml"), *task.variants.glob("*.yml")]
    files = {path.stem for path in own if path.stem not in ("common", "corpus")}
    return sorted(files.union([task.baseline], task.architectures(), _served(task) - {"plain"}))


def _served(task: Task) -> set[str]:
    """The variants that, named alone, have a place in the models of a task."""
    from ...attention.variants import VARIANTS  # takes torch

    found = VARIANTS.values()
    return {v.name for v in found if task is TRANSLATION or "decoder" in v.arrangement}


def _task_of_folder(corpus: Path) -> Task:
    """The task of a corpus' folder, by what its models share; of a folder of variants, its own.

    Of files that cannot be read as they should, `_load_merged` will say so.
    """
    if corpus.resolve() == LANGUAGE_MODELING.variants:
        return LANGUAGE_MODELING
    waiting, seen = [corpus / COMMON], set()
    while waiting:
        path = waiting.pop().resolve()
        if path in seen or len(seen) > MOST_FILES or not path.is_file():
            continue
        seen.add(path)
        content = yaml_file.read(path)
        content = content if isinstance(content, dict) else {}
        train, bases = content.get("train"), content.get("base", [])
        if isinstance(train, dict) and "task" in train:
            return task_of(train)
        bases = bases if isinstance(bases, list) else [bases]
        waiting += [path.parent / base for base in bases if isinstance(base, str)]
    return TRANSLATION


def _variant(path: Path) -> dict[str, Any]:
    """The content of ``CORPUS/VARIANT.yml`` where there is no such file: what is common to the
    corpus, and the variant's own settings; of ``variants/VARIANT.yml``, those alone."""
    task = _task_of_folder(path.parent)
    alone = path.parent.resolve() == task.variants
    if not alone and not (path.parent / COMMON).exists():
        raise ValueError(f"{path}: no such recipe")
    if not alone and (task.variants / path.name).exists():
        return {"base": [COMMON, str(task.variants / path.name)]}
    return {"base": [] if alone else COMMON, "train": _model(path, task)}


def _model(path: Path, task: Task) -> dict[str, Any]:
    """The training options of an architecture, or of a variant on Lite's, by a file's name."""
    name = path.stem
    if name == task.baseline or name in task.architectures():
        return {"arch": name}
    if name in _served(task):
        return {"arch": task.evolving, "ea-variant": name}
    if "=" in name:
        raise ValueError(
            f"{path.parent}: --variant {name}: a chain is an option of a model: give --variant "
            f"{task.evolving} --set ea-variant={name}"
        )
    choices = variants(path.parent)
    raise ValueError(
        f"{path.parent}: {name} is no variant, nor a recipe there{perhaps_meant(name, choices)} "
        f"(choose from {', '.join(choices)})"
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.exists():
        return _variant(path)
    content = yaml_file.read(path)
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ValueError(f"{path}: a recipe is a mapping of sections, not {content!r}")
    bases = content.get("base", [])
    listed = bases if isinstance(bases, list) else [bases]
    if not all(isinstance(base, str) for base in listed):
        raise ValueError(f"{path}: base: is a file name or a list of them, not {bases!r}")
    if not isinstance(content.get("corpus", ""), str):
        raise ValueError(f"{path}: corpus: is a file name, not {content['corpus']!r}")
    if "corpus" in content:
        content["corpus"] = path.parent / content["corpus"]
    return content


def _merge(into: dict[str, dict], content: dict[str, Any], origin: str | dict) -> None:
    """Lay ``content`` over ``into``; ``origin`` is a file name, or the origins of a base."""
    for section, value in content.items():
        file = origin if isinstance(origin, str) else section
        if section == "corpus":
            into["values"]["corpus"] = value
            continue
        if section not in SECTIONS:
            choices = ", ".join(("base", "corpus", *SECTIONS))
            raise ValueError(f"{file}: unknown section {section!r} (choose from {choices})")
        if value is None and section == "average":
            into["values"][section] = None
            continue
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise ValueError(f"{file}: section '{section}' holds options, not {value!r}")
        options = into["values"].get(section) or {}
        into["values"][section] = options | value
        for key in value:
            source = origin if isinstance(origin, str) else origin[section, key]
            into["origin"][section, key] = source
            _check_key(section, key, value[key], source)


def _check_key(section: str, key: str, value: Any, file: str) -> None:
    """Refuse keys known to be wrong without asking fairseq; options.py asks fairseq."""
    if section == "average":
        _check_own_key(section, key, value, file, AVERAGE_KEYS)
    if key in OPTIONS_OF_THE_RUNNER.get(section, ()):
        raise ValueError(f"{file}: {f'{section}: {key}'!r} is set by ea-recipe itself")
    check_numbers(key, value, f"{file}: {f'{section}: {key}'!r}")


def _check_own_key(section: str, key: str, value: Any, file: str, known: tuple[str, ...]) -> None:
    """Check a key that is this project's own, and its value."""
    if key not in known:
        choices = ", ".join(known)
        raise ValueError(f"{file}: unknown key {f'{section}: {key}'!r} (choose from {choices})")
    switch = section == "evaluate" or key.startswith("maximize-")
    if value is None or isinstance(value, bool) and (switch or not value):
        return
    if switch or not isinstance(value, int) or value < 1:
        expected = "true or false" if switch else "a whole number from 1"
        raise ValueError(f"{file}: '{section}: {key}' is {value!r}: expected {expected}")


def _parse_override(text: str) -> dict[str, Any]:
    """``dropout=0.3`` (train), ``generate.beam=4`` or ``average=null`` as a recipe's content."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--set {text}: write option=value or section.option=value")
    if not value.strip():  # YAML's null, by which fairseq's own default would hold
        raise ValueError(
            f"--set {text}: no value: write {name}=VALUE, or {name}=null to leave the option out"
        )
    section, dot, option = name.partition(".")
    parsed = yaml_file.parse(value, f"--set {text}")
    if name == "average" and parsed is None:
        return {"average": None}
    if not dot:
        section, option = "train", name
    if section not in SECTIONS:
        choices = ", ".join(SECTIONS)
        raise ValueError(f"--set {text}: unknown section {section!r} (choose from {choices})")
    return {section: {option.removeprefix("--"): parsed}}
