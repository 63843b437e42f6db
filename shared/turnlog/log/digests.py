"""Digests of stored lines, over which the chain hash is."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

REDACTED_LINE = b'{"rx":"'
"""What the line of a redacted event begins with, and no other. The digest of the line before follows, hexadecimal."""
_FROM, _TO = len(REDACTED_LINE), len(REDACTED_LINE) + 64


def line_digest(line: bytes) -> bytes:
    """SHA-256 of a line; of one that is redacted, of the line that it was."""
    if line[:_FROM] == REDACTED_LINE:
        with suppress(ValueError):  # then it is no line that we wrote
            return bytes.fromhex(line[_FROM:_TO].decode("ascii"))
    return sha256(line).digest()
