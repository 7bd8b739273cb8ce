"""A parallel corpus without a download, from CLDR (through Babel) and num2words.

CLDR holds, for hundreds of languages, how people write dates, times, amounts of money,
measurements, lists and names; num2words adds numbers in words. A sentence here is a *meaning*, a
function from a voice (one language) to text, and a pair is one meaning spoken by two voices:

    Dienstag, 4. März 2025, 15:05 (Polen und Norwegen)
    Tuesday, March 4, 2025, 3:05 PM (Poland and Norway)

All wording is the two libraries' own, so every pair of languages that both know works. What one of
the two languages lacks, or cannot tell apart although the other does, is left out for that pair.

    python -m ea_fairseq.corpus.cldr --source-lang de --target-lang en --output raw
"""

import argparse
import datetime
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random

from babel import Locale, UnknownLocaleError
from num2words import CONVERTER_CLASSES

from ..files import write_lines
from .cldr_voice import SECONDS, Voice

# Language-neutral codes. Some hundreds, so that a small corpus shows each of them often.
TERRITORIES = """AD AE AF AL AM AO AR AT AU AZ BA BB BD BE BF BG BH BI BJ BN BO BR BS BT BW BY
BZ CA CD CH CL CM CN CO CR CU CV CY CZ DE DJ DK DO DZ EC EE EG ER ES ET FI FJ FR GA GB GE GH
GL GM GN GR GT GY HK HN HR HT HU ID IE IL IN IQ IR IS IT JM JO JP KE KG KH KP KR KW KZ LA LB
LI LK LR LT LU LV LY MA MC MD ME MG MK ML MM MN MR MT MU MV MW MX MY MZ NA NE NG NI NL NO NP
NZ OM PA PE PG PH PK PL PR PS PT PY QA RO RS RU RW SA SC SD SE SG SI SK SL SM SN SO SR SV SY
TD TG TH TJ TM TN TR TW TZ UA UG US UY UZ VA VE VN YE ZA ZM ZW 002 003 005 009 013 019 029 030
034 035 039 053 142 145 150 151 154 155""".split()
LANGUAGES = """af am ar az be bg bn bs ca co cs cy da de el en eo es et eu fa fi fo fr fy ga
gd gl gu ha haw he hi hr ht hu hy id ig is it ja jv ka kk km kn ko ku ky la lb lo lt lv mg mi
mk ml mn mr ms mt my nb ne nl nn pa pl ps pt qu rm ro ru sa sd si sk sl sm sn so sq sr su sv
sw ta te tg th ti tk to tr tt ug uk ur uz vi yi yo zu""".split()
DIALECTS = """ar_AE ar_DZ ar_EG ar_MA de_AT de_BE de_CH de_LU en_AU en_CA en_GB en_IE en_IN
en_JM en_KE en_NG en_NZ en_US en_ZA es_AR es_BO es_CL es_CO es_CU es_ES es_MX es_PE es_UY
fr_BE fr_CA fr_CH fr_FR fr_LU fr_MA fr_SN it_CH it_IT nl_BE nl_NL pt_BR pt_PT ru_KZ ru_UA
sv_FI sv_SE ta_SG tr_CY""".split()
CURRENCIES = """AED ARS AUD BGN BRL CAD CHF CLP CNY COP CZK DKK DZD EGP EUR GBP GEL HKD HUF
IDR ILS INR IRR ISK JOD JPY KES KRW KZT MAD MXN MYR NGN NOK NZD PEN PHP PKR PLN QAR RON RSD
RUB SAR SEK SGD THB TND TRY TWD UAH USD UYU VND ZAR""".split()
UNITS = """angle-degree angle-radian area-hectare area-square-centimeter area-square-kilometer
area-square-meter area-square-mile digital-gigabyte digital-kilobyte digital-megabyte
digital-terabyte duration-century duration-day duration-decade duration-hour
duration-millisecond duration-minute duration-month duration-second duration-week
duration-year electric-ampere electric-ohm electric-volt energy-calorie energy-joule
energy-kilocalorie energy-kilowatt-hour frequency-hertz frequency-kilohertz
frequency-megahertz length-centimeter length-foot length-inch length-kilometer
length-light-year length-meter length-micrometer length-mile length-millimeter
length-nautical-mile length-yard light-lux mass-gram mass-kilogram mass-milligram mass-ounce
mass-pound mass-ton power-horsepower power-kilowatt power-megawatt power-watt pressure-bar
pressure-hectopascal speed-kilometer-per-hour speed-knot speed-meter-per-second
speed-mile-per-hour temperature-celsius temperature-fahrenheit temperature-kelvin
volume-centiliter volume-cubic-centimeter volume-cubic-meter volume-gallon volume-liter
volume-milliliter""".split()
RATES = [  # what CLDR's "per" pattern joins
    (unit, per)
    for unit in ("mass-gram", "mass-kilogram", "volume-liter", "length-meter", "energy-kilocalorie")
    for per in ("duration-second", "duration-minute", "duration-day", "duration-week")
]
ZONES = """Africa_Eastern Alaska America_Central America_Eastern America_Mountain
America_Pacific Arabian Argentina Atlantic Australia_Eastern Australia_Western Brasilia China
Europe_Central Europe_Eastern Europe_Western GMT Hawaii_Aleutian Hong_Kong India Iran Israel
Japan Korea Moscow New_Zealand Pakistan Singapore""".split()
MIN_WORDS, MAX_WORDS = 8, 25
# As many draws in a row without a new sentence mean that there are none left worth waiting for.
PATIENCE = 2000
# Values of each kind that are compared with those of the kinds before it.
PROBES = 200


LIST_STYLES = ("standard", "or")

Meaning = Callable[[Voice], str]
Kind = Callable[[Random, "Stock"], Meaning]
# The codes whose names both languages have, and tell apart.
Stock = dict[str, list]

NAMES: dict[str, Sequence[str]] = {
    "territory": TERRITORIES,
    "language": LANGUAGES,
    "currency": CURRENCIES,
    "unit": UNITS,
    "unit name": UNITS,
    "month": [str(month) for month in range(1, 13)],
    "weekday": [str(day) for day in range(7)],
    "zone": ZONES,
    "local time": TERRITORIES,
    "dialect": DIALECTS,
}


# What can be said: each kind draws a value, the same from the same state of rng for kinds that
# differ in style alone, so that probing finds the styles that a language does not tell apart.


def _date(rng: Random) -> datetime.date:
    # From 1970 to 2037 two digits tell the year.
    first = datetime.date(1970, 1, 1).toordinal()
    return datetime.date.fromordinal(first + rng.randrange(68 * 365))


def _time(rng: Random) -> datetime.time:
    return datetime.time(rng.randrange(24), rng.randrange(0, 60, 5))


def _count(rng: Random) -> int:
    return rng.randint(3, rng.choice((20, 99, 99, 999, 9999)))


def _spoken_count(rng: Random) -> int:
    # One and two take a gender in many languages, which num2words does not know.
    return 10 * rng.randint(0, 9) + rng.randint(3, 9)


def _amount(rng: Random) -> Decimal:
    return Decimal(_count(rng)) + Decimal(rng.randrange(100)) / 100


def _date_kind(style: str) -> Kind:
    def kind(rng: Random, stock: Stock) -> Meaning:
        date = _date(rng)
        return lambda voice: voice.date(date, style)

    return kind


def _skeleton_kind(skeleton: str) -> Kind:
    def kind(rng: Random, stock: Stock) -> Meaning:
        date = _date(rng)
        return lambda voice: voice.skeleton(date, skeleton)

    return kind


def _interval_kind(skeleton: str, most_days: int) -> Kind:
    def kind(rng: Random, stock: Stock) -> Meaning:
        start = _date(rng)
        end = start + datetime.timedelta(days=rng.randint(most_days // 10 + 1, most_days))
        return lambda voice: voice.interval(start, end, skeleton)

    return kind


def _week(rng: Random, stock: Stock) -> Meaning:
    week, year = rng.randint(1, 52), _date(rng).year
    return lambda voice: voice.week(week, year)


def _relative_kind(sign: int) -> Kind:
    def kind(rng: Random, stock: Stock) -> Meaning:
        unit, n = rng.choice(list(SECONDS)), rng.randint(3, 99)
        return lambda voice: voice.relative(sign * n, unit)

    return kind


def _relative_in_words_kind(sign: int) -> Kind:
    def kind(rng: Random, stock: Stock) -> Meaning:
        unit, n = rng.choice(list(SECONDS)), _spoken_count(rng)
        return lambda voice: voice.in_words(voice.relative(sign * n, unit), n)

    return kind


def _spoken_year(rng: Random, stock: Stock) -> Meaning:
    year = rng.randint(1100, 2037)
    return lambda voice: voice.spoken(year, "year")


def _time_of_day(rng: Random, stock: Stock) -> Meaning:
    time = _time(rng)
    return lambda voice: voice.time(time)


def _zoned_kind(name: str) -> Kind:
    def kind(rng: Random, stock: Stock) -> Meaning:
        time, code = _time(rng), rng.choice(stock[name])
        return lambda voice: f"{voice.time(time)} {voice.name(name, code)}"

    return kind


def _time_interval(rng: Random, stock: Stock) -> Meaning:
    start, end = sorted((_time(rng), _time(rng)))
    if start == end:
        end = end.replace(minute=(end.minute + 30) % 60)
        start, end = sorted((start, end))
    return lambda voice: voice.time_interval(start, end)


def _money_kind(style: str) -> Kind:
    def kind(rng: Random, stock: Stock) -> Meaning:
        amount, code = _amount(rng), rng.choice(stock["currency"])
        return lambda voice: voice.money(amount, code, style)

    return kind


def _money_in_words(rng: Random, stock: Stock) -> Meaning:
    n, code = _spoken_count(rng), rng.choice(stock["currency"])
    return lambda voice: voice.money_in_words(n, code)


def _spoken_money(rng: Random, stock: Stock) -> Meaning:
    whole, cents = _spoken_count(rng), _spoken_count(rng)
    code = rng.choice(("EUR", "GBP", "USD"))
    return lambda voice: voice.spoken_money(whole, cents, code)


def _measure(rng: Random, stock: Stock) -> Meaning:
    n, unit = _count(rng), rng.choice(stock["unit"])
    return lambda voice: voice.unit(n, unit)


def _measure_in_words(rng: Random, stock: Stock) -> Meaning:
    n, unit = _spoken_count(rng), rng.choice(stock["unit"])
    return lambda voice: voice.in_words(voice.unit(n, unit), n)


def _rate(rng: Random, stock: Stock) -> Meaning:
    n, (unit, per) = _count(rng), rng.choice(RATES)
    return lambda voice: voice.rate(n, unit, per)


def _range(rng: Random) -> tuple[int, int]:
    low = _count(rng)
    return low, low + _count(rng)


def _money_span(rng: Random, stock: Stock) -> Meaning:
    (low, high), code = _range(rng), rng.choice(stock["currency"])
    return lambda voice: voice.span(voice.money(low, code, "name"), voice.money(high, code, "name"))


def _measure_span(rng: Random, stock: Stock) -> Meaning:
    (low, high), unit = _range(rng), rng.choice(stock["unit"])
    return lambda voice: voice.span(voice.unit(low, unit), voice.unit(high, unit))


def _percent_span(rng: Random, stock: Stock) -> Meaning:
    low, high = sorted(rng.sample(range(3, 101), 2))
    return lambda voice: voice.span(voice.percent(low), voice.percent(high))


def _percent(rng: Random, stock: Stock) -> Meaning:
    hundredths = rng.randint(3, 100)
    return lambda voice: voice.percent(hundredths)


def _compact(rng: Random, stock: Stock) -> Meaning:
    n = rng.randint(3, 99) * 10 ** rng.choice((6, 9))
    return lambda voice: voice.compact(n)


def _decimal(rng: Random, stock: Stock) -> Meaning:
    value = Decimal(_count(rng)) + Decimal(rng.randint(1, 9)) / 10
    return lambda voice: voice.decimal(value)


def _cardinal(rng: Random, stock: Stock) -> Meaning:
    # Below a thousand, so that no cardinal is taken for a year.
    n = rng.randint(3, 999)
    return lambda voice: voice.spoken(n, "cardinal")


def _ordinal(rng: Random, stock: Stock) -> Meaning:
    n = rng.randint(3, 100)
    return lambda voice: voice.spoken(n, "ordinal")


def _naming(name: str, code: str) -> Meaning:
    return lambda voice: voice.name(name, code)


def _name_kind(name: str) -> Kind:
    def kind(rng: Random, stock: Stock) -> Meaning:
        return _naming(name, rng.choice(stock[name]))

    return kind


KINDS: dict[str, dict[str, Kind]] = {
    "date": {
        "full date": _date_kind("full"),
        "long date": _date_kind("long"),
        "abbreviated date": _skeleton_kind("yMMMEd"),
        "short date": _date_kind("short"),
        "day and month": _skeleton_kind("MMMMd"),
        "date with era": _skeleton_kind("GyMMMd"),
        "days": _interval_kind("yMMMd", 25),
        "weekdays": _interval_kind("yMMMEd", 25),
    },
    "period": {
        "month and year": _skeleton_kind("yMMMM"),
        "quarter": _skeleton_kind("yQQQQ"),
        "week": _week,
        "months": _interval_kind("yMMMM", 300),
        "years": _interval_kind("y", 4000),
        "year in words": _spoken_year,
        "ahead": _relative_kind(1),
        "ago": _relative_kind(-1),
        "ahead in words": _relative_in_words_kind(1),
        "ago in words": _relative_in_words_kind(-1),
    },
    "time": {
        "time": _time_of_day,
        "time in zone": _zoned_kind("zone"),
        "time at place": _zoned_kind("local time"),
        "times": _time_interval,
    },
    "amount": {
        "money by name": _money_kind("name"),
        "money by symbol": _money_kind("standard"),
        "money in words": _money_in_words,
        "money and cents in words": _spoken_money,
        "measure": _measure,
        "measure in words": _measure_in_words,
        "rate": _rate,
        "percent": _percent,
        "compact number": _compact,
        "decimal number": _decimal,
        "cardinal": _cardinal,
        "ordinal": _ordinal,
    },
    "span": {
        "money": _money_span,
        "measure": _measure_span,
        "percent": _percent_span,
    },
    "name": {
        "territory": _name_kind("territory"),
        "language": _name_kind("language"),
        "currency": _name_kind("currency"),
        "unit": _name_kind("unit name"),
        "month": _name_kind("month"),
        "weekday": _name_kind("weekday"),
    },
    "dialect": {"dialect": _name_kind("dialect")},
}


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
            name: [code for code in codes if self._say_all([_naming(name, code)])]
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

    def _list(self, pieces: Sequence[Piece], style: str) -> Piece:
        return self._join(lambda voice, *items: voice.list(items, style), *pieces)

    def _alike(self, rng: Random, family: str, size: int) -> Piece:
        """A list of things of one kind: A, B and C."""
        kind = rng.choice(self.kinds[family])
        pieces = [self._draw(rng, kind) for _ in range(size)]
        return self._list(list(dict.fromkeys(pieces)), rng.choice(LIST_STYLES))

    def _mixed(self, rng: Random, size: int) -> Piece:
        """A list of amounts of any kind."""
        pieces = [self._one(rng, "amount") for _ in range(size)]
        return self._list(list(dict.fromkeys(pieces)), rng.choice(LIST_STYLES))

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


def known_languages() -> list[str]:
    """Codes of the languages that both Babel and num2words know."""
    known = []
    for code in sorted(CONVERTER_CLASSES):
        try:
            Locale.parse(code)
        except (UnknownLocaleError, ValueError):
            continue
        known.append(code)
    return known


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
    for option, language in (("source-lang", source_lang), ("target-lang", target_lang)):
        _check_known(f"--{option}", language)
    if source_lang == target_lang:
        raise ValueError(f"--target-lang is {target_lang!r}: choose a language unlike the source's")
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


def _check_known(option: str, language: str) -> None:
    known = known_languages()
    if language not in known:
        raise ValueError(
            f"{option} is {language!r}: choose one of {', '.join(known)} "
            "(the languages that both Babel and num2words know)"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Write train, valid and test in both languages, one sentence a line."""
    parser = argparse.ArgumentParser(description="Make a parallel corpus from CLDR and num2words.")
    parser.add_argument("--source-lang", default="de", help="default: %(default)s")
    parser.add_argument("--target-lang", default="en", help="default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder of the files")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    for split, size in (("train", 20000), ("valid", 1000), ("test", 1000)):
        parser.add_argument(f"--{split}", type=int, default=size, help="pairs (%(default)s)")
    args = parser.parse_args(argv)
    sizes = {"train": args.train, "valid": args.valid, "test": args.test}
    try:
        splits = generate(args.source_lang, args.target_lang, sizes, args.seed)
        args.output.mkdir(parents=True, exist_ok=True)
        for split, pairs in splits.items():
            for side, language in enumerate((args.source_lang, args.target_lang)):
                write_lines(args.output / f"{split}.{language}", [pair[side] for pair in pairs])
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
