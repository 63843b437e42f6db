"""Executing the recall tools for a model: what it sent in, what to append out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnlog.codecs.base import Turn
from turnlog.codecs.registry import DEFAULT_FORMAT, codec_of
from turnlog.contracts.recall import (
    DEFAULT_RECALL_TOKENS,
    FoundInSessions,
    Recalled,
    SearchAnswer,
    SearchSessionsAnswer,
)
from turnlog.domain.errors import InvalidInputError, NotFoundError
from turnlog.domain.messages import Message, Text, ToolResult
from turnlog.domain.recall_calls import (
    MAX_PLACES,
    RECALL_TOOL,
    SEARCH_TOOL,
    ArgumentsError,
    Asked,
    Option,
    asked_for,
    tool_of,
)
from turnlog.domain.refs import is_ref
from turnlog.domain.values import dataclass

if TYPE_CHECKING:
    from turnlog.client.finding import FindingCalls

Arguments = str | Mapping[str, Any] | None
_SAYS_ERROR = ("anthropic", "bedrock_converse", "turnlog")
"""Formats that have a field for it. Of the others `ToolAnswer.meta` says it."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a recall tool answers: ``session.append(answer.message, meta=[answer.meta])``.

    ``is_ours`` is false for the name of another tool; then ``text`` says to the model that there is no such tool. ``is_error``: the
    call could not be understood. ``recalled`` is what was brought back: calls by their refs, messages by their positions.
    """

    text: str
    call_id: str
    format: str
    is_error: bool = False
    is_ours: bool = True
    recalled: tuple[str | int, ...] = ()

    @property
    def message(self) -> dict[str, Any]:
        """The result as a message of the format, whole: to be appended, and to be sent if no window is asked for."""
        is_error = self.is_error and self.format in _SAYS_ERROR
        result = ToolResult(self.call_id, (Text(self.text),), is_error=is_error)
        turn = Turn(Message("tool", tool_results=(result,)), result_ids=(self.call_id,))
        (body,) = codec_of(self.format).bodies(turn)
        return body

    @property
    def meta(self) -> dict[str, Any]:
        """What is kept beside the message, so that the history tells what was recalled."""
        found: dict[str, Any] = {"recalled": list(self.recalled)} if self.is_ours else {}
        return found | ({"is_error": True} if self.is_error and self.format not in _SAYS_ERROR else {})

    def __str__(self) -> str:
        return self.text


def handles(name: str) -> bool:
    """See `FindingCalls.handles`."""
    return tool_of(name) is not None


def execute(
    session: FindingCalls, name: str, arguments: Arguments, *, call_id: str | None = None, format: str | None = None
) -> ToolAnswer:
    """See `FindingCalls.execute_tool`."""
    codec, call_id = codec_of(format or DEFAULT_FORMAT), call_id or ""

    def wrong(text: str, *, is_ours: bool = True) -> ToolAnswer:
        return ToolAnswer(text, call_id, codec.format, is_error=True, is_ours=is_ours)

    tool = tool_of(name)
    if tool is None:
        said = f"There is no tool {name[:64]!r}. What was said before is found by {SEARCH_TOOL} and {RECALL_TOOL}."
        return wrong(said, is_ours=False)
    try:
        asked = asked_for(tool, arguments)
        text, recalled = _recall(session, asked) if tool == RECALL_TOOL else _search(session, asked)
    except ArgumentsError as error:
        return wrong(f"Not understood: {error}.")
    except InvalidInputError as error:
        return wrong(f"Not understood: {error.detail}")
    except NotFoundError as error:
        return wrong(f"Not found: {error.detail}")
    return ToolAnswer(text, call_id, codec.format, recalled=recalled)


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


def found_everywhere_text(answer: SearchSessionsAnswer) -> str:
    """Results one a line, with their sessions."""
    lines = [f"{one.session_id}, {_place(one)}: {one.snippet}" for one in answer.results]
    if not lines:
        lines.append("Nothing found. Other words may help.")
    if answer.unindexed:
        lines.append(
            f"(not all words are known yet of {answer.unindexed} of {answer.sessions} sessions: ask again later)"
        )
    return "\n".join(lines)


def _place(one: FoundInSessions) -> str:
    if one.where != "message":
        return one.where
    loop = f"loop {one.loop}, " if one.loop else ""
    return f"position {one.position}, {loop}{one.role}{f', call {one.ref}' if one.ref else ''}"


def _recall(session: FindingCalls, asked: Asked) -> tuple[str, tuple[str | int, ...]]:
    shown, options = asked.places[:MAX_PLACES], dict(asked.options)
    if len(shown) > 1:
        # Together no more than one alone.
        options["max_tokens"] = max(64, int(options.get("max_tokens", DEFAULT_RECALL_TOKENS)) // len(shown))
    answers = [_recalled(session, place, options) for place in shown]
    texts = [recalled_text(answer) for answer in answers]
    if len(asked.places) > len(shown):
        texts.append(f"(not shown: {', '.join(asked.places[MAX_PLACES:])}; ask again)")
    return "\n\n".join(texts), tuple(answer.ref for answer in answers if answer.found and answer.ref is not None)


def _recalled(session: FindingCalls, place: str, options: Mapping[str, Option]) -> Recalled:
    given: dict[str, Any] = dict(options)
    if is_ref(place):
        return session.recall(place, **given)
    found = session.recall(call_id=place, **given)
    if not found.found and place.isascii() and place.isdigit() and is_ref(f"{place}.0"):
        # A position alone, as of a result of a search.
        found = session.recall(f"{place}.0", **given)
    return found


def _search(session: FindingCalls, asked: Asked) -> tuple[str, tuple[str | int, ...]]:
    given: dict[str, Any] = dict(asked.options)
    answer = session.search(**given)
    return found_text(answer), tuple(one.position for one in answer.results)
