"""Streams of a session: whole, broken, left, cancelled; appended once in any case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from tests.agents import events
from tests.conftest import Harness
from tests.effort import boundaries
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError, SessionEndedError, UnavailableError

WHOLE = {"role": "assistant", "content": "Hello there"}
ITEMS = [
    {"type": "reasoning", "id": "rs", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
]
ANTHROPIC = [{"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}]
CONVERSE = [{"role": "assistant", "content": [{"text": "Hi"}]}]


def each(text: str) -> list[str]:
    return list(text)


def chunks() -> list[dict[str, Any]]:
    return list(events.chat(WHOLE, each))


def asked(harness: Harness) -> Session:
    session = harness.log().sessions.create("s")
    session.append({"role": "user", "content": "Hi"})
    return session


def stored(session: Session) -> Sequence[tuple[Any, str]]:
    return [(message.body, message.status) for message in session.messages()][1:]


class BrokenError(Exception):
    """The connection to the provider is gone."""


def breaking(many: list[dict[str, Any]], at: int) -> Iterator[dict[str, Any]]:
    yield from many[:at]
    raise BrokenError


def test_a8_events_pass_through_and_one_message_is_kept(harness: Harness) -> None:
    session, seen = asked(harness), list[Any]()
    with session.stream(iter(chunks()), run_id="r1") as stream:
        assert stream.partial == [] and stream.appended is None
        for chunk in stream:
            seen.append(chunk)
            if stream.text == "Hell":
                assert stream.partial == [{"role": "assistant", "content": "Hell"}]
                assert stored(session) == [], "nothing is kept before its end"
    assert seen == chunks()
    assert stored(session) == [(WHOLE, "complete")]
    assert stream.appended is not None and stream.appended.first == stream.appended.last == 3
    newest = list(session.messages())[-1]
    assert newest.finish_reason == "stop"
    assert next(session.history()).metadata["usage"] == {"input_tokens": 11, "output_tokens": 7}
    assert stream.save() == stream.appended and session.info().head == 3


def test_it_needs_no_with(harness: Harness) -> None:
    session = asked(harness)
    assert len(list(session.stream(chunks()))) == len(chunks())
    assert stored(session) == [(WHOLE, "complete")]


@pytest.mark.parametrize("at", range(2, 13, 5))
@pytest.mark.parametrize("on_break", ["keep", "drop"])
def test_a8_one_that_breaks(harness: Harness, at: int, on_break: Any) -> None:
    session = asked(harness)
    with pytest.raises(BrokenError), session.stream(breaking(chunks(), at), on_break=on_break) as stream:
        for _ in stream:
            pass
    said = {"role": "assistant", "content": "Hello there"[: at - 1]}
    assert stored(session) == ([(said, "interrupted")] if on_break == "keep" else [])
    assert said not in session.context(format="openai_chat").messages, "it is in no window"
    session.append(WHOLE)
    assert session.context(format="openai_chat").messages[-1] == WHOLE


def test_a8_what_was_whole_before_it_broke_is_whole(harness: Harness) -> None:
    session, many = asked(harness), chunks()
    with pytest.raises(BrokenError):
        list(session.stream(breaking(many, len(many))))
    assert stored(session) == [(WHOLE, "complete")]


def test_a8_one_that_is_left_or_whose_reader_fails(harness: Harness) -> None:
    session, closed = asked(harness), list[int]()

    class Connection(list[dict[str, Any]]):
        def close(self) -> None:
            closed.append(1)

    with session.stream(Connection(chunks())) as stream:
        for _ in stream:
            if stream.text == "Hel":
                break
    with pytest.raises(ZeroDivisionError), session.stream(Connection(chunks())) as stream:
        for _ in stream:
            if stream.text == "He":
                raise ZeroDivisionError
    assert [(body["content"], status) for body, status in stored(session)] == [
        ("Hel", "interrupted"),
        ("He", "interrupted"),
    ]
    assert closed == [1, 1]
    assert list(stream) == [], "it is over"


def test_one_that_said_nothing_leaves_nothing(harness: Harness) -> None:
    session = asked(harness)
    with pytest.raises(BrokenError):
        list(session.stream(breaking(chunks(), 0)))
    assert stored(session) == []


STREAMS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "openai_chat": ([WHOLE], chunks()),
    "anthropic": (ANTHROPIC, list(events.anthropic(ANTHROPIC[0], each))),
    "bedrock_converse": (CONVERSE, list(events.converse(CONVERSE[0], each))),
    "openai_responses": (ITEMS, list(events.responses(ITEMS, each))),
}


@pytest.mark.parametrize("format", STREAMS)
def test_a_stream_without_a_format_is_kept_in_that_of_its_events(harness: Harness, format: str) -> None:
    session, (messages, many) = asked(harness), STREAMS[format]
    assert list(session.stream(many)) == many
    assert stored(session) == [(message, "complete") for message in messages]
    assert {message.format for message in list(session.messages())[1:]} == {format}


@pytest.mark.parametrize("other", STREAMS)
@pytest.mark.parametrize("format", STREAMS)
def test_a_stream_in_another_format_than_the_given_one_is_refused(harness: Harness, format: Any, other: Any) -> None:
    session, (_, many) = asked(harness), STREAMS[other]
    if format == other:
        assert list(session.stream(many, format=format)) == many
        return
    with pytest.raises(InvalidInputError, match=f"in format '{other}', not '{format}'") as caught:
        list(session.stream(many, format=format))
    assert caught.value.error_code == "wrong_format" and stored(session) == []


def test_a_stream_in_no_format_that_providers_stream_is_refused(harness: Harness) -> None:
    session = asked(harness)
    with pytest.raises(InvalidInputError, match="no event of the stream"):
        list(session.stream([{"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]}]))
    assert list(session.stream([])) == [] == stored(session)


def test_a_stream_of_several_choices_is_refused_as_an_answer_of_several_is(harness: Harness) -> None:
    session = asked(harness)
    second = [{"choices": [{**choice, "index": 1} for choice in chunk["choices"]]} for chunk in chunks()]
    stream = session.stream(iter([*chunks(), *second]))
    with pytest.raises(InvalidInputError, match="2 choices") as caught:
        list(stream)
    assert caught.value.error_code == "several_choices" and stored(session) == []
    session.append(*stream.partial)
    assert stored(session) == [(WHOLE, "complete")]


def test_items_of_an_answer_are_one_commit(harness: Harness) -> None:
    session = asked(harness)
    stream = session.stream(
        events.responses(ITEMS, each), format="openai_responses", meta={"author": "main", "id": "x"}
    )
    assert list(stream) == list(events.responses(ITEMS, each))
    assert stored(session) == [(item, "complete") for item in ITEMS]
    first, second = list(session.messages())[1:]
    assert (first.author, second.author, first.id, second.id) == ("main", "main", "x", None)
    assert stream.appended is not None and (stream.appended.first, stream.appended.last) == (3, 4)
    assert [tool_call.name for tool_call in next(session.loops()).tool_calls] == ["f"]


def test_an_answer_of_more_items_than_a_commit_takes(harness: Harness) -> None:
    session = asked(harness)
    many = [{**ITEMS[1], "call_id": f"c{at}"} for at in range(30)]
    list(session.stream(events.responses(many, each), format="openai_responses"))
    assert stored(session) == [(item, "complete") for item in many]


def test_a_session_that_has_ended_meanwhile_is_told_and_the_streams_own_error_goes_first(harness: Harness) -> None:
    session = asked(harness)
    session.end()
    with pytest.raises(SessionEndedError):
        list(session.stream(chunks()))
    with pytest.raises(BrokenError) as caught:
        list(session.stream(breaking(chunks(), 5)))
    assert "not saved" in caught.value.__notes__[0]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a8_d1_saved_again_after_a_fault_it_is_there_once(harness: Harness, when: str) -> None:
    clean = harness.log(user="clean").sessions.create("s")
    before = harness.faults.calls
    list(clean.stream(chunks()))
    for at in boundaries(harness.faults.calls - before, harness.name):
        session = harness.log(user=f"u{when}{at}").sessions.create("s")
        stream = session.stream(chunks())
        harness.faults.fail(at, when)
        try:
            list(stream)
        except UnavailableError:
            assert stream.save() is not None
        harness.faults.clear()
        assert [message.body for message in session.messages()] == [WHOLE]


# ------------------------------------------------------------ asyncio


async def asynchronous(many: list[dict[str, Any]], *, wait_at: int | None = None) -> AsyncIterator[dict[str, Any]]:
    for at, item in enumerate(many):
        if at == wait_at:
            await asyncio.sleep(3600)
        yield item


def test_async_events_pass_through(harness: Harness) -> None:
    session = asked(harness)

    async def run() -> list[Any]:
        async with session.stream_async(asynchronous(chunks())) as stream:
            return [chunk async for chunk in stream]

    assert asyncio.run(run()) == chunks()
    assert stored(session) == [(WHOLE, "complete")]


def test_a_cancelled_one_is_kept_before_the_cancellation_goes_on(harness: Harness) -> None:
    session = asked(harness)

    async def read() -> None:
        async with session.stream_async(asynchronous(chunks(), wait_at=4)) as stream:
            async for _ in stream:
                pass

    async def run() -> None:
        task = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert stored(session) == [({"role": "assistant", "content": "Hel"}, "interrupted")]


class Connection:
    """A provider's stream, async and not. With ``fails``, closing it raises an error."""

    def __init__(self, closing: str = "close", *, fails: bool = False) -> None:
        self.closed, self._fails = 0, fails
        setattr(self, closing, self._aclose if closing == "aclose" else self._close)

    def __iter__(self) -> Iterator[Any]:
        return iter(chunks())

    def __aiter__(self) -> AsyncIterator[Any]:
        return asynchronous(chunks())

    def _close(self) -> None:
        self.closed += 1
        if self._fails:
            raise BrokenError

    async def _aclose(self) -> None:
        await asyncio.sleep(0)
        self._close()


@pytest.mark.parametrize("closing", ["sync", "close", "aclose"])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_one_that_is_left_is_kept_and_its_connection_closed_whatever_fails(
    harness: Harness, closing: str, fails: bool, error: type[Exception] | None
) -> None:
    session, connection = asked(harness), Connection("aclose" if closing == "aclose" else "close", fails=fails)

    def left(text: str) -> bool:
        if text == "Hel" and error is not None:
            raise error
        return text == "Hel"

    def read() -> None:
        with session.stream(connection) as stream:
            while not left(stream.text):
                next(stream)

    async def read_async() -> None:
        async with session.stream_async(connection) as stream:
            while not left(stream.text):
                await anext(stream)

    expected = error or (BrokenError if fails else None)
    with pytest.raises(expected) if expected is not None else nullcontext() as caught:
        read() if closing == "sync" else asyncio.run(read_async())
    if error is not None and fails:
        assert "was not closed" in caught.value.__notes__[0]
    assert connection.closed == 1
    assert stored(session) == [({"role": "assistant", "content": "Hel"}, "interrupted")]


@pytest.mark.parametrize("name", ["aclose", "close"])
def test_an_async_one_that_is_left_is_kept_its_connection_closed_and_over(harness: Harness, name: str) -> None:
    session, connection = asked(harness), Connection(name)

    async def run() -> list[Any]:
        async with session.stream_async(connection) as stream:
            async for _ in stream:
                if stream.text == "Hel":
                    break
        await stream.aclose()
        return [chunk async for chunk in stream]

    assert (asyncio.run(run()), connection.closed) == ([], 1)
    assert stored(session) == [({"role": "assistant", "content": "Hel"}, "interrupted")]


def test_an_async_one_that_is_left(harness: Harness) -> None:
    session = asked(harness)

    async def run() -> None:
        async with session.stream_async(asynchronous(chunks()), on_break="drop") as stream:
            async for _ in stream:
                break

    asyncio.run(run())
    assert stored(session) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_an_option_that_there_is_not_is_refused_before_the_reply_is_read(harness: Harness, is_async: bool) -> None:
    session = asked(harness)
    open_stream = session.stream_async if is_async else session.stream
    given: Any = asynchronous(chunks()) if is_async else chunks()
    with pytest.raises(TypeError, match="no option 'idempotent_key'"):
        open_stream(given, idempotent_key="k")
    with pytest.raises(InvalidInputError, match="on_break is 'save'; it is one of keep, drop"):
        open_stream(given, on_break="save")
