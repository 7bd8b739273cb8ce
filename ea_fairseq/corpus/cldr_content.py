"""Content of the generated corpus, before any language: dates, times, amounts, spans, names.

Each kind draws a value, the same from the same state of rng for kinds that differ in style alone,
so that probing finds the styles that a language does not tell apart.
"""

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any

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

Meaning = Callable[[Voice], str]
# The codes whose names both languages have, and tell apart.
Stock = dict[str, list]
Draw = Callable[[Random, Stock], Any]
Kind = Callable[[Random, Stock], Meaning]

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


def _from(least: int, most: int) -> Draw:
    return lambda rng, stock: rng.randint(least, most)


def _one_of(*values: object) -> Draw:
    return lambda rng, stock: rng.choice(values)


def _code(name: str) -> Draw:
    """The code of one of `NAMES`."""
    return lambda rng, stock: rng.choice(stock[name])


def _date(rng: Random, stock: Stock) -> datetime.date:
    # From 1970 to 2037 two digits tell the year.
    first = datetime.date(1970, 1, 1).toordinal()
    return datetime.date.fromordinal(first + rng.randrange(68 * 365))


def _year(rng: Random, stock: Stock) -> int:
    return _date(rng, stock).year


def _time(rng: Random, stock: Stock) -> datetime.time:
    return datetime.time(rng.randrange(24), rng.randrange(0, 60, 5))


def _two_times(rng: Random, stock: Stock) -> list[datetime.time]:
    start, end = sorted((_time(rng, stock), _time(rng, stock)))
    if start == end:
        end = end.replace(minute=(end.minute + 30) % 60)
    return sorted((start, end))


def _count(rng: Random, stock: Stock) -> int:
    return rng.randint(3, rng.choice((20, 99, 99, 999, 9999)))


def _spoken_count(rng: Random, stock: Stock) -> int:
    # One and two take a gender in many languages, which num2words does not know.
    return 10 * rng.randint(0, 9) + rng.randint(3, 9)


def _range(rng: Random, stock: Stock) -> tuple[int, int]:
    low = _count(rng, stock)
    return low, low + _count(rng, stock)


def _amount(rng: Random, stock: Stock) -> Decimal:
    return Decimal(_count(rng, stock)) + Decimal(rng.randrange(100)) / 100


def _with_one_decimal(rng: Random, stock: Stock) -> Decimal:
    return Decimal(_count(rng, stock)) + Decimal(rng.randint(1, 9)) / 10


def _round_number(rng: Random, stock: Stock) -> int:
    return rng.randint(3, 99) * 10 ** rng.choice((6, 9))


def _two_percentages(rng: Random, stock: Stock) -> list[int]:
    return sorted(rng.sample(range(3, 101), 2))


def _kind(say: Callable[..., str], *draws: Draw, **fixed: object) -> Kind:
    """Draws values, in this order; a voice says them, in the style or skeleton that is fixed."""

    def kind(rng: Random, stock: Stock) -> Meaning:
        values = [draw(rng, stock) for draw in draws]
        return lambda voice: say(voice, *values, **fixed)

    return kind


def _interval(skeleton: str, most_days: int) -> Kind:
    """From a date to one that is `most_days` later at most."""

    def say(voice: Voice, start: datetime.date, days: int) -> str:
        return voice.interval(start, start + datetime.timedelta(days), skeleton)

    return _kind(say, _date, _from(most_days // 10 + 1, most_days))


def _relative(voice: Voice, unit: str, n: int, sign: int) -> str:
    return voice.relative(sign * n, unit)


def _relative_in_words(voice: Voice, unit: str, n: int, sign: int) -> str:
    return voice.in_words(_relative(voice, unit, n, sign), n)


def _zoned(name: str) -> Kind:
    def say(voice: Voice, time: datetime.time, code: str) -> str:
        return f"{voice.time(time)} {voice.name(name, code)}"

    return _kind(say, _time, _code(name))


def _span(say: Callable[..., str], ends: Draw, *draws: Draw, **fixed: object) -> Kind:
    """From one value to another, with what both are of."""

    def say_both(voice: Voice, ends: Sequence[int], *of: str) -> str:
        return voice.span(*(say(voice, end, *of, **fixed) for end in ends))

    return _kind(say_both, ends, *draws)


def naming(name: str, code: str) -> Meaning:
    """The name of one of `NAMES`."""
    return lambda voice: voice.name(name, code)


def _named(name: str) -> Kind:
    return lambda rng, stock: naming(name, rng.choice(stock[name]))


_time_unit = _one_of(*SECONDS)

KINDS: dict[str, dict[str, Kind]] = {
    "date": {
        "full date": _kind(Voice.date, _date, style="full"),
        "long date": _kind(Voice.date, _date, style="long"),
        "abbreviated date": _kind(Voice.skeleton, _date, skeleton="yMMMEd"),
        "short date": _kind(Voice.date, _date, style="short"),
        "day and month": _kind(Voice.skeleton, _date, skeleton="MMMMd"),
        "date with era": _kind(Voice.skeleton, _date, skeleton="GyMMMd"),
        "days": _interval("yMMMd", 25),
        "weekdays": _interval("yMMMEd", 25),
    },
    "period": {
        "month and year": _kind(Voice.skeleton, _date, skeleton="yMMMM"),
        "quarter": _kind(Voice.skeleton, _date, skeleton="yQQQQ"),
        "week": _kind(Voice.week, _from(1, 52), _year),
        "months": _interval("yMMMM", 300),
        "years": _interval("y", 4000),
        "year in words": _kind(Voice.spoken, _from(1100, 2037), form="year"),
        "ahead": _kind(_relative, _time_unit, _from(3, 99), sign=1),
        "ago": _kind(_relative, _time_unit, _from(3, 99), sign=-1),
        "ahead in words": _kind(_relative_in_words, _time_unit, _spoken_count, sign=1),
        "ago in words": _kind(_relative_in_words, _time_unit, _spoken_count, sign=-1),
    },
    "time": {
        "time": _kind(Voice.time, _time),
        "time in zone": _zoned("zone"),
        "time at place": _zoned("local time"),
        "times": _kind(lambda voice, times: voice.time_interval(*times), _two_times),
    },
    "amount": {
        "money by name": _kind(Voice.money, _amount, _code("currency"), style="name"),
        "money by symbol": _kind(Voice.money, _amount, _code("currency"), style="standard"),
        "money in words": _kind(Voice.money_in_words, _spoken_count, _code("currency")),
        "money and cents in words": _kind(
            Voice.spoken_money, _spoken_count, _spoken_count, _one_of("EUR", "GBP", "USD")
        ),
        "measure": _kind(Voice.unit, _count, _code("unit")),
        "measure in words": _kind(
            lambda voice, n, unit: voice.in_words(voice.unit(n, unit), n),
            _spoken_count,
            _code("unit"),
        ),
        "rate": _kind(lambda voice, n, rate: voice.rate(n, *rate), _count, _one_of(*RATES)),
        "percent": _kind(Voice.percent, _from(3, 100)),
        "compact number": _kind(Voice.compact, _round_number),
        "decimal number": _kind(Voice.decimal, _with_one_decimal),
        # Below a thousand, so that no cardinal is taken for a year.
        "cardinal": _kind(Voice.spoken, _from(3, 999), form="cardinal"),
        "ordinal": _kind(Voice.spoken, _from(3, 100), form="ordinal"),
    },
    "span": {
        "money": _span(Voice.money, _range, _code("currency"), style="name"),
        "measure": _span(Voice.unit, _range, _code("unit")),
        "percent": _span(Voice.percent, _two_percentages),
    },
    "name": {
        "territory": _named("territory"),
        "language": _named("language"),
        "currency": _named("currency"),
        "unit": _named("unit name"),
        "month": _named("month"),
        "weekday": _named("weekday"),
    },
    "dialect": {"dialect": _named("dialect")},
}
