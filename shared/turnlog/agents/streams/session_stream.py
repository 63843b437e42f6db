"""A provider's stream that is appended to a session when it ends, completely or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from turnlog.agents.streams import accumulator, as_mapping
from turnlog.client.async_calls import run_to_end
from turnlog.client.backend import parts_of
from turnlog.core.json_values import JsonObject
from turnlog.engines.system import RandomIds
from turnlog.sessions.message_models import Appended

E = TypeVar("E")
OnBreak: TypeAlias = Literal["keep", "drop"]
Append: TypeAlias = Callable[..., Appended]
_IDS = RandomIds()


class _SavingStream:
    """Base of both streams: the reply so far, and its append."""

    def __init__(
        self, append: Append, format: str, on_break: OnBreak, meta: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> None:
        self._append = append
        self._accumulated = accumulator(format)
        self._on_break = on_break
        self._meta = dict(meta or {})
        self._options = {
            "idempotency_key": _IDS.new_id(),
            **{name: value for name, value in options.items() if value is not None},
        }
        self._is_over = False
        self._is_saved = False
        self.appended: Appended | None = None
        """The answer of the append; None before it, and when nothing was appended."""

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
        appended.
        """
        if not self._is_saved:
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


class SessionStream(_SavingStream, Generic[E]):
    """A stream for ``with`` and ``for``. See `Session.stream`."""

    def __init__(
        self,
        events: Iterable[E],
        append: Append,
        format: str,
        on_break: OnBreak,
        meta: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(append, format, on_break, meta, options)
        self._events = events
        self._iterator = iter(events)

    def __iter__(self) -> Iterator[E]:
        return self

    def __next__(self) -> E:
        if self._is_over:
            raise StopIteration
        try:
            event = next(self._iterator)
        except StopIteration:
            self._is_over = True
            self.save()
            raise
        except BaseException as error:
            self._is_over = True
            _save_after_error(error, self.save)
            raise
        self._accumulated.add(as_mapping(event))
        return event

    def close(self) -> None:
        """Stop reading from the provider, and append the reply so far. A repeated call does nothing."""
        if not self._is_over:
            self._is_over = True
            close = getattr(self._events, "close", None)
            if callable(close):
                close()
        self.save()

    def __enter__(self) -> SessionStream[E]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            _save_after_error(error, self.close)


class AsyncSessionStream(_SavingStream, Generic[E]):
    """A stream for ``async with`` and ``async for``. See `Session.stream_async`."""

    def __init__(
        self,
        events: AsyncIterable[E],
        append: Append,
        format: str,
        on_break: OnBreak,
        meta: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(append, format, on_break, meta, options)
        self._events = events
        self._iterator = aiter(events)

    def __aiter__(self) -> AsyncIterator[E]:
        return self

    async def __anext__(self) -> E:
        if self._is_over:
            raise StopAsyncIteration
        try:
            event = await anext(self._iterator)
        except StopAsyncIteration:
            self._is_over = True
            await self._save()
            raise
        except BaseException as error:
            self._is_over = True
            await self._save_after_error(error)
            raise
        self._accumulated.add(as_mapping(event))
        return event

    async def aclose(self) -> None:
        """Stop reading from the provider, and append the reply so far. A repeated call does nothing."""
        if not self._is_over:
            self._is_over = True
            close = getattr(self._events, "aclose", None) or getattr(self._events, "close", None)
            if callable(close):
                closing = close()
                if asyncio.iscoroutine(closing):
                    await closing
        await self._save()

    async def __aenter__(self) -> AsyncSessionStream[E]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.aclose()
        else:
            self._is_over = True
            await self._save_after_error(error)

    async def _save(self) -> Appended | None:
        return await run_to_end(self.save)

    async def _save_after_error(self, error: BaseException) -> None:
        try:
            await self._save()
        except Exception as failure:  # noqa: BLE001 - the caller gets the stream's own error
            error.add_note(f"what was streamed was not saved: {failure}")


def _save_after_error(error: BaseException, save: Callable[[], object]) -> None:
    """Append while an error is being raised; note a failure of the append on that error."""
    try:
        save()
    except Exception as failure:  # noqa: BLE001 - the caller gets the stream's own error
        error.add_note(f"what was streamed was not saved: {failure}")
