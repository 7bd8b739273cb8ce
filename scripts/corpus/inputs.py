"""Which files a corpus needs, and where they are.

A file is looked for in the folder given with --raw, and nowhere else, if one is given. Else it is
downloaded if the corpus lists it under `downloads`, and else expected beside the corpus.yml.
"""

from dataclasses import dataclass
from pathlib import Path

from .archives import extract
from .config import Corpus, Part
from .download import fetch
from .files import sha256


@dataclass(frozen=True)
class Source:
    """One side of a part: a file, possibly still inside an archive."""

    file: Path
    label: str  # what messages call it
    format: str
    member: str | None = None  # its name inside the archive `file`


Sources = dict[str, list[tuple[Source, Source]]]  # split -> (source side, target side) per part


def locate(corpus: Corpus, folder: Path, raw: Path | None, downloads: Path) -> Sources:
    """Finds, or downloads, every file of the corpus.

    Args:
        corpus: what to look for.
        folder: where the corpus.yml is.
        raw: local folder to take everything from, without touching the network.
        downloads: where downloaded files are kept.

    Raises:
        ValueError: a file is missing, cannot be downloaded or has the wrong checksum.
    """
    finder = _Finder(corpus, folder, raw, downloads)
    return {
        split: [
            (
                finder.find(part, corpus.source_lang, "src"),
                finder.find(part, corpus.target_lang, "ref"),
            )
            for part in parts
        ]
        for split, parts in corpus.files.items()
    }


def checksums(sources: Sources) -> dict[str, str]:
    """The SHA-256 of every input file, by name."""
    files = sorted({source.file for pairs in sources.values() for p in pairs for source in p})
    return {file.name: sha256(file) for file in files}


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
        return Source(wanted[source.file][source.member], source.label, source.format)

    return {
        split: [(unpacked(source), unpacked(target)) for source, target in pairs]
        for split, pairs in sources.items()
    }


class _Finder:
    def __init__(self, corpus: Corpus, folder: Path, raw: Path | None, downloads: Path):
        self.raw = raw
        self.local = raw or folder
        self.downloads = downloads / corpus.name
        self.listed = {
            name: (download.urls, checksum)
            for download in corpus.downloads
            for name, checksum in download.files.items()
        }
        self.checked: set[Path] = set()

    def find(self, part: Part, lang: str, side: str) -> Source:
        path = part.path.replace("{lang}", lang).replace("{side}", side)
        if part.archive:
            archive = self._file([part.archive])
            if archive:
                return Source(archive, f"{archive}: {path}", part.format, member=path)
        file = self._file([path, path + ".gz", Path(path).name])
        if file:
            return Source(file, str(file), part.format)
        names = [part.archive] if part.archive else []
        names += [path] if path.endswith(".gz") else [path, path + ".gz"]
        raise ValueError(f"{self.local}: found none of {', '.join(names)}")

    def _file(self, names: list[str]) -> Path | None:
        """The first of `names` that there is, downloaded if need be."""
        for name in names:
            urls, checksum = self.listed.get(name, ([], None))
            path = self.local / name
            if self.raw is None and urls:
                return fetch(name, urls, checksum, self.downloads)
            if path.is_file():
                self._check(path, checksum)
                return path
        return None

    def _check(self, path: Path, checksum: str | None) -> None:
        if checksum and path not in self.checked:
            actual = sha256(path)
            if actual != checksum:
                raise ValueError(
                    f"{path}: wrong checksum: SHA-256 is {actual}, expected {checksum}"
                )
            self.checked.add(path)
