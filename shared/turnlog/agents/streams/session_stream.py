"""A provider's stream that is appended to a session when it is over, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from turnlog.agents.streams import accumulator
from turnlog.agents.streams.base import plain
from turnlog.client.parts import parts_of
from turnlog.client.threads import finished
from turnlog.core.json_values import JsonObject
from turnlog.engines.system import RandomIds
from turnlog.sessions.message_models import Appended

E = TypeVar("E")
OnBreak: TypeAlias = Literal["keep", "drop"]
Append: TypeAlias = Callable[..., Appended]
_IDS = RandomIds()


class _Saving:
    """What streams of both kinds share: what was said so far, and its append."""

    def __init__(
        self, append: Append, format: str, on_break: OnBreak, meta: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> None:
        self._append = append
        self._said = accumulator(format)
        self._on_break = on_break
        self._meta = dict(meta or {})
        self._options = {"key": _IDS.new_id(), **{name: one for name, one in options.items() if one is not None}}
        self._is_over = False
        self._is_saved = False
        self.appended: Appended | None = None
        """The answer of the append; None before it, and when nothing was kept."""

    @property
    def partial(self) -> list[JsonObject]:
        """What has been said so far, as messages of the format (of `openai_responses` its items); empty before anything was."""
        return self._said.messages

    @property
    def text(self) -> str:
        """The text so far."""
        return self._said.text

    @property
    def is_complete(self) -> bool:
        """Whether the provider has said that it is at its end, and has told of no error."""
        return self._said.finish_reason is not None and not self._said.is_broken

    def save(self) -> Appended | None:
        """Appends what was said, once; whoever asks again, also after an error, gets the same. What no provider's end has come
        for is interrupted: it is kept, marked, and in no window; or with ``on_break="drop"`` not kept."""
        if not self._is_saved:
            messages = self._said.messages
            if messages and (self.is_complete or self._on_break == "keep"):
                for part in parts_of(messages):
                    self.appended = self._append_some(messages, part)
            self._is_saved = True
        return self.appended

    def _append_some(self, messages: list[JsonObject], where: slice) -> Appended:
        meta: dict[str, Any] = {**self._meta, "status": "complete" if self.is_complete else "interrupted"}
        if self._said.finish_reason is not None:
            meta.setdefault("finish_reason", self._said.finish_reason)
        part, options, start = messages[where], dict(self._options), where.start
        if start:
            # An answer of more items than a commit takes: what belongs to the append as a whole was in the first.
            options = {"key": f"{options['key']}-{start}"}
        elif self._said.usage is not None and self.is_complete:
            options.setdefault("usage", self._said.usage)
        # An id is of one message: the first.
        others = {name: one for name, one in meta.items() if name != "id"}
        metas = [meta if not start and not at else others for at in range(len(part))]
        return self._append(*part, meta=metas, format=self._said.format, **options)


class SessionStream(_Saving, Generic[E]):
    """See `Session.stream`."""

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
            _save_behind(error, self.save)
            raise
        self._said.add(plain(event))
        return event

    def close(self) -> None:
        """Asks the provider for no more, and saves what was said. Once is enough."""
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
            _save_behind(error, self.close)


class AsyncSessionStream(_Saving, Generic[E]):
    """See `Session.stream_async`."""

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
            await self._save_behind(error)
            raise
        self._said.add(plain(event))
        return event

    async def aclose(self) -> None:
        """Asks the provider for no more, and saves what was said. Once is enough."""
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
            await self._save_behind(error)

    async def _save(self) -> Appended | None:
        return await finished(self.save)

    async def _save_behind(self, error: BaseException) -> None:
        try:
            await self._save()
        except Exception as failed:  # noqa: BLE001 - the stream's own error is what the caller is told
            error.add_note(f"what was streamed was not saved: {failed}")


def _save_behind(error: BaseException, save: Callable[[], object]) -> None:
    """Saves while an error is on its way; a failure of it is told beside that."""
    try:
        save()
    except Exception as failed:  # noqa: BLE001 - the stream's own error is what the caller is told
        error.add_note(f"what was streamed was not saved: {failed}")
