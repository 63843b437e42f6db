"""Finding again what a window has left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from turnlog.client.backend import SessionResource
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Message, Text, ToolResult
from turnlog.core.models import FormatName
from turnlog.core.recall_calls import (
    MAX_PLACES,
    RECALL_TOOL,
    SEARCH_TOOL,
    ArgumentsError,
    Option,
    RecallRequest,
    asked_for,
    tool_of,
)
from turnlog.core.refs import is_ref
from turnlog.providers.base import Turn
from turnlog.providers.registry import DEFAULT_FORMAT, codec_of
from turnlog.search.models import DEFAULT_RECALL_TOKENS, FoundInSessions, Recalled, SearchAnswer, SearchSessionsAnswer


class FindingCalls(SessionResource):
    """Recall, search, and both as tools of a model."""

    def recall(
        self,
        ref: str | None = None,
        *,
        call_id: str | None = None,
        pattern: str | None = None,
        from_line: int | None = None,
        to_line: int | None = None,
        pointer: str | None = None,
        max_tokens: int | None = None,
    ) -> Recalled:
        """A tool call and its result, or ``found`` false with a hint."""
        query = {
            "ref": ref,
            "call_id": call_id,
            "pattern": pattern,
            "from_line": from_line,
            "to_line": to_line,
            "pointer": pointer,
            "max_tokens": max_tokens,
        }
        answer: Recalled = self._backend.call("recall", path=self._path, query=query)
        return answer

    def search(
        self,
        q: str,
        *,
        limit: int | None = None,
        role: Literal["system", "user", "assistant", "tool"] | None = None,
        loop: int | None = None,
        tool: str | None = None,
        after: int | str | None = None,
        before: int | str | None = None,
    ) -> SearchAnswer:
        """Messages by the words of a question, best first; ``after`` and ``before`` are a position or a time each."""
        query = {
            "q": q,
            "limit": limit,
            "role": role,
            "loop": loop,
            "tool": tool,
            "after": after,
            "before": before,
        }
        answer: SearchAnswer = self._backend.call("search_session", path=self._path, query=query)
        return answer

    @staticmethod
    def handles(name: str) -> bool:
        """Whether a tool of that name is one of the two that windows have brought: `execute_tool` executes it."""

        return handles(name)

    def execute_tool(
        self,
        name: str,
        arguments: str | Mapping[str, Any] | None,
        *,
        call_id: str | None = None,
        format: FormatName | None = None,
    ) -> ToolAnswer:
        """Executes a call of `recall_tool_call` or `search_history` that a model made: takes what it sent, gives what to append.

            answer = session.execute_tool(name, arguments, call_id=call_id)
            session.append(answer.message, meta=[answer.meta])

        ``arguments`` are JSON text or a mapping, however the model wrote them. What is wrong with the call is said in the answer,
        so that the model can try again; so is another tool's name (``is_ours`` is false then: ask `handles` before). Raised is only
        what no model can mend: an engine or a service that does not answer. ``call_id`` is the call's; without one the result
        belongs to the newest open call. Nothing is written: the commit that appends the message tells the history of the recall.
        """

        return execute(self, name, arguments, call_id=call_id, format=format)


Arguments = str | Mapping[str, Any] | None
_SAYS_ERROR = ("anthropic", "bedrock_converse", "turnlog")
"""Formats that have a field for it. Of the others `ToolAnswer.meta` says it."""


@lazy_dataclass(frozen=True, slots=True)
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


def _recall(session: FindingCalls, asked: RecallRequest) -> tuple[str, tuple[str | int, ...]]:
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


def _search(session: FindingCalls, asked: RecallRequest) -> tuple[str, tuple[str | int, ...]]:
    given: dict[str, Any] = dict(asked.options)
    answer = session.search(**given)
    return found_text(answer), tuple(one.position for one in answer.results)
