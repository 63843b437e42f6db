"""Messages that come from a caller: recognised, understood, and counted, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from turnlog.codecs.base import Codec
from turnlog.codecs.counting import count_head, count_message
from turnlog.codecs.registry import codec_of, recognise
from turnlog.contracts.messages import MAX_APPEND_BYTES, AppendMessages, Meta
from turnlog.domain.errors import InvalidInputError, Problem, TooLargeError
from turnlog.domain.events import HEAD_TOKEN_CHARS, Envelope, MessageEvent
from turnlog.domain.facts import Facts, facts_of
from turnlog.domain.jsonvalue import JsonObject, encode_json
from turnlog.domain.messages import Message
from turnlog.domain.values import dataclass
from turnlog.ports import TokenCounter

MAX_MESSAGE_BYTES = 1024 * 1024
MAX_CALLS = 10_000
"""Tool calls and results of one request together."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """``head_tokens`` counts the text's first `HEAD_TOKEN_CHARS` characters when there are more."""

    body: JsonObject
    envelope: Envelope
    codec: Codec
    message: Message
    facts: Facts
    tokens: int
    head_tokens: int | None
    recalled: tuple[str | int, ...] | None = None
    """What the caller says that a recall brought back."""


def understand(
    body: dict[str, Any], at: int, counter: TokenCounter, *, codec: Codec | None = None, meta: Meta | None = None
) -> Incoming:
    """One message of a request, the one at index ``at``; `InvalidInputError` with its pointer when it is no message."""
    given = cast("JsonObject", body)
    codec = codec if codec is not None else recognise(given)
    try:
        message = codec.parse(given, is_error=meta.is_error if meta is not None else None)
    except InvalidInputError as error:
        problems = [replace(problem, pointer=f"/messages/{at}{problem.pointer}") for problem in error.problems]
        raise InvalidInputError(error.detail, code=error.error_code, problems=problems) from error
    recalled = meta.recalled if meta is not None else None
    if recalled is not None and not message.tool_results:
        text = "recalled is for a message with a tool's result"
        raise InvalidInputError(text, problems=[Problem("no_result", f"/meta/{at}/recalled", text)])
    text = message.text
    return Incoming(
        body=given,
        envelope=Envelope(**meta.model_dump(exclude={"recalled"})) if meta is not None else Envelope(),
        codec=codec,
        message=message,
        facts=facts_of(message),
        tokens=count_message(message, counter),
        head_tokens=count_head(text, HEAD_TOKEN_CHARS, counter) if len(text) > HEAD_TOKEN_CHARS else None,
        recalled=tuple(recalled) if recalled is not None else None,
    )


def message_event(given: Incoming, *, position: int, opens_loop: int = 0) -> MessageEvent:
    """The message as it is put into the log."""
    return MessageEvent(
        position=position,
        format=given.codec.format,
        tokens=given.tokens,
        envelope=given.envelope,
        body=given.body,
        opens_loop=opens_loop,
        head_tokens=given.head_tokens,
    )


def understand_batch(request: AppendMessages, counter: TokenCounter) -> list[Incoming]:
    """The messages of an append, within the limits of one commit."""
    if request.meta is not None and len(request.meta) != len(request.messages):
        message = f"meta has {len(request.meta)} entries for {len(request.messages)} messages"
        raise InvalidInputError(message, problems=[Problem("meta_length", "/meta", message)])
    _check_sizes(request.messages)
    codec = codec_of(request.format) if request.format is not None else None
    metas = request.meta or [Meta()] * len(request.messages)
    pairs = zip(request.messages, metas, strict=True)
    batch, calls = list[Incoming](), 0
    for at, (body, meta) in enumerate(pairs):
        batch.append(understand(body, at, counter, codec=codec, meta=meta))
        calls = with_calls(calls, batch[-1].facts, at)
    return batch


def with_calls(count: int, facts: Facts, at: int) -> int:
    """Return the count of calls and results with those of the message at index ``at``. Refuse more than a request may have."""
    count += len(facts.calls) + len(facts.results)
    if count > MAX_CALLS:
        message = f"the messages up to this one have {count} tool calls and results; a request has at most {MAX_CALLS}"
        raise TooLargeError(message, problems=[Problem("too_many_calls", f"/messages/{at}", message)])
    return count


def _check_sizes(messages: Sequence[dict[str, Any]]) -> None:
    sizes = [len(encode_json(message)) for message in messages]
    for at, size in enumerate(sizes):
        if size > MAX_MESSAGE_BYTES:
            message = f"a message of {size} bytes is over the limit of {MAX_MESSAGE_BYTES}"
            raise TooLargeError(message, problems=[Problem("message_too_large", f"/messages/{at}", message)])
    if sum(sizes) > MAX_APPEND_BYTES:
        raise TooLargeError(f"messages of {sum(sizes)} bytes are over the limit of {MAX_APPEND_BYTES} for one commit")
