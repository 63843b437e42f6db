"""Streams of a provider: their events pass through, and the message that they make up is appended when the stream ends.

Accumulators build messages from events. This module has their interface, and helpers for reading events.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from inspect import signature
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

from turnlog.client import parts_of
from turnlog.client.async_calls import run_to_end
from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.json_values import MAX_DEPTH, JsonObject, measured, parse_strict_json, without_none
from turnlog.engines import RandomIds
from turnlog.providers.blocks import RAW, string_of
from turnlog.sessions.message_models import MAX_TOKENS, Appended

Event = Mapping[str, Any]


class Accumulator(ABC):
    """Builds messages from events. It may be read at any time, and keeps no reference to the events."""

    format: str
    finish_reason: str | None = None
    """The provider's finish reason; None before it came."""
    is_broken = False
    """Whether the stream reported an error."""
    error_text = ""
    """The provider's text of that error, where its library raises none."""
    usage: dict[str, int] | None = None
    """``input_tokens`` and ``output_tokens``; None before the provider has sent both."""
    choices = 1
    """The number of choices that the provider streams; the accumulator reads the first."""

    @staticmethod
    @abstractmethod
    def recognises(event: Event) -> bool:
        """Return whether an event has a mark of the format."""

    @abstractmethod
    def add(self, event: Event) -> None:
        """Add an event. Unknown fields and types are ignored."""

    def fail(self, error: object) -> None:
        """Note an error that the provider sent in place of the rest: an object with a ``message``, or a text."""
        self.is_broken = True
        self.error_text = error if isinstance(error, str) else string_of(mapping_or_empty(error).get("message"))

    @property
    @abstractmethod
    def messages(self) -> list[JsonObject]:
        """The messages so far, in the stream's format; empty before the first content."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The text so far, without thinking."""


def as_mapping(event: object) -> Event:
    """Return an event or a message as a mapping. Raises `TypeError` for a value that is neither a mapping nor a pydantic model."""
    if isinstance(event, Mapping):
        return event
    dump = getattr(event, "model_dump", None)
    if callable(dump):
        # Without warnings: `parse` of an SDK puts objects into fields that are declared as null.
        fields: Event = dump(mode="json", exclude_unset=True, by_alias=True, warnings=False)
        return fields
    raise TypeError(f"an event must be a mapping or an object of the provider's library, not {type(event).__name__}")


def mapping_or_empty(value: object) -> Event:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def list_or_empty(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def integer_of(value: object) -> int:
    """Return the value if it is an integer, else 0."""
    return value if isinstance(value, int) else 0


_INPUT_LEVELS = MAX_DEPTH - 6
"""Levels of JSON in a call's arguments, so that the message and a request around them stay within `MAX_DEPTH`."""


def parsed_input(text: str) -> JsonObject:
    """Return the object that a JSON text holds; a text that is incomplete, or no JSON that can be stored, comes under `RAW`."""
    if not text.strip():
        return {}
    try:
        value = parse_strict_json(text)
    except MalformedError:
        value = None
    return value if isinstance(value, dict) and measured(value)[1] <= _INPUT_LEVELS else {RAW: text}


def with_stored_inputs(content: object) -> object:
    """Return a message's content with arguments that cannot be stored, such as an integer of 20 digits, as text under `RAW`."""
    if not isinstance(content, list):
        return content
    return [_with_stored_input(block) if isinstance(block, Mapping) else block for block in content]


def _with_stored_input(block: Event) -> Event:
    if isinstance(block.get("toolUse"), Mapping):
        return {**block, "toolUse": _with_stored_input(block["toolUse"])}
    if not isinstance(block.get("input"), Mapping):
        return block
    return {**block, "input": parsed_input(json.dumps(block["input"], ensure_ascii=False))}


_COUNTS = {
    "openai_chat": ("completion_tokens", "prompt_tokens"),
    "openai_responses": ("output_tokens", "input_tokens"),
    "anthropic": ("output_tokens", "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    "bedrock_converse": ("outputTokens", "inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
}
"""Names of a format's token counts: those of the output, of the input, and of what else the input has."""


def usage_of(format: str, counts: object) -> dict[str, int] | None:
    """Return a provider's token counts as a usage object, cached input included; None without those of input and output."""
    output_name, input_name, *others = _COUNTS[format]
    values = {name: value for name, value in mapping_or_empty(counts).items() if isinstance(value, int | float)}
    numbers = {name: int(value) for name, value in values.items() if 0 <= value <= MAX_TOKENS}
    input_tokens = sum(numbers.get(name, 0) for name in (input_name, *others))
    if input_name not in numbers or output_name not in numbers or input_tokens > MAX_TOKENS:
        return None
    return {"input_tokens": input_tokens, "output_tokens": numbers[output_name]}


def accumulator(format: str = "openai_chat") -> Accumulator:
    """Return an accumulator for a format's events: ``add`` each event, read ``messages`` at any time. It stores nothing."""
    from turnlog.agents.accumulators import ACCUMULATORS

    if format in ACCUMULATORS:
        return ACCUMULATORS[format]()
    raise InvalidInputError(f"no provider streams in format {format!r}", code="unknown_format")


class StreamedReply:
    """The reply that the events of a stream make up. Without a format, the events decide."""

    def __init__(self, format: str | None) -> None:
        self.accumulated = accumulator(format or "openai_chat")
        self._is_given = format is not None
        self._recognised = ""
        self._has_events = False

    def add(self, event: object) -> None:
        """Add an event: an object of the provider's library, or its JSON. Raises `InvalidInputError` for any other value."""
        try:
            fields = as_mapping(event)
        except TypeError as error:
            raise InvalidInputError(str(error), code="wrong_format") from error
        self._has_events = True
        if not self._recognised:
            from turnlog.agents.accumulators import ACCUMULATORS

            kinds = ACCUMULATORS.items()
            self._recognised = next((format for format, kind in kinds if kind.recognises(fields)), "")
            if self._recognised and not self._is_given:
                self.accumulated = accumulator(self._recognised)
        self.accumulated.add(fields)

    def check(self) -> None:
        """Raise `InvalidInputError` for several choices, and when events came and the format says nothing about any of them."""
        accumulated, recognised = self.accumulated, self._recognised
        if accumulated.choices > 1:
            detail = f"the stream has {accumulated.choices} choices, and a log takes one reply: ask for one"
            raise InvalidInputError(detail, code="several_choices")
        is_understood = accumulated.messages or accumulated.finish_reason or accumulated.is_broken
        if not self._has_events or is_understood or recognised == accumulated.format:
            return
        if recognised:
            message = f"the stream's events are in format {recognised!r}, not {accumulated.format!r}"
        else:
            message = "no event of the stream is in a format that providers stream"
        raise InvalidInputError(message, code="wrong_format")


E = TypeVar("E")
OnBreak: TypeAlias = Literal["keep", "drop"]
Append: TypeAlias = Callable[..., Appended]
_IDS = RandomIds()


class _SavingStream(Generic[E]):
    """Base of both streams: the reply so far, and its append."""

    _iterate: Callable[[Any], Any]

    def __init__(
        self,
        events: Iterable[E] | AsyncIterable[E],
        append: Append,
        format: str | None,
        on_break: OnBreak,
        meta: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        if on_break not in get_args(OnBreak):
            raise InvalidInputError(f"on_break is {on_break!r}; it is one of {', '.join(get_args(OnBreak))}")
        if unknown := [name for name in options if name not in signature(append).parameters]:
            raise TypeError(f"a stream has no option {unknown[0]!r}")
        self._events = events
        self._iterator = self._iterate(events)
        self._append = append
        self._reply = StreamedReply(format)
        self._on_break = on_break
        self._meta = dict(meta or {})
        self._options = {"idempotency_key": _IDS.new_id(), **without_none(options)}
        self._is_over = False
        self._is_saved = False
        self.appended: Appended | None = None
        """The answer of the append; None before it, and when nothing was appended."""

    @property
    def _accumulated(self) -> Accumulator:
        return self._reply.accumulated

    @property
    def partial(self) -> list[JsonObject]:
        """The reply so far, as messages of the format (items of `openai_responses`); empty before the first content."""
        return self._accumulated.messages

    @property
    def text(self) -> str:
        """The text so far."""
        return self._accumulated.text

    @property
    def is_complete(self) -> bool:
        """Whether the provider has ended the reply, without an error."""
        return self._accumulated.finish_reason is not None and not self._accumulated.is_broken

    def save(self) -> Appended | None:
        """Append the reply once, and return the answer; a repeated call returns the same answer, also after an error.

        A reply without the provider's end is appended as interrupted, in no window. With ``on_break="drop"`` it is not
        appended. Raises `InvalidInputError` when the events are in another format, or of several choices.
        """
        if not self._is_saved:
            self._reply.check()
            messages = self._accumulated.messages
            if messages and (self.is_complete or self._on_break == "keep"):
                for part in parts_of(messages):
                    self.appended = self._append_part(messages, part)
            self._is_saved = True
        return self.appended

    def _append_part(self, messages: list[JsonObject], part_slice: slice) -> Appended:
        meta: dict[str, Any] = {**self._meta, "status": "complete" if self.is_complete else "interrupted"}
        if self._accumulated.finish_reason is not None:
            meta.setdefault("finish_reason", self._accumulated.finish_reason)
        part, options, start = messages[part_slice], dict(self._options), part_slice.start
        if start:
            # A reply with more items than a commit takes: the first commit has the options of the whole append.
            options = {"idempotency_key": f"{options['idempotency_key']}-{start}"}
        elif self._accumulated.usage is not None and self.is_complete:
            options.setdefault("usage", self._accumulated.usage)
        # The id names the first message only.
        others = {name: value for name, value in meta.items() if name != "id"}
        metas = [meta if not start and not index else others for index in range(len(part))]
        return self._append(*part, meta=metas, format=self._accumulated.format, **options)


class SessionStream(_SavingStream[E]):
    """A stream for ``with`` and ``for``. See `Session.stream`."""

    _iterate = staticmethod(iter)

    def __iter__(self) -> Iterator[E]:
        return self

    def __next__(self) -> E:
        if self._is_over:
            raise StopIteration
        try:
            event: E = next(self._iterator)
        except StopIteration:
            self._is_over = True
            self.save()
            raise
        except BaseException as error:
            self._is_over = True
            _save_after_error(error, self.save)
            raise
        self._reply.add(event)
        return event

    def close(self) -> None:
        """Stop reading from the provider, and append the reply so far. A repeated call does nothing."""
        close = getattr(self._events, "close", None)
        was_over, self._is_over = self._is_over, True
        try:
            if not was_over and callable(close):
                close()
        finally:
            self.save()

    def __enter__(self) -> SessionStream[E]:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            _save_after_error(error, self.close)


class AsyncSessionStream(_SavingStream[E]):
    """A stream for ``async with`` and ``async for``. See `Session.stream_async`."""

    _iterate = staticmethod(aiter)

    def __aiter__(self) -> AsyncIterator[E]:
        return self

    async def __anext__(self) -> E:
        if self._is_over:
            raise StopAsyncIteration
        try:
            event: E = await anext(self._iterator)
        except StopAsyncIteration:
            self._is_over = True
            await run_to_end(self.save)
            raise
        except BaseException as error:
            self._is_over = True
            await run_to_end(partial(_save_after_error, error, self.save))
            raise
        self._reply.add(event)
        return event

    async def aclose(self) -> None:
        """Stop reading from the provider, and append the reply so far. A repeated call does nothing."""
        close = getattr(self._events, "aclose", None) or getattr(self._events, "close", None)
        was_over, self._is_over = self._is_over, True
        try:
            closing = close() if not was_over and callable(close) else None
            if asyncio.iscoroutine(closing):
                await closing
        finally:
            await run_to_end(self.save)

    async def __aenter__(self) -> AsyncSessionStream[E]:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.aclose()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"{_FAILED}: {failure}")


_FAILED = "what was streamed was not saved, or the stream was not closed"


def _save_after_error(error: BaseException, save: Callable[[], object]) -> None:
    """Append while an error is being raised; note a failure of the append on that error."""
    try:
        save()
    except Exception as failure:  # noqa: BLE001 - the caller gets the stream's own error
        error.add_note(f"{_FAILED}: {failure}")
