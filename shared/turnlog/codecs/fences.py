"""Fences: text that is told to the model as data, in the user role.

Content that holds our fence is escaped, so it can't close it. A model reads capitals and blanks in a mark as the same mark, so
these are escaped too; letters that only look alike are text.
"""

from __future__ import annotations

import re

_OPEN, _CLOSE = "<turnlog-data kind={kind!r}>", "</turnlog-data>"
_MARK = re.compile(r"<(?=\s*/?\s*(?i:turnlog-data))")
SYSTEM_KIND = "system message"


def fenced(kind: str, text: str) -> str:
    """The text as data of a kind."""
    return f"{_OPEN.format(kind=kind)}\n{escaped(text)}\n{_CLOSE}"


def escaped(text: str) -> str:
    """The text with every fence in it made harmless. Escaped twice is the same."""
    return _MARK.sub(r"<\\", text)
