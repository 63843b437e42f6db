"""Times: milliseconds since 1970 in the code and in stored data, RFC 3339 in UTC for callers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_RFC3339 = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last time that RFC 3339 can express."""
DAY_MS = 24 * 3600 * 1000


def rfc3339(ms: int) -> str:
    """Format milliseconds since 1970, such as ``1763683200123``, as ``2025-11-21T00:00:00.123Z``."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def milliseconds_of(text: str) -> int:
    """Parse a time of RFC 3339 into milliseconds since 1970; finer digits are cut off.

    Raises `ValueError` for any other text.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not a time of RFC 3339")
    day, clock, fraction, zone = match.groups()
    moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    return (moment - _EPOCH) // timedelta(milliseconds=1) + int((fraction or "0").ljust(3, "0")[:3])
