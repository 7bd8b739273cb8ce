"""Content of the generated corpus, before any language: dates, times, amounts, spans, names.

Each kind draws a value, the same from the same state of rng for kinds that differ in style alone,
so that probing finds the styles that a language does not tell apart.
"""

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random

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


def naming(name: str, code: str) -> Meaning:
    """The name of one of `NAMES`."""
    return lambda voice: voice.name(name, code)


def _name_kind(name: str) -> Kind:
    def kind(rng: Random, stock: Stock) -> Meaning:
        return naming(name, rng.choice(stock[name]))

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
