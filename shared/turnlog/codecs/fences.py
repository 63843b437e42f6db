"""Fences: text that is told to the model as data, in the user role.

Content that holds our fence is escaped, so it can't close it.
"""

from __future__ import annotations

_OPEN, _CLOSE = "<turnlog-data kind={kind!r}>", "</turnlog-data>"
SYSTEM_KIND = "system message"


def fenced(kind: str, text: str) -> str:
    """The text as data of a kind."""
    return f"{_OPEN.format(kind=kind)}\n{escaped(text)}\n{_CLOSE}"


def escaped(text: str) -> str:
    """The text with every fence in it made harmless."""
    return text.replace("<turnlog-data", "<\\turnlog-data").replace("</turnlog-data", "<\\/turnlog-data")
