"""The values that a tool call needs, found without the windows' own extractor.

`turnlog.windows.ledger` finds values with one pattern over texts, so that digests keep them. This judge looks from the
other side, at the arguments of the call that came next, and shares no code with it:

- a text is cut at blanks, quotes, brackets and all that is not ASCII, then each token is judged by itself (no pattern);
- a relative path (``src/app.py``) is a path, a name before ``=`` or ``:`` is not part of an identifier, a key of JSON in a
  text is none;
- leaves have no limit of length, a single character included, and lines and numbers are taken as written;
- a value *stands* in a text when it is there verbatim or escaped as JSON, and does not continue on either side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_MIN_CHARS = 5
_SEPARATORS = "\"'`()[]{}<>,;|=:*&?!$%^\\"
_ENDS = ".#-_+~"
_TABLE = {ord(char): " " for char in _SEPARATORS}
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_DIGITS = frozenset("0123456789")


def leaves_of(arguments: Any) -> list[str]:
    """Return every string and number of a call's JSON arguments as written, each once; none when they are not JSON.

    true, false and null are no values: where they stand in a text says nothing.
    """
    return list(dict.fromkeys(leaf for leaf in _leaves(_parsed(arguments)) if leaf.strip()))


def identifiers_of(arguments: Any) -> list[str]:
    """Identifiers in the values of a call's arguments, each once; in the text itself when it is not JSON."""
    value = _parsed(arguments)
    texts = [arguments] if value is None and isinstance(arguments, str) else list(_leaves(value))
    return list(dict.fromkeys(token for text in texts for token in _identifiers(text)))


def stands(value: str, text: str) -> bool:
    """Return whether the value is in the text, verbatim or escaped as JSON, and not as a part of a longer word or number."""
    return any(_stands(form, text) for form in _forms(value))


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments, parse_int=str, parse_float=str)  # numbers as written
    except (ValueError, RecursionError):
        return None


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for member in value.values():
            yield from _leaves(member)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)


def _identifiers(text: str) -> Iterator[str]:
    text = _without_keys(text)
    ascii_only = "".join(char if char.isascii() else " " for char in text) if not text.isascii() else text
    for rough in ascii_only.translate(_TABLE).split():
        token = rough.rstrip(_ENDS).lstrip("#-_+")
        if len(token) >= _MIN_CHARS and (_is_email(token) or _is_path(token) or not _DIGITS.isdisjoint(token)):
            yield token


def _without_keys(text: str) -> str:
    """Return the text without what is in quotes before a colon."""
    pieces = text.split('"')
    following = [*pieces[1:], ""]
    return '"'.join(
        "" if next_piece.lstrip().startswith(":") and len(piece.split()) == 1 else piece
        for piece, next_piece in zip(pieces, following, strict=True)
    )


def _is_email(token: str) -> bool:
    name, _, domain = token.partition("@")
    return bool(name) and "." in domain.strip(".") and "@" not in domain


def _is_path(token: str) -> bool:
    if "/" not in token or not any(char.isalpha() for char in token):
        return False
    return token[0] in "/~." or token.count("/") > 1 or "." in token.rsplit("/", 1)[1]


def _forms(value: str) -> set[str]:
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}


def _stands(value: str, text: str) -> bool:
    at = text.find(value)
    while at >= 0:
        if _begins(value, text, at) and _ends(value, text, at + len(value)):
            return True
        at = text.find(value, at + 1)
    return False


def _begins(value: str, text: str, at: int) -> bool:
    if not at or value[0] not in _WORD or text[at - 1] not in _WORD:
        return at < 2 or not (value[0] in _DIGITS and text[at - 1] == "." and text[at - 2] in _DIGITS)
    # The letter of an escaped line break or tab is no part of a word.
    return at > 1 and text[at - 2] == "\\" and text[at - 1] in "nrt"


def _ends(value: str, text: str, end: int) -> bool:
    if end >= len(text) or value[-1] not in _WORD:
        return True
    if text[end] == "." and value[-1] in _DIGITS:
        return end + 1 >= len(text) or text[end + 1] not in _DIGITS
    return text[end] not in _WORD
