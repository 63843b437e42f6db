"""Times: milliseconds since 1970 in the code and in stored data, RFC 3339 in UTC for callers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_RFC3339 = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last time that RFC 3339 can express."""
_FIRST_MS = -62_135_596_800_000
"""0001-01-01T00:00:00Z, the first time that RFC 3339 can express in Python."""
MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
MINUTES_A_DAY = 24 * 60
DAY_MS = MINUTES_A_DAY * MINUTE_MS


def rfc3339(ms: int) -> str:
    """Format milliseconds since 1970, such as ``1763683200123``, as ``2025-11-21T00:00:00.123Z``."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def milliseconds_of(text: str) -> int:
    """Parse a time of RFC 3339 into milliseconds since 1970; finer digits are cut off.

    Raises `ValueError` for any other text.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not a time of RFC 3339")
    day, clock, fraction, zone = match.groups()
    moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    ms = (moment - _EPOCH) // timedelta(milliseconds=1) + int((fraction or "0").ljust(3, "0")[:3])
    if not _FIRST_MS <= ms <= LAST_MS:
        raise ValueError("no time of a year from 1 to 9999 in UTC")
    return ms


def read_time(text: str) -> datetime | None:
    """Return the time that a text gives in RFC 3339, also a date alone or a time without a zone (UTC); None for no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def caller_time(text: str | None, default_ms: int) -> datetime:
    """Return the time that a caller gave a message, or the default where the text is no time."""
    moment = read_time(text) if text else None
    return moment if moment is not None else _EPOCH + timedelta(milliseconds=default_ms)


def milliseconds_since_epoch(moment: datetime) -> int:
    """Return milliseconds since 1970, in the range that `rfc3339` can format."""
    since = moment - _EPOCH  # to divide it is slow
    return min(max(since.days * DAY_MS + since.seconds * 1000 + since.microseconds // 1000, _FIRST_MS), LAST_MS)
