"""Recall and search: find messages again that a window left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from turnlog.client import SessionResource
from turnlog.core.calls import is_ref
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.json_values import JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Block, Media, Message, Text, ToolResult
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
from turnlog.providers.turnlog_format import media_of
from turnlog.search.models import (
    DEFAULT_RECALL_TOKENS,
    FoundInSessions,
    Recalled,
    SearchAnswer,
    SearchResult,
    SearchSessionsAnswer,
)


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
        """Return a tool call and its result, up to ``max_tokens`` (2000), with its images and files as ``media``.

        ``ref`` is ``<position>.<index>``, as appends and windows name a call; or the position of a message: its first call, or what
        it says when it has none. ``call_id`` is the provider's id instead. Of the result, ``pattern`` (a regular expression),
        ``from_line`` and ``to_line`` (from 1) select lines, ``pointer`` (a JSON pointer) a part. When nothing is found,
        ``found`` is false and ``hint`` says what to try.
        """
        query = {
            "ref": ref,
            "call_id": call_id,
            "pattern": pattern,
            "from_line": from_line,
            "to_line": to_line,
            "pointer": pointer,
            "max_tokens": max_tokens,
        }
        return self._call(Recalled, "recall", query=query)

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
        """Search messages by the words of a question, best match first.

        ``loop``, ``role`` and ``tool`` (its calls and their results) select messages, ``after`` and ``before`` by position or time.
        """
        query = {"q": q, "limit": limit, "role": role, "loop": loop, "tool": tool, "after": after, "before": before}
        return self._call(SearchAnswer, "search_session", query=query)

    @staticmethod
    def handles(name: str) -> bool:
        """Return whether `execute_tool` executes the tool: `recall_tool_call` or `search_history`, which windows offer."""
        return tool_of(name) is not None

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
        codec, call_id = codec_of(format or DEFAULT_FORMAT), call_id or ""

        def wrong(text: str, *, is_ours: bool = True) -> ToolAnswer:
            return ToolAnswer(text, call_id, codec.format, is_error=True, is_ours=is_ours)

        tool = tool_of(name)
        if tool is None:
            hint = f"What was said before is found by {SEARCH_TOOL} and {RECALL_TOOL}."
            return wrong(f"There is no tool {name[:64]!r}. {hint}", is_ours=False)
        try:
            request = parse_recall_request(tool, arguments)
            text, recalled, media = _recall(self, request) if tool == RECALL_TOOL else _search(self, request)
        except ArgumentsError as error:
            return wrong(f"Not understood: {error}.")
        except InvalidInputError as error:
            return wrong(f"Not understood: {error.detail}")
        except NotFoundError as error:
            return wrong(f"Not found: {error.detail}")
        return ToolAnswer(text, call_id, codec.format, recalled=recalled, media=media)


MAX_MEDIA_CHARS = 4_000_000
"""The most base64 in one answer, so that a message of it can be appended."""
_ERROR_FORMATS = ("anthropic", "bedrock_converse", "turnlog")
"""Formats whose messages can mark an error. For the others `ToolAnswer.meta` marks it."""


@lazy_dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer of a recall tool: ``session.append(answer.message, meta=[answer.meta])``.

    ``is_ours`` is false for the name of another tool; ``text`` then tells the model that the tool does not exist. ``is_error``
    marks a call that could not be understood. ``recalled`` lists the results: calls by their refs, messages by their positions.
    ``media`` are the images, files and sounds that were brought back, at most `MAX_MEDIA_CHARS` of base64.
    """

    text: str
    call_id: str
    format: str
    is_error: bool = False
    is_ours: bool = True
    recalled: tuple[str | int, ...] = ()
    media: tuple[Media, ...] = ()

    @property
    def message(self) -> dict[str, Any]:
        """The result as a message of the format, in full: append it, or send it when you do not build a window.

        OpenAI Chat takes no media in results: windows send them behind it, in a message of the user.
        """
        return self._message_and_meta[0]

    @property
    def meta(self) -> dict[str, Any]:
        """Metadata to append with the message, which records in the history what was recalled."""
        return self._message_and_meta[1] | ({"recalled": list(self.recalled)} if self.is_ours else {})

    @property
    def _message_and_meta(self) -> tuple[dict[str, Any], dict[str, Any]]:
        content: tuple[Block, ...] = (Text(self.text), *self.media)
        return result_message(ToolResult(self.call_id, content, is_error=self.is_error), self.format)

    def __str__(self) -> str:
        return self.text


def result_message(result: ToolResult, format: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a result as a message of a format, with the metadata that marks a failure where the format has no place for it."""
    has_error_field = format in _ERROR_FORMATS
    sent = replace(result, is_error=result.is_error and has_error_field)
    (body,) = codec_of(format).bodies(Turn.with_own_ids(Message("tool", tool_results=(sent,))))
    return body, {"is_error": True} if result.is_error and not has_error_field else {}


def recall_place(session: FindingCalls, place: str, options: Mapping[str, Option | None] | None = None) -> Recalled:
    """Recall a place: a ref, a call id, or the position of a message, as search results show it."""
    arguments: dict[str, Any] = dict(options or {})
    if is_ref(place):
        return session.recall(place, **arguments)
    answer = session.recall(call_id=place, **arguments)
    return session.recall(place, **arguments) if not answer.found and is_ref(f"{place}.0") else answer


def recalled_text(answer: Recalled) -> str:
    """Return a call and its result, or a message, as text for a model; for a miss, the error and the hint."""
    if not answer.found:
        newest = f" Newest calls: {', '.join(answer.newest_refs)}." if answer.newest_refs else ""
        return f"{answer.error}: {answer.ref} ({answer.hint}).{newest}"
    arguments = answer.arguments
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    is_call = answer.name is not None
    lines = [f"{answer.ref} {answer.name} {shown}".rstrip() if is_call else f"message {answer.ref}:"]
    if answer.content is not None and is_call:
        lines.append(
            f"{'error' if answer.is_error else 'result'}, {answer.lines} line{'' if answer.lines == 1 else 's'}:"
        )
    if answer.content:
        lines.append(answer.content)
    if answer.note:
        lines.append(f"({answer.note})")
    if answer.other_refs:
        lines.append(f"(other calls: {', '.join(answer.other_refs)})")
    return "\n".join(lines)


_NOTHING_FOUND = "Nothing found. Other words may help."


def search_text(answer: SearchAnswer) -> str:
    """Return search results as text for a model, a line each."""
    return "\n".join(f"{_place(hit)}: {hit.snippet}" for hit in answer.results) or _NOTHING_FOUND


def sessions_search_text(answer: SearchSessionsAnswer) -> str:
    """Return search results of many sessions as text for a model, a line each, with their sessions."""
    lines = [f"{hit.session_id}, {_place(hit)}: {hit.snippet}" for hit in answer.results] or [_NOTHING_FOUND]
    if answer.unindexed:
        lines.append(
            f"(not all words are known yet of {answer.unindexed} of {answer.sessions} sessions: ask again later)"
        )
    return "\n".join(lines)


def _place(hit: SearchResult | FoundInSessions) -> str:
    if isinstance(hit, FoundInSessions) and hit.where != "message":
        return hit.where
    loop = f"loop {hit.loop}, " if hit.loop else ""
    return f"position {hit.position}, {loop}{hit.role}{f', call {hit.ref}' if hit.ref else ''}"


_Finding: TypeAlias = tuple[str, tuple[str | int, ...], tuple[Media, ...]]
"""An answer of a recall tool: a text, refs of calls and positions of messages, and media."""


def _recall(session: FindingCalls, request: RecallRequest) -> _Finding:
    """Recall the requested places. Media that are too many for one message are named."""
    shown, options = request.places[:MAX_PLACES], dict(request.options)
    if len(shown) > 1:
        # Several places share the token limit of one.
        options["max_tokens"] = max(64, int(options.get("max_tokens", DEFAULT_RECALL_TOKENS)) // len(shown))
    answers = [recall_place(session, place, options) for place in shown]
    texts, media, room = list[str](), list[Media](), MAX_MEDIA_CHARS
    for answer in answers:
        texts.append(recalled_text(answer))
        for block in media_of(cast("JsonValue", answer.media)):
            room -= len(block.data or "")
            if room < 0:
                texts.append(f"({block.kind} of {answer.ref} not shown: too many bytes for one answer)")
            else:
                media.append(block)
    if len(request.places) > len(shown):
        texts.append(f"(not shown: {', '.join(request.places[MAX_PLACES:])}; ask again)")
    refs = [answer.ref for answer in answers if answer.found and answer.ref is not None]
    return "\n\n".join(texts), tuple(ref if is_ref(ref) else int(ref) for ref in refs), tuple(media)


def _search(session: FindingCalls, request: RecallRequest) -> _Finding:
    """Search the session. The results are a text and positions."""
    options: dict[str, Any] = dict(request.options)
    answer = session.search(**options)
    return search_text(answer), tuple(hit.position for hit in answer.results), ()
