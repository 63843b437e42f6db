"""Recall and search: find messages again that a window left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from turnlog.client import SessionResource
from turnlog.core.calls import is_ref
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
    parse_recall_request,
    tool_of,
)
from turnlog.providers import Turn
from turnlog.providers.registry import DEFAULT_FORMAT, codec_of
from turnlog.search.models import DEFAULT_RECALL_TOKENS, FoundInSessions, Recalled, SearchAnswer, SearchSessionsAnswer


class FindingCalls(SessionResource):
    """Calls for recall and search, and both as tools of a model."""

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
        """Return a tool call and its result. When there is none, ``found`` is false and ``hint`` says what to try."""
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
        """Search messages by the words of a question, best match first. ``after`` and ``before`` are a position or a time."""
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
        """Return whether `execute_tool` executes the tool: `recall_tool_call` and `search_history`, which windows offer to the
        model.
        """

        return handles(name)

    def execute_tool(
        self,
        name: str,
        arguments: str | Mapping[str, Any] | None,
        *,
        call_id: str | None = None,
        format: FormatName | None = None,
    ) -> ToolAnswer:
        """Execute a model's call of `recall_tool_call` or `search_history`, and return the answer to append.

            answer = session.execute_tool(name, arguments, call_id=call_id)
            session.append(answer.message, meta=[answer.meta])

        ``arguments`` are JSON text or a mapping, as the model wrote them. An invalid call is answered with a text that says
        what is wrong, so that the model can try again. For the name of another tool, ``is_ours`` is false: check with `handles`
        before. Only errors that no model can fix are raised, such as an engine or a service that does not answer. ``call_id``
        is the id of the model's call; without it, the result belongs to the newest open call. Nothing is written: the commit
        that appends the message records the recall in the history.
        """

        return execute(self, name, arguments, call_id=call_id, format=format)


Arguments = str | Mapping[str, Any] | None
_ERROR_FORMATS = ("anthropic", "bedrock_converse", "turnlog")
"""Formats whose messages can mark an error. For the others `ToolAnswer.meta` marks it."""


@lazy_dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer of a recall tool: ``session.append(answer.message, meta=[answer.meta])``.

    ``is_ours`` is false for the name of another tool; ``text`` then tells the model that the tool does not exist. ``is_error``
    marks a call that could not be understood. ``recalled`` lists the results: calls by their refs, messages by their positions.
    """

    text: str
    call_id: str
    format: str
    is_error: bool = False
    is_ours: bool = True
    recalled: tuple[str | int, ...] = ()

    @property
    def message(self) -> dict[str, Any]:
        """The result as a message of the format, in full: append it, or send it when you do not build a window."""
        is_error = self.is_error and self.format in _ERROR_FORMATS
        result = ToolResult(self.call_id, (Text(self.text),), is_error=is_error)
        turn = Turn(Message("tool", tool_results=(result,)), result_ids=(self.call_id,))
        (body,) = codec_of(self.format).bodies(turn)
        return body

    @property
    def meta(self) -> dict[str, Any]:
        """Metadata to append with the message, which records in the history what was recalled."""
        fields: dict[str, Any] = {"recalled": list(self.recalled)} if self.is_ours else {}
        return fields | ({"is_error": True} if self.is_error and self.format not in _ERROR_FORMATS else {})

    def __str__(self) -> str:
        return self.text


def handles(name: str) -> bool:
    """Return whether a recall tool has this name. See `FindingCalls.handles`."""
    return tool_of(name) is not None


def execute(
    session: FindingCalls, name: str, arguments: Arguments, *, call_id: str | None = None, format: str | None = None
) -> ToolAnswer:
    """Execute a call of a recall tool. See `FindingCalls.execute_tool`."""
    codec, call_id = codec_of(format or DEFAULT_FORMAT), call_id or ""

    def wrong(text: str, *, is_ours: bool = True) -> ToolAnswer:
        return ToolAnswer(text, call_id, codec.format, is_error=True, is_ours=is_ours)

    tool = tool_of(name)
    if tool is None:
        message = f"There is no tool {name[:64]!r}. What was said before is found by {SEARCH_TOOL} and {RECALL_TOOL}."
        return wrong(message, is_ours=False)
    try:
        request = parse_recall_request(tool, arguments)
        text, recalled = _recall(session, request) if tool == RECALL_TOOL else _search(session, request)
    except ArgumentsError as error:
        return wrong(f"Not understood: {error}.")
    except InvalidInputError as error:
        return wrong(f"Not understood: {error.detail}")
    except NotFoundError as error:
        return wrong(f"Not found: {error.detail}")
    return ToolAnswer(text, call_id, codec.format, recalled=recalled)


def recalled_text(answer: Recalled) -> str:
    """Return a call and its result as text for a model; for a miss, the error and the hint."""
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


def search_text(answer: SearchAnswer) -> str:
    """Return search results as text for a model, a line each."""
    if not answer.results:
        return "Nothing found. Other words may help."
    return "\n".join(
        f"position {hit.position}, {'loop ' + str(hit.loop) + ', ' if hit.loop else ''}{hit.role}"
        f"{', call ' + hit.ref if hit.ref else ''}: {hit.snippet}"
        for hit in answer.results
    )


def sessions_search_text(answer: SearchSessionsAnswer) -> str:
    """Return search results of many sessions as text for a model, a line each, with their sessions."""
    lines = [f"{hit.session_id}, {_place(hit)}: {hit.snippet}" for hit in answer.results]
    if not lines:
        lines.append("Nothing found. Other words may help.")
    if answer.unindexed:
        lines.append(
            f"(not all words are known yet of {answer.unindexed} of {answer.sessions} sessions: ask again later)"
        )
    return "\n".join(lines)


def _place(hit: FoundInSessions) -> str:
    if hit.where != "message":
        return hit.where
    loop = f"loop {hit.loop}, " if hit.loop else ""
    return f"position {hit.position}, {loop}{hit.role}{f', call {hit.ref}' if hit.ref else ''}"


def _recall(session: FindingCalls, request: RecallRequest) -> tuple[str, tuple[str | int, ...]]:
    """Recall the requested places. Returns their text and the refs of the calls."""
    shown, options = request.places[:MAX_PLACES], dict(request.options)
    if len(shown) > 1:
        # Several places share the token limit of one.
        options["max_tokens"] = max(64, int(options.get("max_tokens", DEFAULT_RECALL_TOKENS)) // len(shown))
    answers = [_recalled(session, place, options) for place in shown]
    texts = [recalled_text(answer) for answer in answers]
    if len(request.places) > len(shown):
        texts.append(f"(not shown: {', '.join(request.places[MAX_PLACES:])}; ask again)")
    return "\n\n".join(texts), tuple(answer.ref for answer in answers if answer.found and answer.ref is not None)


def _recalled(session: FindingCalls, place: str, options: Mapping[str, Option]) -> Recalled:
    """Recall a place: a ref, a call id, or a position."""
    arguments: dict[str, Any] = dict(options)
    if is_ref(place):
        return session.recall(place, **arguments)
    answer = session.recall(call_id=place, **arguments)
    if not answer.found and place.isascii() and place.isdigit() and is_ref(f"{place}.0"):
        # A position without an index, as search results show it: its first call.
        answer = session.recall(f"{place}.0", **arguments)
    return answer


def _search(session: FindingCalls, request: RecallRequest) -> tuple[str, tuple[str | int, ...]]:
    """Search the session. Returns the results as text, and their positions."""
    options: dict[str, Any] = dict(request.options)
    answer = session.search(**options)
    return search_text(answer), tuple(hit.position for hit in answer.results)
