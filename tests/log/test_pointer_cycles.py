"""Stored pointers that lead back to where they begin end every walk with `CorruptError`; none goes on for ever."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import Harness
from tests.integrations.checkpoints import checkpoint, config
from tests.support.forged_exports import forged
from turnlog import Turnlog
from turnlog.client import Paged
from turnlog.client.model import Session
from turnlog.core.errors import CorruptError, InvalidInputError
from turnlog.core.events import StateEvent
from turnlog.core.identity import Owner
from turnlog.integrations.langgraph import TurnlogSaver
from turnlog.integrations.langgraph.records import Base, Checkpointed, Elements, Value
from turnlog.integrations.langgraph.threads import ThreadSessions
from turnlog.log.commit import VERIFIED
from turnlog.log.commits import Draft
from turnlog.log.headers import following
from turnlog.log.keys import SessionKeys

OWNER = Owner.of("acme", "ada")
pytestmark = pytest.mark.timeout(30)


def point(harness: Harness, fork: str, to: str) -> None:
    """Make a fork's first commit say that its log goes on before it in another session."""
    items, key = harness.app.engine.items, SessionKeys(OWNER, fork).commit(1)
    items.put({**items.get_many([key])[key], "bs": to})
    VERIFIED.clear()


USES: dict[str, Callable[[Session], Any]] = {
    "messages": lambda session: list(session.messages()),
    "from the first": lambda session: session.page(after=1),
    "from the newest": lambda session: list(session.messages(order="desc")),
    "a window": lambda session: session.context(),
    "history": lambda session: list(session.history()),
    "an earlier state": lambda session: session.state(at=3),
    "an earlier moment": lambda session: session.context(at=3),
    "a rewind": lambda session: session.rewind(3),
    "a diff": lambda session: session.diff(3),
    "a fork of it": lambda session: session.fork("another", at=3),
    "an export": lambda session: session.backend.call("export_session", path={"session_id": session.id}, body={}),
    "a redaction": lambda session: session.redact(3),
}


@pytest.mark.parametrize("circle", [("a",), ("a", "b"), ("a", "b", "c")], ids="".join)
@pytest.mark.parametrize("use", USES)
def test_forks_that_are_forks_of_one_another_are_corrupt(harness: Harness, circle: tuple[str, ...], use: str) -> None:
    session = harness.log().sessions.create("first", state={"x": 1})
    session.append(*({"role": "user", "content": f"{number}"} for number in range(4)))
    for name in circle:
        session = session.fork(name)
        session.append({"role": "user", "content": f"in {name}"})
    point(harness, circle[0], circle[-1])
    with pytest.raises(CorruptError):
        USES[use](session)


def test_forks_of_forks_may_be_many(harness: Harness) -> None:
    """However long a way is, it is no circle."""
    session = harness.log().sessions.create("0")
    session.append({"role": "user", "content": "once"}, {"role": "user", "content": "more"})
    for number in range(1, 12):
        session = session.fork(f"{number}", at=3 if number % 2 else None)
    assert [message.body["content"] for message in session.messages()] == ["once", "more"]
    assert [message.body["content"] for message in session.messages(order="desc")] == ["more", "once"]


@pytest.mark.every_engine
def test_a_state_that_is_a_change_of_itself_is_corrupt(harness: Harness) -> None:
    session = harness.log().sessions.create("s", state={"x": 1})
    commits, keys = harness.app.log.commits, SessionKeys(OWNER, "s")
    tail = commits.tail(keys).header
    header = following(tail, kind="s", events=1, now_ms=harness.clock.now_ms())
    event = StateEvent(header.first, "patch", {"x": 2}, previous=header.first, count=1)
    draft = Draft(replace(header, last_state=header.first), (event,))
    assert commits.put(keys, draft, nonce=b"n" * 12, previous=tail.hash) is not None
    for read in (session.state, lambda: session.patch_state({"y": 1})):
        with pytest.raises(CorruptError, match="before it"):
            read()


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_file_with_such_a_state_is_not_imported(ahead: int) -> None:
    def change(lines: list[dict[str, Any]]) -> None:
        line = next(line for line in lines if line["events"][0]["k"] == "s")
        line["events"][0]["q"] = line["position"] + ahead

    with Turnlog.open("memory://") as log, pytest.raises(InvalidInputError, match="does not lie before it"):
        log.sessions.import_(io.BytesIO(forged(change)), session_id="x")


# ------------------------------------------------------------ LangGraph


def put(saver: TurnlogSaver, checkpoint_id: str, parent: str | None, **values: Any) -> None:
    new = dict.fromkeys(values, checkpoint_id)
    saver.put(config(checkpoint_id=parent), checkpoint(checkpoint_id, values, new), {}, new)


@pytest.mark.parametrize("circle", [["1f01"], ["1f01", "1f02"], ["1f01", "1f02", "1f03"]])
def test_checkpoints_that_are_their_own_ancestors_are_corrupt(harness: Harness, circle: list[str]) -> None:
    """The framework lets them be made: a checkpoint is put again under another parent. Values are read as before."""
    saver = TurnlogSaver(harness.log())
    for parent, name in zip([None, *circle], circle, strict=False):
        put(saver, name, parent, x=name)
    put(saver, circle[0], circle[-1], x="again")
    for each in (saver, TurnlogSaver(harness.log())):
        assert each.get_tuple(config(checkpoint_id=circle[0])).checkpoint["channel_values"] == {"x": "again"}  # type: ignore[union-attr]
        with pytest.raises(CorruptError, match="ancestor"):
            each.get_delta_channel_history(config=config(), channels=["m"])
        assert len(list(each.list(config()))) == len(circle)


def test_a_prune_of_such_checkpoints_deletes_nothing(harness: Harness) -> None:
    saver = TurnlogSaver(harness.log())
    put(saver, "1f01", None, x=1)
    put(saver, "1f02", "1f01", x=2)
    version = {"x": "1f02"}
    meta: Any = {"counters_since_delta_snapshot": {"m": 1}}
    saver.put(config(checkpoint_id="1f02"), checkpoint("1f02", {"x": 2}, version), meta, version)
    with pytest.raises(CorruptError, match="ancestor"):
        saver.prune(["t"])
    assert len(list(saver.list(config()))) == 2


@pytest.mark.every_engine
@pytest.mark.parametrize("circle", [["1f02"], ["1f02", "1f01"]])
def test_a_list_that_continues_itself_is_corrupt(harness: Harness, circle: list[str]) -> None:
    log = harness.log()
    saver = TurnlogSaver(log)
    for name in ("1f01", "1f02"):
        put(saver, name, None, m=["a"])
    threads = ThreadSessions(log, {})
    (space,) = threads.namespaces("t")
    documents = threads.documents("t")
    dumped = saver.serde.dumps_typed(checkpoint(circle[0], {}, {"m": circle[0]}))
    for home, base in zip(circle, [*circle[1:], circle[0]], strict=True):
        list_ = Elements(Base(base, base, 0), ())
        record = Checkpointed(None, dumped, saver.serde.dumps_typed({}), (Value("m", home, list_),), (), None, None)
        documents.put_many({space.checkpoint(home): record.packed()})
    for read in (
        lambda item: item.get_tuple(config(checkpoint_id=circle[0])),
        lambda item: list(item.list(config())),
        lambda item: item.prune(["t"]),
    ):
        with pytest.raises(CorruptError, match="list"):
            read(TurnlogSaver(harness.log()))


# ------------------------------------------------------------ pages


def test_pages_that_name_themselves_are_corrupt() -> None:
    paged = Paged[int](lambda place: ([1], 7))
    with pytest.raises(CorruptError, match="page"):
        list(paged)
