"""How much fits through API Gateway and Lambda: what pages keep to everywhere, and requests and answers over S3.

Lambda hands over an event of at most 6,291,456 bytes, and takes an answer of at most 6,291,556. Both are JSON and hold the body as
a string: a quote, a backslash or a line break of the body takes two bytes there
(https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
"""

from __future__ import annotations

import json

MAX_EVENT_BYTES, MAX_RESPONSE_BYTES = 6_291_456, 6_291_556
_AROUND_BYTES = 64 * 1024
"""For what is beside a body: headers, of which API Gateway takes 10,240 bytes, claims, and the request's context."""
MAX_EVENT_BODY_BYTES = MAX_EVENT_BYTES - _AROUND_BYTES
MAX_ANSWER_BYTES = (MAX_RESPONSE_BYTES - _AROUND_BYTES) // 4 * 3
"""Bytes of JSON that fit into every answer, whatever they are: as base64 they take a third more."""
PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of JSON after which a page ends. One entry alone may have more."""
_MOST_FOR_A_BYTE = 6
"""U+007F is one byte of UTF-8, and ``\\u007f`` where all beyond printable ASCII is escaped; nothing takes more."""


def event_bytes(body: bytes) -> int:
    """Return the bytes of a request's body in the event of a function."""
    return len(body) + sum(map(body.count, (b'"', b"\\", b"\n", b"\r", b"\t")))


def fits_as_text(body: str, size_bytes: int) -> bool:
    """Return whether an answer's body fits into a function's response as it is. Counted as if all beyond ASCII were escaped."""
    most = MAX_RESPONSE_BYTES - _AROUND_BYTES
    return size_bytes * _MOST_FOR_A_BYTE <= most or (size_bytes <= most and len(json.dumps(body)) <= most)
