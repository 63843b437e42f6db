"""Parse the messages of a request, count their tokens, and collect what the log stores about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from turnlog.core.calls import MessageOutline, OpenCalls, Ref, call_hash, outline_of, pair
from turnlog.core.errors import CorruptError, InvalidInputError, TooLargeError
from turnlog.core.events import HEAD_TOKEN_CHARS, NO_ENVELOPE, Envelope, MessageEvent, Notes, Recall
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.loops import Arrival, Disorder
from turnlog.core.messages import Message, Text
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL, ArgumentsError, parse_recall_request, ref_of
from turnlog.core.times import read_time
from turnlog.log.commit import events_of, read_commit
from turnlog.log.commits import Tail
from turnlog.log.headers import Header, Sent
from turnlog.ports import TokenCounter
from turnlog.providers import Codec
from turnlog.providers.blocks import ROLES, invalid_message
from turnlog.providers.registry import CODECS, codec_of, is_plain_text, recognise
from turnlog.providers.token_rules import Calibration, count_head, count_message, ratio_of
from turnlog.providers.unknown_content import unknown_content
from turnlog.sessions.message_models import MAX_APPEND_BYTES, AppendMessages, Meta, ParentCall

MAX_CALLS = 10_000
"""Tool calls and results together that one request may have, and that a window considers."""


@lazy_dataclass(frozen=True, slots=True)
class Incoming:
    """A message of a request, parsed and counted.

    ``head_tokens`` counts the first `HEAD_TOKEN_CHARS` characters of its text; None when the text is not longer.
    ``unknown`` is the content that no rule of the format knows.
    """

    body: JsonObject
    envelope: Envelope
    codec: Codec
    message: Message
    facts: MessageOutline
    tokens: int
    head_tokens: int | None
    unknown: Mapping[str, str]
    recalled: tuple[str | int, ...] | None = None
    """Refs and positions that a recall has brought back, as the caller reports them."""
    encoded: bytes | None = None
    """The body as JSON, where its size was checked."""


def understand(
    body: dict[str, Any],
    index: int,
    counter: TokenCounter,
    *,
    codec: Codec | None = None,
    envelope: Envelope = NO_ENVELOPE,
    recalled: Sequence[str | int] | None = None,
    encoded: bytes | None = None,
) -> Incoming:
    """Parse and count the message at ``index`` of a request. `InvalidInputError` with a pointer when it is not a message."""
    content = cast("JsonObject", body)
    codec = codec if codec is not None else recognise(content)
    try:
        message = codec.parse(content, is_error=envelope.is_error)
    except InvalidInputError as error:
        problems = [replace(problem, pointer=f"/messages/{index}{problem.pointer}") for problem in error.problems]
        raise InvalidInputError(error.detail, code=error.error_code, problems=problems) from error
    if recalled is not None and not message.tool_results:
        text = "recalled is for a message with a tool's result"
        raise InvalidInputError.at(f"/meta/{index}/recalled", text, "no_result")
    facts = outline_of(message)
    return Incoming(
        body=content,
        envelope=envelope,
        codec=codec,
        message=message,
        facts=facts,
        tokens=count_message(message, counter),
        head_tokens=count_head(facts.head, HEAD_TOKEN_CHARS, counter) if facts.chars > HEAD_TOKEN_CHARS else None,
        unknown={} if is_plain_text(content) else unknown_content(content, codec.format),
        recalled=tuple(recalled) if recalled is not None else None,
        encoded=encoded,
    )


def message_event(
    incoming: Incoming, position: int, opens_loop: int = 0, recall: Recall | None = None, notes: Notes | None = None
) -> MessageEvent:
    """Return the log's event of a message."""
    return MessageEvent(
        position=position,
        format=incoming.codec.format,
        tokens=incoming.tokens,
        envelope=incoming.envelope,
        body=incoming.body,
        opens_loop=opens_loop,
        head_tokens=incoming.head_tokens,
        facts=incoming.facts,
        recall=recall,
        notes=notes,
    )


def understand_batch(request: AppendMessages, counter: TokenCounter) -> list[Incoming]:
    """Parse and count the messages of an append. Refuse a batch over the limits of one commit."""
    if request.meta is not None and len(request.meta) != len(request.messages):
        message = f"meta has {len(request.meta)} entries for {len(request.messages)} messages"
        raise InvalidInputError.at("/meta", message, "meta_length")
    codec = codec_of(request.format) if request.format is not None else None
    batch, call_count = list[Incoming](), 0
    for index, (body, data) in enumerate(_encoded(request.messages)):
        meta = request.meta[index] if request.meta else None
        envelope, recalled = _envelope(meta, request.parent, index), meta.recalled if meta is not None else None
        batch.append(understand(body, index, counter, codec=codec, envelope=envelope, recalled=recalled, encoded=data))
        if not request.lenient:
            _check_meaning(batch[-1], index)
        call_count = with_calls(call_count, batch[-1].facts, index)
    return batch


def _envelope(meta: Meta | None, parent: ParentCall | None, index: int) -> Envelope:
    """Return what is stored beside the message at ``index`` of a request. `InvalidInputError` for a time that is none."""
    if meta is not None and meta.created_at is not None and read_time(meta.created_at) is None:
        text = f"created_at {meta.created_at!r} is not a time, such as 2026-11-21T07:59:58Z"
        raise InvalidInputError.at(f"/meta/{index}/created_at", text, "not_a_time")
    fields = meta.model_dump(exclude={"recalled"}) if meta is not None else {}
    if parent is not None:
        fields |= {"parent": parent.ref, "agent_id": parent.agent_id}
    return Envelope(**fields) if fields else NO_ENVELOPE


def _check_meaning(incoming: Incoming, index: int) -> None:
    """Raise `InvalidInputError` for a role that no provider has, such as a misspelt one, and for a message that says something,
    but only in fields of another format.
    """
    message = incoming.message
    if message.role == "unknown":
        from difflib import get_close_matches

        close = get_close_matches(message.given_role, ROLES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"a role is one of {', '.join(ROLES)}."
        text = f"unknown role {message.given_role[:40]!r}; {hint} To store it all the same, append with lenient"
        raise InvalidInputError.at(f"/messages/{index}/role", text, "unknown_role")
    names = [name for name, pointer in incoming.unknown.items() if pointer == f"/{name}"]
    if (
        names
        and not (message.tool_calls or message.tool_results)
        and all(block == Text("") for block in message.blocks)
    ):
        text = (
            f"format {incoming.codec.format!r} has no {names[0]!r}, and the message says nothing else; "
            "name the format of the message. To store it all the same, append with lenient"
        )
        raise invalid_message(f"/messages/{index}/{names[0]}", text)


def with_calls(count: int, facts: MessageOutline, index: int) -> int:
    """Return ``count`` plus the calls and results of the message at ``index``. Refuse more than `MAX_CALLS`."""
    count += len(facts.calls) + len(facts.results)
    if count > MAX_CALLS:
        message = f"the messages up to this one have {count} tool calls and results; a request has at most {MAX_CALLS}"
        raise TooLargeError.at(f"/messages/{index}", message, "too_many_calls")
    return count


def _encoded(messages: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], bytes]]:
    """Return each message with its JSON. Raise `TooLargeError` when they are over the limit of one append together."""
    encoded = [encode_json(message) for message in messages]
    sizes = list(map(len, encoded))
    if sum(sizes) > MAX_APPEND_BYTES:
        index = max(range(len(sizes)), key=sizes.__getitem__)
        message = (
            f"messages of {sum(sizes):,} bytes are over the limit of {MAX_APPEND_BYTES:,} for one append; "
            f"the largest, number {index}, has {sizes[index]:,}"
        )
        raise TooLargeError.at(f"/messages/{index}", message, "message_too_large")
    return list(zip(messages, encoded, strict=True))


USAGE_IGNORED = "usage_ignored"


def sent_after(body: AppendMessages, header: Header, time_ms: int) -> Sent | None:
    """Return the newest window that is known to have been sent. Refuse a window at a position that the log has not reached."""
    if body.window is None or body.parent is not None:
        return header.sent
    if body.window.position > header.last:
        message = f"the window's position {body.window.position} is above the head, {header.last}"
        raise InvalidInputError.at("/window/position", message)
    return Sent(body.window.position, time_ms)


def calibration_after(body: AppendMessages, header: Header, *, opens_loop: bool) -> tuple[Calibration, list[Disorder]]:
    """Return the session's token calibration after the append, and a warning when the reported usage is implausible."""
    ratio, ignored = None, list[Disorder]()
    if body.usage is not None and body.window is not None and body.parent is None:
        try:
            ratio = ratio_of(body.usage.input_tokens, body.window.tokens)
        except ValueError:
            ignored.append(Disorder(USAGE_IGNORED, header.last + 1, "/usage"))
    return header.calibration.after(ratio, opens_loop=opens_loop), ignored


_RECALL_TOOLS = (RECALL_TOOL, SEARCH_TOOL)
_RECALL_TOOL_HASHES = frozenset(map(call_hash, _RECALL_TOOLS))


def recalls(
    arrivals: Sequence[Arrival], batch: Sequence[Incoming], before: OpenCalls, tail: Tail, *, has_tools: bool
) -> Mapping[int, Recall]:
    """Return the recall of each message that answers recall tools, by position.

    The recalled places are those that the caller reports. Without a report they come from the arguments of the answered calls,
    when these calls are in the request or in the newest commit. ``has_tools``: the session's windows offer the recall tools.
    Without them only reports count, since a tool of the same name may be the caller's.
    """
    if not any(arrival.facts.results for arrival in arrivals):
        return {}
    claims = {arrival.position: incoming.recalled for arrival, incoming in zip(arrivals, batch, strict=True)}
    recall_calls = {call.ref for call in before.calls if call.name_hash in _RECALL_TOOL_HASHES}
    recall_calls |= {
        Ref(arrival.position, index)
        for arrival in arrivals
        for index, call in enumerate(arrival.facts.calls)
        if call.name in _RECALL_TOOLS
    }
    if not (recall_calls and has_tools) and all(places is None for places in claims.values()):
        return {}
    answered_calls: dict[int, list[Ref]] = {}
    complete = ((arrival.position, arrival.facts) for arrival in arrivals if not arrival.interrupted)
    for (position, _), ref in sorted(pair(complete, before=before).call_of.items()):
        if ref in recall_calls:
            answered_calls.setdefault(position, []).append(ref)
    messages = {arrival.position: arrival.message for arrival in arrivals}
    call_positions = {
        ref.position for position, refs in answered_calls.items() for ref in refs if claims[position] is None
    }
    if has_tools and call_positions - messages.keys():
        messages |= _messages_of_newest(tail)
    recalled = dict[int, Recall]()
    for position, claim in claims.items():
        refs, places = answered_calls.get(position, []), claim
        if places is None and refs and has_tools:
            arguments = (place for ref in refs for place in _places_in(messages.get(ref.position), ref.index))
            places = tuple(dict.fromkeys(arguments))
        if places is not None:
            recalled[position] = Recall(tuple(map(str, refs)), places)
    return recalled


def _places_in(message: Message | None, index: int) -> list[str]:
    """Return the refs in the arguments of a call to the recall tool; none for another call, or one of an unknown message."""
    call = message.tool_calls[index] if message is not None and index < len(message.tool_calls) else None
    if call is None or call.name != RECALL_TOOL:
        return []
    with suppress(ArgumentsError):
        places = parse_recall_request(call.name, call.arguments).places
        return [ref for ref in map(ref_of, places) if ref is not None]
    return []


def _messages_of_newest(tail: Tail) -> dict[int, Message]:
    """Return the messages of the newest commit with bodies stored in it, by position. Skip damage: its readers report it."""
    messages = dict[int, Message]()
    with suppress(CorruptError, InvalidInputError):
        for event in events_of(read_commit(tail.item), {}):
            if isinstance(event, MessageEvent) and event.body is not None:
                messages[event.position] = CODECS[event.format].parse(event.body)
    return messages
