"""The client for asyncio: the same objects over each engine; what is cancelled, closed or shared loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.service import Gate, gated, status
from turnlog import AsyncSession, AsyncTurnlog, Turnlog
from turnlog.client.over_http import HttpBackend
from turnlog.core.errors import HeadMismatchError, InvalidInputError, SessionExistsError, UnavailableError
from turnlog.snapshots.routes import Snapshot

USER = {"role": "user", "content": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": "A17"}'}}
TOOL = {"type": "function", "function": {"name": "get_order", "parameters": {"type": "object"}}}


def said(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number}"}


@pytest.fixture
def gate() -> Iterator[Gate]:
    with gated() as (_, made):
        yield made


@pytest.fixture(params=["memory", "sqlite", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param != "http":
        yield "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'agent.db'}"
        return
    with gated() as (_, made):
        yield made.url


async def all_of(pages: Any) -> list[Any]:
    return [page async for page in pages]


def test_a_client_that_was_not_awaited_says_so() -> None:
    with pytest.raises(AttributeError, match="'sessions' of a client that is not open: `log = await "):
        AsyncTurnlog.open("memory://").sessions  # type: ignore[attr-defined]  # noqa: B018


def test_it_is_opened_with_each_option_that_the_other_client_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    places: dict[str, dict[str, Any]] = {
        "memory://": {"tenant": "acme", "user": "ada", "worker": False, "summariser": str},
        "http://127.0.0.1:1": {"token": "secret", "aws": False, "timeout_seconds": 8.0, "deadline_seconds": 9.0},
    }
    result, opened = dict[str, Any](), Turnlog.open
    names = inspect.signature(opened).parameters.keys() - {"url"}
    assert inspect.signature(AsyncTurnlog.open).parameters.keys() - {"url", "max_calls"} == names
    assert names == {name for options in places.values() for name in options}

    def watched(url: str, **options: Any) -> Turnlog:
        result[url] = {name: value for name, value in options.items() if value is not None}
        return opened(url, **options)

    monkeypatch.setattr(Turnlog, "open", watched)

    async def life() -> None:
        for url, options in places.items():
            async with AsyncTurnlog.open(url, **options):
                pass

    asyncio.run(life())
    assert result == places


@pytest.mark.network
def test_an_agent_s_life_in_asyncio(url: str) -> None:
    async def life() -> None:
        async with AsyncTurnlog.open(url) as log:
            assert (await log.health()).status == "ok"
            session = await log.sessions.get_or_create("a", system="Be brief.", tools=[TOOL])
            assert isinstance(session, AsyncSession) and session.id == "a" and repr(session) == "AsyncSession('a')"
            with pytest.raises(SessionExistsError):
                await log.sessions.create("a")
            appended = await session.append(USER, {"role": "assistant", "content": None, "tool_calls": [CALL]})
            await session.append(
                {"role": "tool", "tool_call_id": "call_1", "content": "shipped"}, if_head=appended.head
            )
            with pytest.raises(HeadMismatchError):
                await session.append(USER, if_head=appended.head)
            await session.append({"role": "assistant", "content": "It is shipped."})
            window = await session.context(format="anthropic", budget=50_000)
            assert window.system and window.messages
            assert (await session.recall("3.0")).content == "shipped"
            answer = await session.execute_tool("recall_tool_call", {"ref": "3.0"}, call_id="x")
            assert "shipped" in answer.text and session.handles("recall_tool_call")
            assert (await session.patch_state({"n": 1})).state == {"n": 1}
            assert [loop.status async for loop in session.loops()] == ["closed"]
            snapshot = await session.create_snapshot("here")
            assert isinstance(snapshot, Snapshot) and [snapshot.name async for snapshot in session.snapshots()] == [
                "here"
            ]
            await session.documents.put_many({f"n/{number}": b"x" * number for number in range(30)})
            values = [item.key async for item in session.documents.list("n/", limit=7)]
            assert values == sorted(f"n/{number}" for number in range(30))[:7]
            document = await session.documents.reading().get("n/3")
            assert document is not None and document.data == b"xxx"
            await session.documents.delete(["n/3"])
            assert await session.documents.get("n/3") is None
            fork = await session.fork("b", at=2)
            assert isinstance(fork, AsyncSession) and (await fork.info()).messages == 1
            fresh = await fork.reset()
            assert isinstance(fresh, AsyncSession) and fresh.id not in ("a", "b")
            assert {item.session_id async for item in log.sessions.list()} == {"a", "b", fresh.id}
            assert await log.sessions.exists("a") and not await log.sessions.exists("c")
            assert (await log.sessions.get("a")).id == log.sessions.of("a").id
            assert (await session.replay()).state == {"n": 1}

    asyncio.run(life())


@pytest.mark.network
def test_pages_come_one_after_the_other_as_they_do_in_threads(url: str) -> None:
    async def read() -> None:
        async with AsyncTurnlog.open(url) as log:
            session = await log.sessions.create("a")
            for start in range(0, 250, 25):
                await session.append(*map(said, range(start, start + 25)))
            for order, expected in (("asc", range(250)), ("desc", range(249, -1, -1))):
                result = await all_of(session.messages(order=order))  # type: ignore[arg-type]
                assert [item.body for item in result] == list(map(said, expected))
            none = session.messages(at=1)
            assert await all_of(none) == [] and await all_of(none) == []

    asyncio.run(read())


@pytest.mark.network
def test_runs_and_streams_are_those_for_asyncio(url: str) -> None:
    async def model(window: Any) -> Any:
        is_told = window.messages[-1]["role"] == "tool"
        content = "It is shipped." if is_told else None
        return {"role": "assistant", "content": content} | ({} if is_told else {"tool_calls": [CALL]})

    async def get_order(id: str) -> str:
        await asyncio.sleep(0)
        return f"{id} is shipped"

    async def chunks() -> Any:
        for text in ("It ", "is."):
            yield {"choices": [{"index": 0, "delta": {"content": text}}]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    async def work() -> None:
        async with AsyncTurnlog.open(url) as log:
            session = await log.sessions.create("a", tools=[TOOL])
            async with session.run(model, {"get_order": get_order}) as run:
                outcome = await run.send("Where is A17?")
            assert outcome.text == "It is shipped."
            async with session.stream(chunks()) as stream:
                assert len([chunk async for chunk in stream]) == 3
            assert stream.appended is not None and stream.text == "It is."
            assert (await session.info()).messages == 5

    asyncio.run(work())


@pytest.mark.network
def test_it_is_opened_by_with_or_by_await(url: str) -> None:
    async def use(log: AsyncTurnlog) -> None:
        await (await log.sessions.get_or_create("a")).append(USER)

    async def work() -> None:
        async with AsyncTurnlog.open(url) as log:
            await use(log)
        async with await AsyncTurnlog.open(url, user="ada") as log:
            await use(log)
        log = await AsyncTurnlog.open(url)
        await use(log)
        await log.close()
        async with AsyncTurnlog(Turnlog.open(url)) as log:
            await use(log)
        with pytest.raises(InvalidInputError):
            await AsyncTurnlog.open("nothing://")
        with pytest.raises(InvalidInputError, match="max_calls"):
            AsyncTurnlog.open(url, max_calls=0)

    asyncio.run(work())


@pytest.mark.network
def test_tasks_that_write_at_once_lose_nothing(url: str) -> None:
    async def work() -> None:
        async with AsyncTurnlog.open(url, max_calls=8) as log:
            session = await log.sessions.create("a")
            await asyncio.gather(*(session.append(said(number), idempotency_key=f"k{number}") for number in range(40)))
            result = await all_of(session.messages())
            assert sorted(item.body["content"] for item in result) == sorted(said(n)["content"] for n in range(40))
            assert [item.position for item in result] == list(range(2, 42))

    asyncio.run(work())


# ------------------------------------------------------------ cancellation


class Held:
    """A fault: requests stand still until they are let go."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.go = threading.Event()
        self.most = self._now = 0
        self._lock = threading.Lock()

    def __call__(self, handler: Any) -> bool:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self.arrived.release()
        self.go.wait(10)
        with self._lock:
            self._now -= 1
        return True

    async def arrival(self) -> None:
        assert await asyncio.to_thread(self.arrived.acquire, timeout=10)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.network
@pytest.mark.parametrize("times", [1, 3])
def test_a_write_under_way_is_done_before_its_caller_is_told_of_the_cancellation(gate: Gate, times: int) -> None:
    async def work() -> None:
        async with AsyncTurnlog.open(gate.url) as log:
            session = await log.sessions.create("a")
            held = Held()
            gate.plan = [held]
            task = asyncio.create_task(session.append(USER))
            await held.arrival()
            for _ in range(times):
                task.cancel()
                await turns()
            assert not task.done()
            held.go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled() and [item.body for item in await all_of(session.messages())] == [USER]

    asyncio.run(work())


@pytest.mark.network
def test_a_read_is_left_alone_and_the_client_goes_on(gate: Gate) -> None:
    async def work() -> None:
        async with AsyncTurnlog.open(gate.url) as log:
            session = await log.sessions.create("a")
            held = Held()
            gate.plan = [held]
            task = asyncio.create_task(session.info())
            await held.arrival()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await session.info()).messages == 0
            held.go.set()

    asyncio.run(work())


@pytest.mark.network
def test_no_more_calls_at_once_than_there_are_threads_and_a_cancelled_one_in_line_is_not_made(gate: Gate) -> None:
    async def work() -> None:
        async with AsyncTurnlog.open(gate.url, max_calls=2) as log:
            session = await log.sessions.create("a")
            held = Held()
            gate.plan = [held] * 6
            tasks = [asyncio.create_task(session.append(said(number))) for number in range(6)]
            await held.arrival()
            await held.arrival()
            tasks[5].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[5]
            held.go.set()
            await asyncio.gather(*tasks[:5])
            values = {item.body["content"] for item in await all_of(session.messages())}
            assert values == {said(number)["content"] for number in range(5)} and held.most == 2

    asyncio.run(work())


@pytest.mark.network
def test_a_page_that_was_cancelled_is_not_lost(gate: Gate) -> None:
    async def work() -> None:
        async with AsyncTurnlog.open(gate.url, max_calls=1) as log:
            session = await log.sessions.create("a")
            for start in range(0, 225, 25):
                await session.append(*map(said, range(start, start + 25)))
            messages, result = session.messages(), []
            for _ in range(3):
                held = Held()
                gate.plan = [held]
                task = asyncio.create_task(anext(messages))
                await held.arrival()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                held.go.set()
                await log.health()  # behind the page, in the one thread
                result += [await anext(messages) for _ in range(min(100, 225 - len(result)))]
            assert [item.body for item in result] == list(map(said, range(225)))
            assert await anext(messages, None) is None

    asyncio.run(work())


@pytest.mark.network
def test_a_page_that_failed_is_asked_for_again(gate: Gate) -> None:
    async def work() -> None:
        async with AsyncTurnlog(Turnlog(HttpBackend(gate.url, max_tries=1))) as log:
            session = await log.sessions.create("a")
            await session.append(USER)
            messages = session.messages()
            gate.plan = [status(503)]
            with pytest.raises(UnavailableError):
                await anext(messages)
            assert (await anext(messages)).body == USER

    asyncio.run(work())


@pytest.mark.network
def test_a_client_that_is_cancelled_while_it_is_opened_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, go, begun, closed = Turnlog.open, threading.Event(), threading.Event(), []
    monkeypatch.setattr(Turnlog, "close", lambda self: closed.append(self))

    def slowly(*given: Any, **options: Any) -> Turnlog:
        begun.set()
        go.wait(10)
        return opened(*given, **options)

    monkeypatch.setattr(Turnlog, "open", slowly)

    async def work() -> None:
        task = asyncio.create_task(AsyncTurnlog.open("memory://").__aenter__())
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        await turns()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert len(closed) == 1


# ------------------------------------------------------------ close, loops, contexts


@pytest.mark.network
def test_closing_waits_for_what_is_under_way_and_nothing_comes_after_it(gate: Gate) -> None:
    async def work() -> None:
        log = await AsyncTurnlog.open(gate.url)
        session = await log.sessions.create("a")
        held = Held()
        gate.plan = [held]
        writing = asyncio.create_task(session.append(USER))
        await held.arrival()
        closing = asyncio.create_task(log.close())
        await turns()
        late: list[Callable[[], Awaitable[Any]]] = [
            session.info, lambda: session.append(USER), log.health, lambda: anext(session.messages())
        ]  # fmt: skip
        for call in late:
            with pytest.raises(UnavailableError) as caught:
                await call()
            assert caught.value.error_code == "closed"
        assert not closing.done() and not writing.done()
        held.go.set()
        await closing
        assert (await writing).first == 2
        await log.close()

    asyncio.run(work())


@pytest.mark.network
def test_a_client_belongs_to_no_event_loop(url: str) -> None:
    log = AsyncTurnlog(Turnlog.open(url))

    async def add(number: int) -> int:
        session = await log.sessions.get_or_create("a")
        await session.append(said(number))
        return (await session.info()).messages

    assert [asyncio.run(add(number)) for number in range(3)] == [1, 2, 3]
    asyncio.run(log.close())


def test_a_call_sees_the_context_of_its_caller() -> None:
    """Trace ids and the like are in context variables."""
    traced: contextvars.ContextVar[str] = contextvars.ContextVar("traced")

    class Backend:
        def call(self, operation: str, **given: Any) -> Any:
            return traced.get()

        def close(self) -> None:
            pass

    async def work() -> None:
        async with AsyncTurnlog(Turnlog(Backend())) as log:  # type: ignore[arg-type]
            for name in ("a", "b"):
                traced.set(name)
                assert await log.health() == name  # type: ignore[comparison-overlap]
                assert await log.erase_me() == name  # type: ignore[comparison-overlap]

    asyncio.run(work())


def test_errors_of_calls_nobody_waits_for_are_not_reported_as_lost() -> None:
    class Backend:
        def call(self, operation: str, **given: Any) -> Any:
            begun.set()
            go.wait(10)
            raise UnavailableError("gone")

        def close(self) -> None:
            pass

    begun, go, reported = threading.Event(), threading.Event(), []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        async with AsyncTurnlog(Turnlog(Backend())) as log:  # type: ignore[arg-type]
            for call in (log.health, log.erase_me):
                begun.clear()
                go.clear()
                task = asyncio.create_task(call())
                await asyncio.to_thread(begun.wait, 10)
                task.cancel()
                await turns()
                go.set()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    asyncio.run(work())
    assert not reported
