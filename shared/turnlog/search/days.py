"""Days that a text names, written as an index writes the day of a message: ``8 May 2023``.

"Yesterday" and "three weeks ago" are resolved against the day on which they were said; ``2023-05-08`` and ``5月8日`` are other
notations of a day. English and Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from typing import TypeAlias

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = ("spring", "summer", "autumn", "fall", "winter")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNTS = {"a": 1, "an": 1, "couple": 2, "couple of": 2, "few": 3}
_COUNTS |= {word: count for count, word in enumerate(_NUMBERS)}
_NEAR_DAYS = {
    "day before yesterday": -2, "yesterday": -1, "last night": -1, "today": 0, "tomorrow": 1,
    "前天": -2, "昨天": -1, "昨晚": -1, "今天": 0, "明天": 1, "后天": 2,
}  # fmt: skip
_NEAR_MONTHS = {"上个月": -1, "上月": -1, "这个月": 0, "下个月": 1, "下月": 1}
_NEAR_YEARS = {"前年": -2, "去年": -1, "今年": 0, "明年": 1}
_SIGNS = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}
MAX_COUNT = 1_000
"""The largest number of days, weeks, months or years that is resolved."""


def written_day(day: date) -> str:
    """Return a day as people write it: ``8 May 2023``."""
    return f"{day.day} {_written_month(day)}"


def may_be_of_day(term: str) -> bool:
    """Return whether a word, or its stem, may stand in a day, a month or a year as they are written here."""
    is_of_month = len(term) > 2 and any(month.lower().startswith(term[:-1]) for month in _MONTHS)
    return is_of_month or term == "mai" or term.isdigit()


def named_days(text: str, said_on: date) -> list[str]:
    """Return the days, months and years that a text in lower case names, each once; for a week the month that it lies in."""
    days = dict[str, None]()
    for hints, pattern, resolve in _ASCII_RULES if text.isascii() else _RULES:
        if any(map(text.__contains__, hints)):
            for match in pattern.finditer(text):
                days |= dict.fromkeys(_resolved(resolve, match, said_on))
    return list(days)


def with_days(text: str, said_on: date) -> str:
    """Return a question in lower case, but for names such as `getUserById`, with each day that it names written as in an index."""
    text = _PLAIN_WORD.sub(lambda match: match[0].lower(), text)
    text = _SHORT_MONTH.sub(lambda match: f"{match[0]} {_LONG_MONTHS[match[0]]}", text)
    for _, pattern, resolve in _RULES:
        text = pattern.sub(
            lambda match, rule=resolve: f" {' '.join(_resolved(rule, match, said_on)) or match[0]} ",  # type: ignore[misc]
            text,
        )
    return text


def _resolved(resolve: _Rule, match: re.Match[str], said_on: date) -> list[str]:
    try:
        return list(resolve(match, said_on))
    except (ValueError, OverflowError):
        return []  # No such day: 2023-02-30, or a year before the first.


def _near(match: re.Match[str], said_on: date) -> Iterator[str]:
    """Resolve "yesterday", ``上个月``, ``明年``."""
    for unit, counts in (("day", _NEAR_DAYS), ("month", _NEAR_MONTHS), ("year", _NEAR_YEARS)):
        if match[0] in counts:
            yield _moved(said_on, counts[match[0]], unit)


def _ago(match: re.Match[str], said_on: date) -> Iterator[str]:
    """Resolve "three weeks ago"."""
    words = match["count"]
    count = _COUNTS[words] if words in _COUNTS else int(words)
    if count <= MAX_COUNT:
        yield _moved(said_on, -count, match["unit"])


def _last_or_next(match: re.Match[str], said_on: date) -> Iterator[str]:
    """Resolve "last Tuesday", "next month", "this summer"."""
    sign, unit = _SIGNS[match["sign"]], match["unit"]
    if unit in _WEEKDAYS:
        ahead = (_WEEKDAYS.index(unit) - said_on.weekday()) % 7
        yield written_day(said_on + timedelta(days=ahead - 7 if sign < 0 else ahead or 7 * sign))
    elif unit.capitalize() in _MONTHS:
        month = _MONTHS.index(unit.capitalize()) + 1
        is_other_year = month >= said_on.month if sign < 0 else month <= said_on.month
        yield f"{unit.capitalize()} {said_on.year + (sign if is_other_year else 0)}"
    elif unit == "weekend":
        saturday = said_on + timedelta(days=5 - said_on.weekday() + 7 * sign)
        yield from (written_day(saturday), written_day(saturday + timedelta(days=1)))
    else:
        yield _moved(said_on, sign, unit)


def _numbers(match: re.Match[str], _said_on: date) -> Iterator[str]:
    """Resolve ``2023-05-08``, ``2023/5/8`` and ``2023年5月8日``."""
    yield written_day(date(int(match["year"]), int(match["month"]), int(match["day"])))


def _month_and_day(match: re.Match[str], _said_on: date) -> Iterator[str]:
    """Resolve ``5月8日`` and ``5月``."""
    month = _MONTHS[int(match["month"]) - 1] if 1 <= int(match["month"]) <= len(_MONTHS) else ""
    if month:
        yield f"{match['day']} {month}" if match["day"] else month


def _moved(day: date, count: int, unit: str) -> str:
    """Return the day, month or year that is ``count`` units after a day; for weeks the month."""
    if unit == "day":
        return written_day(day + timedelta(days=count))
    if unit in ("week", "weekend"):
        return _written_month(day + timedelta(weeks=count))
    if unit == "month":
        year, month = divmod(day.year * 12 + day.month - 1 + count, 12)
        return _written_month(date(year, month + 1, 1))
    return str(day.year + count)


def _written_month(day: date) -> str:
    return f"{_MONTHS[day.month - 1]} {day.year}"


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_Rule: TypeAlias = Callable[[re.Match[str], date], Iterator[str]]
_LATIN_DAYS = [name for name in _NEAR_DAYS if name.isascii()]
_HAN_DAYS = [name for name in _NEAR_DAYS if not name.isascii()]
_UNITS = _any_of([*_WEEKDAYS, *map(str.lower, _MONTHS), *_SEASONS, "week", "weekend", "month", "year"])
_YEARS = ("19", "20")
_LONG_MONTHS = {month[:3].lower(): month for month in _MONTHS if month != "May"} | {"sept": "September"}
_PLAIN_WORD = re.compile(r"\b(?:[A-Z][a-z]*|[A-Z]+)\b")
_SHORT_MONTH = re.compile(rf"\b(?:{_any_of(_LONG_MONTHS)})\b(?=\.? ?[0-9])|(?<=[0-9] )(?:{_any_of(_LONG_MONTHS)})\b")
"""A month in short, beside a number: ``feb 17``, ``17 feb``. Alone it may be a name."""
_NAMED = ("yesterday", "last night", "today", "tomorrow", *_HAN_DAYS)
_SIGNED = (*(f"{sign} " for sign in _SIGNS if sign != "this"), "this week", "this month", "this year")
_NUMERIC = r"(?<![0-9])(?P<year>[0-9]{4})[-/](?P<month>[0-9]{1,2})[-/](?P<day>[0-9]{1,2})(?![0-9])"
_PATTERNS: tuple[tuple[tuple[str, ...], str, _Rule], ...] = (
    (_NAMED, rf"\b(?:{_any_of(_LATIN_DAYS)})\b|{_any_of(_HAN_DAYS)}", _near),
    (tuple(_NEAR_MONTHS), _any_of(_NEAR_MONTHS), _near),
    (tuple(_NEAR_YEARS), _any_of(_NEAR_YEARS), _near),
    ((" ago",), rf"\b(?P<count>{_any_of(_COUNTS)}|[0-9]{{1,4}}) (?P<unit>day|weekend|week|month|year)s? ago\b", _ago),
    (_SIGNED, rf"\b(?P<sign>{_any_of(_SIGNS)}) (?P<unit>{_UNITS})\b", _last_or_next),
    (_YEARS, _NUMERIC, _numbers),
    (("年",), r"(?P<year>[0-9]{4})年(?P<month>[0-9]{1,2})月(?P<day>[0-9]{1,2})[日号]", _numbers),
    (("月",), r"(?P<month>[0-9]{1,2})月(?:(?P<day>[0-9]{1,2})[日号])?", _month_and_day),
)
_RULES = [(hints, re.compile(pattern), rule) for hints, pattern, rule in _PATTERNS]
"""Rules, each with hints: a text with none of a rule's hints can't match it, and looking for them is much cheaper."""
_ASCII_RULES = [(tuple(filter(str.isascii, hints)), pattern, rule) for hints, pattern, rule in _RULES]
