"""What one language says about dates, amounts and names: CLDR (through Babel) and num2words."""

import copy
import datetime
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cache

from babel import Locale, dates, lists, localedata, numbers, units
from num2words import num2words

# Written without spaces between words: two characters count as a word.
UNSPACED = {"ja", "th"}
SECONDS = {  # Babel counts a month as 30 days and a year as 365
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 604800,
    "month": 2592000,
    "year": 31536000,
}


class _OwnLocale(Locale):
    """A locale with data of its own.

    Babel's locales share what they inherit, and write into it what they resolved: of two that are
    used in one program, the second says some things in the first one's language.
    See https://github.com/python-babel/babel/issues/1234.
    """

    @property
    def _data(self) -> localedata.LocaleDataDict:
        if "own" not in self.__dict__:
            localedata._cache.clear()  # whatever ran before may have written into it
            self.own = localedata.LocaleDataDict(copy.deepcopy(localedata.load(str(self))))
            localedata._cache.clear()
        return self.own


@cache
def _spoken(language: str, n: int | float, form: str, **options: str) -> str:
    try:
        text = num2words(n, lang=language, to=form, **options)
    except Exception as error:  # each of its languages reports a gap in its own way
        raise LookupError(f"num2words has no {form} for {n!r}") from error
    if not isinstance(text, str):
        raise LookupError(f"num2words has no {form} for {n!r}")
    return text


class Voice:
    """What one language says: CLDR's patterns filled with a value. Raises LookupError for gaps."""

    def __init__(self, language: str):
        self.language = language
        self.locale = _OwnLocale.parse(language)

    def words(self, text: str) -> int:
        """The length of text in words."""
        spaced = self.locale.language not in UNSPACED
        return len(text.split()) if spaced else len(text) // 2

    # Numbers

    def integer(self, n: int) -> str:
        return numbers.format_decimal(n, locale=self.locale)

    def decimal(self, value: Decimal) -> str:
        return numbers.format_decimal(value, locale=self.locale, decimal_quantization=False)

    def percent(self, hundredths: int) -> str:
        return numbers.format_percent(Decimal(hundredths) / 100, locale=self.locale)

    def compact(self, n: int) -> str:
        return numbers.format_compact_decimal(n, format_type="long", locale=self.locale)

    def spoken(self, n: int | float, form: str, **options: str) -> str:
        """Number words: form is cardinal, ordinal, year or currency."""
        return _spoken(self.language, n, form, **options)

    def in_words(self, text: str, n: int) -> str:
        """Text with the number n, written in digits, in words instead."""
        digits = self.integer(n)
        if text.count(digits) != 1:
            raise LookupError(f"no {digits} in {text!r}")
        return text.replace(digits, self.spoken(n, "cardinal"))

    # Money, measurements, relative times

    def money(self, amount: Decimal | int, code: str, style: str) -> str:
        """An amount; style is "name" (euros) or "standard" (€)."""
        text = numbers.format_currency(amount, code, locale=self.locale, format_type=style)
        # Babel leaves out CLDR's space between letters and digits: NOK 12, but €12.
        return re.sub(r"(?<=[^\W\d])(?=\d)|(?<=\d)(?=[^\W\d])", " ", text)

    def money_in_words(self, n: int, code: str) -> str:
        text = numbers.format_currency(
            n, code, "#,##0", locale=self.locale, format_type="name", currency_digits=False
        )
        return self.in_words(text, n)

    def spoken_money(self, whole: int, cents: int, code: str) -> str:
        amount = whole + cents / 100
        text = self.spoken(amount, "currency", currency=code)
        # Some languages of num2words know one currency and say it whatever they are asked for.
        if text == self.spoken(amount, "currency", currency="USD" if code == "EUR" else "EUR"):
            raise LookupError(f"num2words has no {code}")
        return text

    def unit(self, n: int, unit: str) -> str:
        return units.format_unit(n, unit, locale=self.locale)

    def rate(self, n: int, unit: str, per: str) -> str:
        text = units.format_compound_unit(n, unit, denominator_unit=per, locale=self.locale)
        if text is None or per in text:  # Babel puts the code where it has no name
            raise LookupError(f"no rate of {unit} per {per}")
        return text

    def relative(self, n: int, unit: str) -> str:
        """In n units; with a negative n, n units ago."""
        delta = datetime.timedelta(seconds=n * SECONDS[unit])
        return dates.format_timedelta(
            delta, granularity=unit, threshold=1e9, add_direction=True, locale=self.locale
        )

    # Dates and times

    def date(self, date: datetime.date, style: str) -> str:
        return dates.format_date(date, style, locale=self.locale)

    def skeleton(self, date: datetime.date, skeleton: str) -> str:
        if skeleton not in self.locale.datetime_skeletons:
            raise LookupError(f"no skeleton {skeleton}")
        return dates.format_skeleton(skeleton, date, fuzzy=False, locale=self.locale)

    def week(self, week: int, year: int) -> str:
        """A week of a year. Filled by hand: languages disagree on the number of a date's week."""
        fields = {"w": str(week), "Y": str(year)}
        pattern = self.locale.datetime_skeletons["yw"].pattern
        parts = dates.tokenize_pattern(pattern)
        return "".join(fields[value[0]] if kind == "field" else value for kind, value in parts)

    def time(self, time: datetime.time) -> str:
        return dates.format_time(time, "short", locale=self.locale)

    def interval(self, start: datetime.date, end: datetime.date, skeleton: str) -> str:
        if skeleton not in self.locale.interval_formats:
            raise LookupError(f"no interval {skeleton}")
        return dates.format_interval(start, end, skeleton, fuzzy=False, locale=self.locale)

    def time_interval(self, start: datetime.time, end: datetime.time) -> str:
        """An interval on the clock, of 12 or 24 hours, that the language's short time uses."""
        twelve = "a" in self.locale.time_formats["short"].format
        return self.interval(start, end, "hm" if twelve else "Hm")

    # Names

    def name(self, kind: str, code: str) -> str:
        """The name of an entity that stands alone; of a unit, three of it."""
        if kind == "territory":
            return self.locale.territories[code]
        if kind == "language":
            return self.locale.languages[code]
        if kind == "currency":
            return self.locale.currencies[code]
        if kind == "unit":
            return self.unit(3, code)
        if kind == "unit name":
            return self.locale.unit_display_names[code]["long"]
        if kind == "month":
            return self.locale.months["stand-alone"]["wide"][int(code)]
        if kind == "weekday":
            return self.locale.days["stand-alone"]["wide"][int(code)]
        if kind == "zone":
            names = self.locale.meta_zones[code]["long"]
            return names.get("generic") or names["standard"]
        if kind == "local time":
            return self.locale.zone_formats["region"] % self.locale.territories[code]
        if kind == "dialect":
            return Locale.parse(code).get_display_name(self.locale) or ""
        raise LookupError(f"no kind of name {kind}")

    # Glue

    def list(self, items: Sequence[str], style: str) -> str:
        return lists.format_list(items, style, locale=self.locale)

    def at(self, date: str, event: str) -> str:
        pattern = str(self.locale.datetime_formats["long"])
        return pattern.replace("'", "").format(event, date)

    def span(self, start: str, end: str) -> str:
        return self.locale.interval_formats[None].format(start, end)

    def aside(self, text: str, aside: str) -> str:
        return self.locale.zone_formats["fallback"] % {"0": aside, "1": text}
