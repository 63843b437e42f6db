"""Executing the recall tools for a model: its arguments in, the text to give back to it out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnlog.contracts.recall import Recalled, SearchAnswer
from turnlog.domain.errors import InvalidInputError
from turnlog.domain.refs import is_ref
from turnlog.windows.recall import RECALL_TOOL, SEARCH_TOOL

if TYPE_CHECKING:
    from turnlog.client.finding import FindingCalls

_TEXTS = ("ref", "call_id", "pattern", "pointer", "q")
_NUMBERS = ("from_line", "to_line", "max_tokens", "limit")


def run(session: FindingCalls, name: str, arguments: str | Mapping[str, Any]) -> str:
    """See `Session.run_recall_tool`."""
    if name not in (RECALL_TOOL, SEARCH_TOOL):
        raise KeyError(name)
    try:
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments)
    except ValueError:
        return "The arguments are not JSON."
    if not isinstance(given, dict):
        return "The arguments are not a JSON object."
    fields = _fields(given)
    try:
        return _recall(session, fields) if name == RECALL_TOOL else _search(session, fields)
    except InvalidInputError as error:
        return f"Not understood: {error.detail}"


def recalled_text(answer: Recalled) -> str:
    """A call and its result as a model reads them; a miss in the words of the answer."""
    if not answer.found:
        newest = f" Newest calls: {', '.join(answer.newest_refs)}." if answer.newest_refs else ""
        return f"{answer.error}: {answer.ref} ({answer.hint}).{newest}"
    arguments = answer.arguments
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    lines = [f"{answer.ref} {answer.name} {shown}".rstrip()]
    if answer.content is not None:
        lines.append(
            f"{'error' if answer.is_error else 'result'}, {answer.lines} line{'' if answer.lines == 1 else 's'}:"
        )
    if answer.content:
        lines.append(answer.content)
    if answer.note:
        lines.append(f"({answer.note})")
    if answer.other_refs:
        lines.append(f"(other calls of this id: {', '.join(answer.other_refs)})")
    return "\n".join(lines)


def found_text(answer: SearchAnswer) -> str:
    """Results one a line."""
    if not answer.results:
        return "Nothing found. Other words may help."
    return "\n".join(
        f"position {one.position}, {'loop ' + str(one.loop) + ', ' if one.loop else ''}{one.role}"
        f"{', call ' + one.ref if one.ref else ''}: {one.snippet}"
        for one in answer.results
    )


def _recall(session: FindingCalls, fields: dict[str, Any]) -> str:
    place = str(fields.get("ref") or fields.get("call_id") or "").strip()
    if not place:
        return "Not understood: give the ref of a call, such as 12.0, or its call id."
    named: dict[str, Any] = {"ref": place} if is_ref(place) else {"call_id": place}
    part = {
        name: fields[name] for name in ("pattern", "from_line", "to_line", "pointer", "max_tokens") if name in fields
    }
    return recalled_text(session.recall(**named, **part))


def _search(session: FindingCalls, fields: dict[str, Any]) -> str:
    return found_text(session.search(fields.get("q", ""), limit=fields.get("limit")))


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the arguments. Numbers as text are numbers; what is null or of another type is left out."""
    found: dict[str, Any] = {}
    for name in _TEXTS:
        value = given.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and value:
            found[name] = value.encode("utf-8", "replace").decode("utf-8")
    for name in _NUMBERS:
        value = given.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:15])
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = value
    return found
