"""Signature Version 4 as its page tells it, from the bytes of a request: it shares no code with what signs.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
import re
from urllib.parse import quote, unquote_to_bytes

from tests.client.service import Received

_CREDENTIAL = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)


class Signature:
    """What a request says of its signature."""

    def __init__(self, received: Received) -> None:
        match = _CREDENTIAL.fullmatch(received.text("authorization"))
        assert match, received.text("authorization")
        self.access_key, self.day, self.region, self.service, signed, self.given = match.groups()
        self.headers = signed.split(";")
        self._received = received

    def is_of(self, secret: str) -> bool:
        """Whether the secret signed just this request, as a server sees it."""
        canonical = "\n".join(
            [
                self._received.method,
                self._path(),
                self._query(),
                *(f"{name}:{re.sub(' +', ' ', self._received.text(name))}" for name in self.headers),
                "",
                ";".join(self.headers),
                hashlib.sha256(self._received.body).hexdigest(),
            ]
        )
        scope = f"{self.day}/{self.region}/{self.service}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = "\n".join(["AWS4-HMAC-SHA256", self._received.text("x-amz-date"), scope, digest])
        key = b"AWS4" + secret.encode()
        for part in (self.day, self.region, self.service, "aws4_request", to_sign):
            key = hmac.digest(key, part.encode(), "sha256")
        return key.hex() == self.given

    def _path(self) -> str:
        """Each segment encoded twice, from what it says and not from how it was sent."""
        path = self._received.target.split(b"?")[0]
        segments = [quote(unquote_to_bytes(segment), safe="~") for segment in path.split(b"/")]
        return "/".join(quote(segment, safe="~") for segment in segments)

    def _query(self) -> str:
        _, _, query = self._received.target.partition(b"?")
        pairs = [pair.partition(b"=")[::2] for pair in query.split(b"&") if pair]
        said = [(unquote_to_bytes(name), unquote_to_bytes(value)) for name, value in pairs]
        return "&".join(sorted(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in said))
