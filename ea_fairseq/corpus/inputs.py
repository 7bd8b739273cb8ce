"""Which files a corpus needs, and where they are.

A file is looked for in the folder given with --raw, and nowhere else, if one is given. Else it is
downloaded if the corpus lists it under `downloads`, and else expected beside the corpus.yml.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..files import checksum_failure, sha256
from .archives import extract
from .config import Corpus, Part
from .download import fetch


@dataclass(frozen=True)
class Source:
    """One side of a part: a file, possibly still inside an archive, or some bytes of it."""

    file: Path
    label: str  # what messages call it
    format: str  # one of readers.FORMATS
    name: str  # the file's, as looked for
    member: str | None = None  # what is meant inside the archive `file`
    span: tuple[int, int] | None = None  # the first byte, and the one after the last

    def overlaps(self, other: "Source", checksums: Mapping[str, str]) -> bool:
        """Whether some of the text is in both; files are the same by place or by checksum."""
        same = self.file.resolve() == other.file.resolve() or (
            self.name in checksums and checksums[self.name] == checksums.get(other.name)
        )
        if not same or self.member != other.member:
            return False
        (begin, end), (first, last) = (
            (0, math.inf) if source.span is None else source.span for source in (self, other)
        )
        return begin < last and first < end


# split -> (source side, target side) per part, or of one language (its file,)
Sources = dict[str, list[tuple[Source, ...]]]


def locate(corpus: Corpus, folder: Path, raw: Path | None, downloads: Path | None) -> Sources:
    """Finds, or downloads, every file of the corpus.

    Args:
        corpus: what to look for.
        folder: where the corpus.yml is.
        raw: local folder to take everything from, without touching the network.
        downloads: where downloaded files are kept; None to download nothing and give such files
            their names alone.

    Raises:
        ValueError: the folder or a file is missing, one file is found for two that are meant, or
            a file cannot be downloaded or has the wrong checksum.
    """
    if raw is not None and not raw.is_dir():
        raise ValueError(f"--raw is {raw}: no such folder")
    finder = _Finder(corpus, folder, raw, downloads)
    found = {
        split: [
            tuple(
                finder.find(part, lang, side)
                for lang, side in zip(corpus.languages, _SIDES, strict=False)
            )
            for part in parts
        ]
        for split, parts in corpus.files.items()
    }
    check_not_trained_on(found)
    return found


def check_not_trained_on(sources: Sources, checksums: Mapping[str, str] = {}) -> None:
    """Refuses a text to measure with that is trained on as well.

    Args:
        sources: where the files are.
        checksums: of the files, by name; without them only files at one place are the same.

    Raises:
        ValueError: naming the split and the file.
    """
    trained_on = [source for pair in sources.get("train", ()) for source in pair]
    for split, pairs in sources.items():
        for source in (source for pair in pairs for source in pair):
            if split != "train" and any(source.overlaps(other, checksums) for other in trained_on):
                raise ValueError(
                    f"files: {split} is {source.label}, which train is too: its scores would be of "
                    "text learned by heart; to hold some of it out, see hold_out"
                )


def local_files(corpus: Corpus, folder: Path, raw: Path | None) -> dict[str, Path | None]:
    """Every input file by name, None for those that are downloads.

    Args and raises: as for `locate`.
    """
    files = files_of(locate(corpus, folder, raw, downloads=None))
    if raw is not None:
        return files
    downloads = {name for download in corpus.downloads if download.urls for name in download.files}
    return {name: None if name in downloads else file for name, file in files.items()}


def listed_sha256(corpus: Corpus) -> dict[str, str]:
    """The SHA-256 that corpus.yml gives, by the name of the file, of those that it gives."""
    return {
        name: checksum.lower()
        for download in corpus.downloads
        for name, checksum in download.files.items()
        if checksum is not None and len(checksum) == 64
    }


def corrected(listed: dict[str, str], prepared: dict[str, str]) -> dict[str, str]:
    """Those of :func:`listed_sha256` that are not of the files prepared, by name."""
    return {name: now for name, now in listed.items() if prepared.get(name, now) != now}


def named_as_prepared(
    prepared: dict[str, Any], settings: dict[str, Any], files: dict[str, Path | None]
) -> tuple[dict[str, Any], dict[str, Path | None]]:
    """A corpus' settings and files by the names that prepared data has for them.

    Who moves a project or renames a file has other paths for the same content: then it is the
    content that decides whether data is what it was.

    Args:
        prepared: the content of prepared.json
        settings: the corpus' own, as `Corpus.settings` gives them
        files: its files by name, None for one that is a download

    Returns:
        the two by the names in ``prepared`` where every file has the content that was prepared in
        its place; else the two as they are
    """
    before = prepared["settings"]
    roles = [_roles(before, prepared["inputs"]), _roles(settings, files)]
    if None in roles or roles[0].keys() != roles[1].keys():
        return settings, files
    if roles[0] == roles[1]:
        return settings, files
    named = {}
    for role, name in roles[1].items():
        old, file = roles[0][role], files[name]
        if old != name and (file is None or sha256_once(file) != prepared["inputs"][old]):
            return settings, files
        named[old] = file
    parts = {
        split: [
            part if part["archive"] else part | {"path": other["path"]}
            for part, other in zip(found, before["files"][split], strict=True)
        ]
        for split, found in settings["files"].items()
    }
    return settings | {"files": parts}, named


def _roles(settings: dict[str, Any], names: Collection[str]) -> dict[tuple, str] | None:
    """Which file is which side of which part of a split; None where one is not known."""
    languages = [settings[key] for key in ("language", "source_lang", "target_lang")
                 if key in settings]  # fmt: skip
    found = {}
    for split, parts in settings.get("files", {}).items():
        for number, part in enumerate(parts):
            for lang, side in zip(languages, _SIDES, strict=False):
                wanted = [part["archive"]] if part["archive"] else []
                wanted += _names(part["path"], lang, side)
                if (name := next((n for n in wanted if n in names), None)) is None:
                    return None
                found[split, number, side] = name
    return found


def sha256_once(file: Path) -> str:
    """The SHA-256 of a file, computed once as long as it does not change."""
    found = file.stat()
    return _checksum(file, found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=1000)
def _checksum(file: Path, *identity: int) -> str:
    return sha256(file)


def files_of(sources: Sources) -> dict[str, Path]:
    """Every input file, by name."""
    files = {source.name: source.file for pairs in sources.values() for p in pairs for source in p}
    return {name: files[name] for name in sorted(files)}


def unpack(sources: Sources, folder: Path) -> Sources:
    """Extracts what is inside archives into `folder`; returns the sources that point there."""
    wanted: dict[Path, dict[str, Path]] = {}
    for source in (s for pairs in sources.values() for pair in pairs for s in pair):
        if source.member is not None:
            members = wanted.setdefault(source.file, {})
            # A number keeps equal base names apart; the suffix tells whether it is gzipped.
            name = f"{source.file.name}.{len(members)}.{Path(source.member).name}"
            members.setdefault(source.member, folder / name)
    for archive, members in wanted.items():
        extract(archive, members)

    def unpacked(source: Source) -> Source:
        if source.member is None:
            return source
        return replace(source, file=wanted[source.file][source.member], member=None)

    return {
        split: [tuple(unpacked(source) for source in pair) for pair in pairs]
        for split, pairs in sources.items()
    }


_SIDES = ("src", "ref")


def _names(path: str, lang: str, side: str) -> list[str]:
    """What a file may be called, the best first: compressed or not, in its folder or without."""
    path = path.replace("{lang}", lang).replace("{side}", side)
    names = [path, path.removesuffix(".gz") if path.endswith(".gz") else path + ".gz"]
    return names + [Path(name).name for name in names]


class _Finder:
    def __init__(self, corpus: Corpus, folder: Path, raw: Path | None, downloads: Path | None):
        self.raw = raw
        self.local = raw or folder
        self.downloads = None if downloads is None else downloads / corpus.name
        self.listed = {
            name: (download.urls, checksum)
            for download in corpus.downloads
            for name, checksum in download.files.items()
        }
        self.checked: set[Path] = set()
        self.meant: dict[Path, str] = {}  # a file found -> the path in corpus.yml

    def find(self, part: Part, lang: str, side: str) -> Source:
        """The file of one language; an archive that is unpacked already will do."""
        names = _names(part.path, lang, side)
        path = names[0]
        span = tuple(part.span) if part.span else None
        format = f"tsv {side}" if part.format == "tsv" else part.format
        if part.archive and (archive := self._file(part.archive)):
            label = f"{archive}: {path}"
            return Source(archive, label, format, part.archive, member=path, span=span)
        for name in names:
            if file := self._file(name):
                if (other := self.meant.setdefault(file, path)) != path:
                    raise ValueError(
                        f"{file}: found for {path} and for {other}: put them into folders of these "
                        "names"
                    )
                return Source(file, str(file), format, name, span=span)
        names = [part.archive, *names[:2]] if part.archive else names[:2]
        raise ValueError(f"{self.local}: found none of {', '.join(names)}")

    def _file(self, name: str) -> Path | None:
        """The file of that name, downloaded if need be; None where there is none."""
        if self.raw is not None and (Path(name).is_absolute() or ".." in Path(name).parts):
            return None  # nowhere else: there may be a file of its base name
        urls, checksum = self.listed.get(name, ([], None))
        if self.raw is None and urls:
            if self.downloads is None:
                return Path(name)
            return fetch(name, urls, checksum, self.downloads)
        path = self.local / name
        if not path.is_file():
            return None
        if path not in self.checked:
            self.checked.add(path)
            if failure := checksum_failure(path, checksum):
                raise ValueError(f"{path}: {failure}")
        return path
