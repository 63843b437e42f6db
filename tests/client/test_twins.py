"""The async objects are the sync ones': every method has its twin, of the same signature, that does the same."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, assert_type, cast

import pytest

from turnlog.agents.functions import ExecutingCall, RequestedCall, executing
from turnlog.client import async_twins
from turnlog.client.async_calls import CallThreads
from turnlog.client.async_twins import (
    AsyncDocumentReading,
    AsyncDocuments,
    AsyncPaged,
    AsyncSession,
    AsyncSessions,
    AsyncTurnlog,
)
from turnlog.client.documents import DocumentReading, Documents
from turnlog.client.model import Session, Sessions, Turnlog
from turnlog.routing import BY_NAME
from turnlog.sessions.document_models import Document
from turnlog.sessions.message_models import Appended, LoopAnswer

TWINS: list[tuple[type, type]] = [
    (Turnlog, AsyncTurnlog),
    (Sessions, AsyncSessions),
    (Session, AsyncSession),
    (Documents, AsyncDocuments),
    (DocumentReading, AsyncDocumentReading),
]
NAMES = {sync.__name__: twin.__name__ for sync, twin in TWINS}
MADE: dict[type, Callable[[Any], Any]] = {
    Turnlog: Turnlog,
    Sessions: Sessions,
    Session: lambda backend: Session(backend, "a"),
    Documents: lambda backend: Documents(backend, {"session_id": "a"}),
    DocumentReading: lambda backend: DocumentReading(backend, {"session_id": "a"}),
}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def signature(kind: type, name: str) -> inspect.Signature:
    return inspect.signature(inspect.getattr_static(kind, name).__get__(None, kind))


def is_property(kind: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(kind, name), property)


ALL = [(sync, twin, name) for sync, twin in TWINS for name in sorted(public(sync))]
METHODS = [(sync, twin, name) for sync, twin, name in ALL if not is_property(sync, name)]
PROPERTIES = [(sync, twin, name) for sync, twin, name in ALL if is_property(sync, name)]


@pytest.mark.parametrize(("sync", "twin"), TWINS)
def test_an_async_object_has_what_the_sync_one_has_and_no_more(sync: type, twin: type) -> None:
    """`run` and `stream` are those for asyncio, which the sync object has under names of their own."""
    assert public(twin) == public(sync) - {"run_async", "stream_async"}


@pytest.mark.parametrize(("sync", "twin", "name"), METHODS)
def test_a_twin_has_the_signature_of_its_method(sync: type, twin: type, name: str) -> None:
    other = name.removesuffix("_async")
    result = signature(sync, f"{other}_async" if hasattr(sync, f"{other}_async") else name)
    two = signature(twin, other)
    extra = {"max_calls"} if name == "open" else set()
    kept = [parameter for parameter in two.parameters.values() if parameter.name not in extra]
    assert kept == list(result.parameters.values())
    gives = NAMES | {"Turnlog": "Opening", "Self": "AsyncSession"}
    expected = re.sub(r"^Paged\[", "AsyncPaged[", gives.get(result.return_annotation, result.return_annotation))
    assert two.return_annotation == expected
    assert inspect.getdoc(getattr(twin, other)), "it says what it does"


@pytest.mark.parametrize(("sync", "twin", "name"), PROPERTIES)
def test_what_a_property_gives_is_a_twin_too(sync: type, twin: type, name: str) -> None:
    values = [inspect.getattr_static(kind, name).fget.__annotations__["return"] for kind in (sync, twin)]
    assert NAMES[values[0]] == values[1]


# ------------------------------------------------------------ what is finished when its caller is cancelled


class Asked(Exception):  # noqa: N818 - it is no error
    """A backend was asked; with whether that may write."""


class AskingBackend:
    def call(self, operation: str, **given: Any) -> Any:
        route = BY_NAME[operation]
        raise Asked(route.writes or route.method == "DELETE")

    def _written(self, *given: Any, **more: Any) -> Any:
        raise Asked(True)

    run_jobs = redrive = download = back_up = _written

    def verify(self, *given: Any) -> Any:
        raise Asked(False)

    def close(self) -> None:
        pass


class Watched(CallThreads):
    """Tells how a call was made, and makes it here."""

    def __init__(self) -> None:
        super().__init__(1)
        self.how = ""

    async def read(self, call: Any) -> Any:
        self.how = "read"
        return call()

    async def finish(self, call: Any) -> Any:
        self.how = "finish"
        return call()


VALUES: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "patch": {},
    "state": {},
    "position": 2,
    "to": 1,
    "from_": 1,
    "decision": "approve",
    "name": "recall_tool_call",
    "arguments": {"ref": "2.0"},
    "documents": {"a": b"1"},
    "names": ["a"],
    "keys": ["a"],
    "data": b"1",
}


def arguments(found: inspect.Signature, folder: Path) -> Iterator[tuple[str, Any]]:
    for parameter in found.parameters.values():
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            yield parameter.name, folder / "x.zip" if parameter.name == "into" else VALUES.get(parameter.name, "x")


CALLS = [
    (sync, name) for sync, _, name in METHODS if inspect.iscoroutinefunction(getattr(dict(TWINS)[sync], name, None))
]
WITHOUT_A_ROUTE = {"import_": "finish", "close": ""}
"""What `import_` reads is a file, before it writes."""
READ_FIRST = {"export", "cancel_run"}
"""Their first request reads: an export then makes a job and writes a file, a cancelled run is written to the agent's state."""


@pytest.mark.parametrize(("sync", "name"), [call for call in CALLS if call[1] not in WITHOUT_A_ROUTE])
def test_what_may_write_is_finished_and_what_only_reads_is_not(
    monkeypatch: pytest.MonkeyPatch, sync: type, name: str, tmp_path: Path
) -> None:
    threads, backend = Watched(), AskingBackend()
    made, kind = MADE[sync](backend), dict(TWINS)[sync]
    monkeypatch.setattr(async_twins, "CallThreads", lambda _: threads)
    twin: Any = AsyncTurnlog(made) if sync is Turnlog else kind(made, threads)
    method = getattr(twin, name)
    coroutine = method(**dict(arguments(inspect.signature(method), tmp_path)))
    call = RequestedCall("2.0", "c", "look", "{}", "a/2.0")  # `child` is of the call that is executed
    with executing(ExecutingCall(call, "a", "main", cast("Any", None), {}, set())), pytest.raises(Asked) as asked:
        coroutine.send(None)
    assert threads.how == ("finish" if asked.value.args[0] or name in READ_FIRST else "read")


def test_pages_are_iterated_and_not_awaited() -> None:
    values = [
        (twin, name)
        for sync, twin, name in METHODS
        if str(signature(sync, name).return_annotation).startswith("Paged[")
    ]
    assert len(values) == 9
    assert not any(inspect.iscoroutinefunction(getattr(twin, name)) for twin, name in values)


async def calls(log: AsyncTurnlog) -> None:
    """Show mypy (`make lint`) what a caller has: the parameters of the sync methods, and their answers."""
    session = assert_type(await log.sessions.create("a", title="A"), AsyncSession)
    assert_type(await session.append({"role": "user", "content": "hi"}, idempotency_key="k"), Appended)
    assert_type(session.loops(), AsyncPaged[LoopAnswer])
    assert_type(await session.fork(at=2), AsyncSession)
    assert_type(await session.documents.get("a"), Document | None)
    assert_type(session.handles("recall_tool_call"), bool)


def test_help_shows_the_parameters_and_the_text_of_the_sync_method() -> None:
    text = " ".join(pydoc.plain(pydoc.render_doc(AsyncSession.append)).split())
    assert re.search(r"async append\( ?self, \*messages: 'GivenMessage', meta:", text)
    assert "Append 1 to 25 messages in one commit." in text
    assert "-> 'AsyncPaged[LoopAnswer]'" in pydoc.plain(pydoc.render_doc(AsyncSession.loops))


def test_the_calls_that_a_type_checker_accepts_also_run() -> None:
    with Turnlog.open("memory://") as log:
        asyncio.run(calls(AsyncTurnlog(log)))
