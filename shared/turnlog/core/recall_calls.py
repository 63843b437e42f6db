"""A tolerant reader for a model's arguments to the recall tools.

Models send arguments as JSON text, as doubly encoded JSON, inside another object, under other names, with numbers as text, with
a ref as a number, or as a bare value. This module accepts each of these forms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any, TypeAlias

from turnlog.core.calls import is_ref
from turnlog.core.lazy_dataclass import lazy_dataclass

RECALL_TOOL, SEARCH_TOOL = "recall_tool_call", "search_history"
MAX_PLACES = 4
"""Greatest number of calls that an answer shows."""
_MAX_CHARS, _TEXT_CHARS = 100_000, 1_000
_WRAPPED = 5
_NOTHING = frozenset({"", "null", "none", "undefined"})
_BY_NAME = {"recalltoolcall": RECALL_TOOL, "searchhistory": SEARCH_TOOL}
_WRAPPERS = frozenset(
    {"arguments", "args", "input", "parameters", "params", "kwargs", "function", "toolinput", *_BY_NAME}
)
_FENCE = re.compile(r"```[a-z]*\s*(.*?)\s*```", re.S)
_REF = re.compile(
    r"(?:(?:ref|call)\b)?[\s:=#]*[\[(<`'\"]*([1-9][0-9]{0,11}\.(?:0|[1-9][0-9]{0,5}))(?:[\])>`'\":;].*|\s.*)?",
    re.I | re.S,
)
MADE_ID = re.compile(r"call_([1-9][0-9]{0,11})_(0|[1-9][0-9]{0,5})")
_RANGE = re.compile(r"\s*([0-9]{1,9})\s*(?:-|–|:|\.\.|,|to)\s*([0-9]{1,9})\s*")


def _named(names: Mapping[str, str]) -> Mapping[str, str]:
    return {alias: field for field, aliases in names.items() for alias in aliases.split()}


_RECALL_FIELDS = _named(
    {
        "place": "ref refs reference refid callid callids toolcallid tooluseid id call",
        "pattern": "pattern regex regexp grep",
        "pointer": "pointer jsonpointer",
        "from_line": "fromline startline linestart linefrom start",
        "to_line": "toline endline lineend lineto end",
        "lines": "lines linerange range",
        "max_tokens": "maxtokens tokens",
    }
)
_SEARCH_FIELDS = _named(
    {
        "q": "q query queries question text words keywords terms term search searchquery",
        "limit": "limit topk k n maxresults numresults count",
        "role": "role",
        "loop": "loop",
        "tool": "tool toolname",
        "after": "after",
        "before": "before",
    }
)
_FIELDS = {RECALL_TOOL: _RECALL_FIELDS, SEARCH_TOOL: _SEARCH_FIELDS}
_MAIN = {RECALL_TOOL: "place", SEARCH_TOOL: "q"}
_NUMBERS = {
    "from_line": (1, 10**9),
    "to_line": (1, 10**9),
    "max_tokens": (64, 100_000),
    "limit": (1, 50),
    "loop": (1, 10**9),
}
_TEXTS = ("tool", "after", "before", "pattern", "pointer")
_ROLES = ("system", "user", "assistant", "tool")
Option: TypeAlias = str | int


class ArgumentsError(ValueError):
    """Arguments without a clear request. The text of the error is shown to the model."""


@lazy_dataclass(frozen=True, slots=True)
class RecallRequest:
    """A call of a recall tool.

    ``places`` are refs or call ids as the model wrote them; ``options`` are the other arguments under their API names.
    """

    places: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)


def tool_of(name: str) -> str | None:
    """Return the recall tool that a name means, or None.

    Accepts variants such as ``functions.recall_tool_call`` and ``recallToolCall``.
    """
    return _BY_NAME.get(_plain(re.split(r"[.:/]", name.strip())[-1]))


def ref_of(place: str) -> str | None:
    """Return the ref in a place that is a ref or an id made from one; None for another call id."""
    made = MADE_ID.fullmatch(place)
    return place if is_ref(place) else f"{made[1]}.{made[2]}" if made is not None else None


def parse_recall_request(tool: str, arguments: str | Mapping[str, Any] | None) -> RecallRequest:
    """Return the request in a model's arguments for a tool. Raises `ArgumentsError` when it is not clear."""
    fields = _fields(tool, arguments)
    options = _options(fields)
    if tool == SEARCH_TOOL:
        words = _texts(fields.get("q"), nothing=("",))  # a search for "undefined" means the word
        if not words:
            raise ArgumentsError("give q, the words to look for")
        return RecallRequest((), {"q": " ".join(words)[:_TEXT_CHARS], **options})
    span = _RANGE.fullmatch("-".join(_texts(fields.get("lines"))))
    if span is not None:
        options = {"from_line": max(1, int(span[1])), "to_line": max(1, int(span[2])), **options}
    places = tuple(dict.fromkeys(_places(fields.get("place"))))
    if not places:
        raise ArgumentsError("give the ref of a call, such as 12.0, or its call id")
    return RecallRequest(places, options)


def _options(fields: Mapping[str, Any]) -> dict[str, Option]:
    """Return the options that are there, with numbers brought into their bounds."""
    options = dict[str, Option]()
    for name, (low, high) in _NUMBERS.items():
        if (number := _number(fields.get(name))) is not None:
            options[name] = min(max(number, low), high)
    for name in _TEXTS:
        if (text := _text(fields.get(name))) is not None:
            options[name] = int(text) if name in ("after", "before") and text.isascii() and text.isdigit() else text
    role = (_text(fields.get("role")) or "").lower()
    return options | ({"role": role} if role in _ROLES else {})


# ------------------------------------------------------------ places


def _places(value: Any) -> Iterable[str]:
    for text in _texts(value):
        parts = re.split(r"[\s,;]+", text.strip("[]() "))
        refs = [_place(part) for part in parts if part]
        if len(refs) > 1 and all(map(is_ref, refs)):
            yield from refs
        else:
            yield _place(text)


def _place(text: str) -> str:
    match = _REF.fullmatch(text.strip())
    return match[1] if match is not None else text.strip()


# ------------------------------------------------------------ taking apart


def _fields(tool: str, arguments: Any) -> dict[str, Any]:
    """Return the arguments under their API names, without null values and unknown names."""
    known, main, value = _FIELDS[tool], _MAIN[tool], arguments
    for _ in range(_WRAPPED):
        if isinstance(value, str):
            inner = _loaded(value)
            if inner is None:
                return {main: value} if _text(value) is not None else {}
            value = inner[0]
            if isinstance(value, str) and not value.lstrip().startswith(("{", "[")):
                return {main: value} if _text(value) is not None else {}
        elif isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        elif isinstance(value, Mapping):
            named = {_plain(str(name)): item for name, item in value.items() if item is not None}
            fields = {known[name]: named[name] for name in reversed(named) if name in known}
            wrapper = next((name for name in named if name in _WRAPPERS), None)
            if fields or wrapper is None:
                return fields
            # {"name": …, "arguments": …}, and a function's own object around these.
            value = named.get("arguments", named[wrapper]) if wrapper != "function" else named[wrapper]
        else:
            return {main: value} if value is not None else {}
    return {}


def _loaded(text: str) -> tuple[Any] | None:
    """Return the value of a JSON text in a 1-tuple, also of nearly valid JSON; None for plain words.

    Raises `ArgumentsError` for a broken object or list.
    """
    text = text.strip()[:_MAX_CHARS]
    fenced = _FENCE.fullmatch(text)
    text = fenced[1] if fenced is not None else text
    if text in _NOTHING:
        return (None,)
    with suppress(ValueError, RecursionError):
        return (_DECODER.decode(text),)
    if text[:1] not in ("{", "[", '"', "'"):
        return None
    import ast  # imported here because it is slow and rarely needed

    readers: tuple[Callable[[str], Any], ...] = (lambda data: _DECODER.raw_decode(data)[0], ast.literal_eval)
    for read in readers:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return (read(text),)
    if text[:1] in ("{", "["):
        raise ArgumentsError("the arguments are not JSON")
    return None


_DECODER = json.JSONDecoder(parse_float=str, strict=False)
"""Decoder that keeps fractions as text, because 12.10 is a ref."""


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _texts(value: Any, nothing: Collection[str] = _NOTHING) -> list[str]:
    """Return the texts of a value: those of a list's items, or its own."""
    items = value if isinstance(value, list | tuple) else (value,)
    return [text for item in items if (text := _text(item, nothing)) is not None]


def _text(value: Any, nothing: Collection[str] = _NOTHING) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or value.strip().lower() in nothing:
        return None
    return value[:_TEXT_CHARS].encode("utf-8", "replace").decode("utf-8")


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float | int):
        value = f"{value:.0f}" if abs(value) < 10**15 else ""
    match = re.fullmatch(r"\s*([+-]?[0-9]{1,15})(?:\.0*)?\s*", value, re.A) if isinstance(value, str) else None
    return int(match[1]) if match is not None else None
