"""A parallel corpus without a download, from CLDR (through Babel) and num2words.

CLDR holds, for hundreds of languages, how people write dates, times, amounts of money,
measurements, lists and names; num2words adds numbers in words. A sentence here is a *meaning*, a
function from a voice (one language) to text, and a pair is one meaning spoken by two voices:

    Dienstag, 4. März 2025, 15:05 (Polen und Norwegen)
    Tuesday, March 4, 2025, 3:05 PM (Poland and Norway)

All wording is the two libraries' own, so every pair of languages that both know works. What one of
the two languages lacks, or cannot tell apart although the other does, is left out for that pair. A
corpus.yml asks for it by ``reader: cldr``.
"""

from collections.abc import Callable, Sequence
from random import Random

from babel import Locale, UnknownLocaleError
from num2words import CONVERTER_CLASSES

from .cldr_content import KINDS, NAMES, Kind, Meaning, Stock, naming
from .cldr_voice import Voice

MIN_WORDS, MAX_WORDS = 8, 25
# As many draws in a row without a new sentence mean that there are none left worth waiting for.
PATIENCE = 2000
# Values of each kind that are compared with those of the kinds before it.
PROBES = 200
LIST_STYLES = ("standard", "or")


def _plain(text: str) -> str:
    """Text with plain single spaces, and without the marks that only steer its direction."""
    return " ".join(text.translate({0x200E: None, 0x200F: None, 0x061C: None}).split())


Piece = tuple[str, str]  # a part of a sentence: source and target text


class Speaker:
    """Draws sentences that both languages can say, and that the source says without ambiguity."""

    def __init__(self, source: Voice, target: Voice):
        self.source, self.target = source, target
        # What each source text means in the target language; what contradicts it is left out.
        self._meant: dict[str, str] = {}
        self.stock: Stock = {
            name: [code for code in codes if self._say_all([naming(name, code)])]
            for name, codes in NAMES.items()
        }
        self.kinds = {
            family: [kind for kind in kinds.values() if self._usable(kind)]
            for family, kinds in KINDS.items()
        }

    def _say(self, meaning: Meaning) -> tuple[str, str]:
        source, target = _plain(meaning(self.source)), _plain(meaning(self.target))
        if not source or not target:
            raise LookupError("nothing to say")
        return source, target

    def _say_all(self, meanings: Sequence[Meaning]) -> list[Piece] | None:
        """The meanings in both languages; None if one of the languages lacks words for one of
        them, or if the source text already means something else."""
        try:
            said = [self._say(meaning) for meaning in meanings]
        except LookupError:
            return None
        new: dict[str, str] = {}
        for source, target in said:
            meant = self._meant.get(source, new.setdefault(source, target))
            if meant != target or new[source] != target:
                return None
        self._meant.update(new)
        return said

    def _usable(self, kind: Kind) -> bool:
        try:
            meanings = [kind(Random(probe), self.stock) for probe in range(PROBES)]
        except LookupError:  # an empty stock
            return False
        return self._say_all(meanings) is not None

    # Pieces

    def _draw(self, rng: Random, kind: Kind) -> Piece:
        for _ in range(PATIENCE):
            said = self._say_all([kind(rng, self.stock)])
            if said:
                return said[0]
        raise ValueError(self._trouble())

    def _one(self, rng: Random, *families: str) -> Piece:
        """A piece of any kind of the families."""
        return self._draw(rng, rng.choice([k for family in families for k in self.kinds[family]]))

    def _join(self, join: Callable[..., str], *pieces: Piece) -> Piece:
        source, target = zip(*pieces, strict=True)
        return _plain(join(self.source, *source)), _plain(join(self.target, *target))

    def _list(self, rng: Random, pieces: Sequence[Piece]) -> Piece:
        """A, B and C, or A, B or C; what was drawn twice is there once."""
        style = rng.choice(LIST_STYLES)
        return self._join(lambda voice, *items: voice.list(items, style), *dict.fromkeys(pieces))

    def _alike(self, rng: Random, family: str, size: int) -> Piece:
        """A list of things of one kind: A, B and C."""
        kind = rng.choice(self.kinds[family])
        return self._list(rng, [self._draw(rng, kind) for _ in range(size)])

    def _mixed(self, rng: Random, size: int) -> Piece:
        """A list of amounts of any kind."""
        return self._list(rng, [self._one(rng, "amount") for _ in range(size)])

    # Sentences

    def sentence(self, rng: Random) -> Piece:
        """A sentence of MIN_WORDS to MAX_WORDS in both languages."""
        for _ in range(PATIENCE):
            piece = self._compose(rng)
            lengths = self.source.words(piece[0]), self.target.words(piece[1])
            if MIN_WORDS <= min(lengths) and max(lengths) <= MAX_WORDS:
                return piece
        raise ValueError(self._trouble())

    def _compose(self, rng: Random) -> Piece:
        shape = rng.randrange(6)
        if shape == 0:  # a point in time, and what is there
            meeting = self._join(Voice.at, self._one(rng, "date"), self._one(rng, "time"))
            return self._join(Voice.at, meeting, self._alike(rng, "name", rng.randint(2, 3)))
        if shape == 1:  # when, and how much
            when = self._one(rng, "date", "period")
            return self._join(Voice.at, when, self._mixed(rng, rng.randint(2, 3)))
        if shape == 2:  # how much
            return self._mixed(rng, rng.randint(3, 5))
        if shape == 3:  # several of a kind, and when
            things = self._alike(rng, rng.choice(("name", "amount", "period")), rng.randint(3, 4))
            return self._join(Voice.aside, things, self._one(rng, "date", "period"))
        if shape == 4:  # when, and from how much to how much
            when = self._one(rng, "date", "period")
            return self._join(Voice.at, when, self._alike(rng, "span", rng.randint(1, 2)))
        # when, and which languages
        when = self._one(rng, "date", "period")
        return self._join(Voice.at, when, self._alike(rng, "dialect", rng.randint(2, 4)))

    def _trouble(self) -> str:
        return f"cannot make sentences from {self.source.language} to {self.target.language}"


def distinct_pairs(
    draw: Callable[[], Piece], sizes: dict[str, int], patience: int = PATIENCE
) -> dict[str, list[Piece]]:
    """Fill each split with pairs of which no side was seen in any split, whatever the case.

    All but train are filled first, so that they do not change with the size of train.

    Raises:
        ValueError: a size is negative, or draw runs out of new pairs.
    """
    for split, size in sizes.items():
        if size < 0:
            raise ValueError(f"{split} is {size}: a size must be 0 or more")
    sources: set[str] = set()
    targets: set[str] = set()
    splits: dict[str, list[Piece]] = {split: [] for split in sizes}
    for split in sorted(sizes, key=lambda split: (split == "train", split)):
        failures = 0
        while len(splits[split]) < sizes[split]:
            pair = draw()
            source, target = (text.casefold() for text in pair)
            if source in sources or target in targets:
                failures += 1
                if failures == patience:
                    raise ValueError(
                        f"{split} is {sizes[split]}: only {len(splits[split])} pairs without "
                        "duplicates found; choose smaller sizes"
                    )
                continue
            failures = 0
            sources.add(source)
            targets.add(target)
            splits[split].append(pair)
    return splits


def generate(
    source_lang: str, target_lang: str, sizes: dict[str, int], seed: int
) -> dict[str, list[tuple[str, str]]]:
    """Make a corpus of pairs (source sentence, target sentence).

    Args:
        source_lang, target_lang: codes that both Babel and num2words know, such as de.
        sizes: split name -> number of pairs.
        seed: the same seed, languages and sizes always give the same corpus.

    Returns:
        Split name -> pairs. No sentence of either side occurs twice, within or across splits.

    Raises:
        ValueError: an unknown language, equal languages, or a size that cannot be reached.
    """
    for key, language in (("source_lang", source_lang), ("target_lang", target_lang)):
        _check_known(key, language)
    if source_lang == target_lang:
        raise ValueError(f"target_lang is {target_lang!r}: choose a language unlike the source's")
    speaker = Speaker(Voice(source_lang), Voice(target_lang))
    rng = Random(seed)
    return distinct_pairs(lambda: speaker.sentence(rng), sizes)


def generate_alone(language: str, sizes: dict[str, int], seed: int) -> dict[str, list[tuple[str]]]:
    """Make the sentences of one language, for a language model.

    Args and raises: as `generate`.

    Returns:
        Split name -> tuples of one sentence, none of which occurs twice.
    """
    _check_known("language", language)
    speaker = Speaker(Voice(language), Voice(language))  # it hears itself
    rng = Random(seed)
    pairs = distinct_pairs(lambda: speaker.sentence(rng), sizes)
    return {split: [pair[:1] for pair in drawn] for split, drawn in pairs.items()}


def _is_in_babel(code: str) -> bool:
    try:
        Locale.parse(code)
    except (UnknownLocaleError, ValueError):
        return False
    return True


def _check_known(key: str, language: str) -> None:
    known = [code for code in sorted(CONVERTER_CLASSES) if _is_in_babel(code)]
    if language not in known:
        raise ValueError(
            f"{key} is {language!r}: choose one of {', '.join(known)} "
            "(the languages that both Babel and num2words know)"
        )
