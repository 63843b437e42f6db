"""Page cursors: opaque, signed, bound to their caller and filter."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping

from turnlog.domain.errors import MalformedError

_SIGNATURE_BYTES = 16


class Cursors:
    """Writes and reads cursors with one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def write(self, place: Mapping[str, str], *, scope: str) -> str:
        """A cursor for a place, good for requests of the same scope only."""
        content = json.dumps(dict(place), separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._sign(content, scope) + content).decode("ascii").rstrip("=")

    def read(self, cursor: str, *, scope: str) -> dict[str, str]:
        """The place of a cursor, or `MalformedError` when it is damaged, invented, or another caller's."""
        try:
            data = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except (binascii.Error, UnicodeEncodeError, ValueError) as error:
            raise MalformedError("the cursor is not one of ours", code="bad_cursor") from error
        signature, content = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._sign(content, scope)):
            raise MalformedError("the cursor is not one of ours for this request", code="bad_cursor")
        place: dict[str, str] = json.loads(content)
        return place

    def _sign(self, content: bytes, scope: str) -> bytes:
        return hmac.new(self._secret, scope.encode() + b"\0" + content, hashlib.sha256).digest()[:_SIGNATURE_BYTES]
