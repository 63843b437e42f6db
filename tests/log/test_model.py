"""All operations in any order, against a plain model, on every engine: what is read is what the model says."""

from __future__ import annotations

import io
import itertools
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.conftest import Harness
from tests.effort import examples
from tests.log.plain_model import PlainSession
from tests.support.jobs import poller
from turnlog.client.model import Session, Turnlog
from turnlog.core import positions as borders
from turnlog.core.errors import ConflictError, NotFoundError, SessionEndedError
from turnlog.core.identity import Owner
from turnlog.log.keys import export_blob
from turnlog.windows.text import NOTHING_SAID

AMPLE = 1_000_000
_users = itertools.count(1)
said = st.tuples(st.sampled_from(["user", "assistant"]), st.text("abc é", min_size=1, max_size=8))
bodies = st.lists(said, min_size=1, max_size=4)
states = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3) | st.text("xy", max_size=3), max_size=3)
at_some = st.floats(0, 1)


class Sessions(RuleBasedStateMachine):
    """``harness`` is given by the test: its engine lives longer than an example, whose sessions are a user's own."""

    harness: Harness

    def __init__(self) -> None:
        super().__init__()
        self.user = f"user-{next(_users)}"
        self.log: Turnlog = self.harness.log(user=self.user)
        self.plain: dict[str, PlainSession] = {}
        self.newest = ""
        self.made = 0
        self.snapshots: dict[str, list[tuple[str, int]]] = {}

    # ------------------------------------------------------------ what is done

    @initialize(state=states)
    def begin(self, state: dict[str, Any]) -> None:
        self.create(state)

    @rule(state=states)
    @precondition(lambda self: len(self.plain) < 3)
    def create(self, state: dict[str, Any]) -> None:
        made = self.log.sessions.create(self._new_id(), state=state, title="first")
        self.plain[made.id] = PlainSession(made.id, state, "first")
        self.newest = made.id

    @rule(said=bodies, at=at_some)
    def append(self, said: list[tuple[str, str]], at: float) -> None:
        session, plain = self._any(at)
        messages = [{"role": role, "content": text} for role, text in said]
        if plain.is_ended:
            with pytest.raises(SessionEndedError):
                session.append(*messages)
            return
        answer = session.append(*messages, idempotency_key=f"append {plain.head}")
        plain.append(messages)
        assert answer.head == plain.head
        assert session.append(*messages, idempotency_key=f"append {plain.head - len(messages)}") == answer

    @rule(state=states, at=at_some)
    def put_state(self, state: dict[str, Any], at: float) -> None:
        session, plain = self._any(at)
        if not plain.is_ended:
            session.put_state(state)
            plain.put_state(state)

    @rule(title=st.none() | st.text("abc", max_size=4), at=at_some)
    def update(self, title: str | None, at: float) -> None:
        session, plain = self._any(at)
        session.update(title=title)
        plain.retitle(title)

    @rule(at=at_some)
    def compress(self, at: float) -> None:
        session, plain = self._any(at)
        if session.compress(keep_loops=0).status == "published":
            plain.note()

    @rule(at=at_some)
    def record(self, at: float) -> None:
        session, plain = self._any(at)
        session.record("noted")
        plain.note()

    @rule(at=at_some, to=at_some)
    def rewind(self, at: float, to: float) -> None:
        session, plain = self._any(at)
        position = 1 + int(to * (plain.head - 1))
        if plain.is_ended:
            with pytest.raises(SessionEndedError):
                session.rewind(position)
            return
        assert session.rewind(position).head == plain.head + 1
        plain.rewind(position)

    @rule(at=at_some, to=at_some)
    @precondition(lambda self: len(self.plain) < 6)
    def fork(self, at: float, to: float) -> None:
        session, plain = self._any(at)
        position = 1 + int(to * (plain.head - 1))
        if position not in plain.messages and not plain.moments[position].view and position > 1:
            return
        made = session.fork(self._new_id(), at=position)
        self.plain[made.id] = plain.fork(made.id, position, made.info().head)
        self.newest = made.id

    @rule(at=at_some, kind=st.sampled_from(["ref", "full"]))
    def snapshot(self, at: float, kind: Any) -> None:
        session, plain = self._any(at)
        made = session.create_snapshot(kind=kind)
        assert made.position == plain.head
        self.snapshots.setdefault(session.id, []).append((made.snapshot_id, made.position))

    @rule(at=at_some, which=at_some)
    def restore(self, at: float, which: float) -> None:
        session, plain = self._any(at)
        taken = self.snapshots.get(session.id)
        if not taken or plain.is_ended:
            return
        snapshot_id, position = taken[min(int(which * len(taken)), len(taken) - 1)]
        session.restore_snapshot(snapshot_id, as_="rewind")
        plain.rewind(position)

    @rule(at=at_some, which=at_some)
    @precondition(lambda self: len(self.plain) < 6)
    def restore_elsewhere(self, at: float, which: float) -> None:
        session, plain = self._any(at)
        taken = self.snapshots.get(session.id)
        if taken:
            snapshot_id, position = taken[min(int(which * len(taken)), len(taken) - 1)]
            made = session.restore_snapshot(snapshot_id, session_id=self._new_id())
            self.plain[made.session_id] = plain.fork(made.session_id, position, made.head)

    @rule(at=at_some)
    @precondition(lambda self: len(self.plain) > 2)
    def erase(self, at: float) -> None:
        session, _ = self._any(at)
        session.erase()
        del self.plain[session.id]
        if at > 0.3:
            self._poll()
        with pytest.raises(NotFoundError):
            session.info()
        with pytest.raises(ConflictError):
            self.log.sessions.create(session.id)

    @rule(at=at_some, which=at_some)
    def redact(self, at: float, which: float) -> None:
        """The job is done by the next poll, or by a later one: nobody reads what was said from here on."""
        session, plain = self._any(at)
        if not plain.messages:
            return
        position = sorted(plain.messages)[min(int(which * len(plain.messages)), len(plain.messages) - 1)]
        session.redact(position)
        plain.redact(position)
        self._poll()

    @rule(at=at_some)
    @precondition(lambda self: len(self.plain) < 6)
    def move(self, at: float) -> None:
        session, plain = self._any(at)
        session.backend.call("export_session", path={"session_id": session.id}, body={})
        data = self.harness.app.engine.blobs.get(export_blob(Owner.of("acme", self.user), session.id))
        assert data is not None
        (made,) = self.log.sessions.import_(io.BytesIO(data), session_id=self._new_id())
        assert (made.status, made.position) == ("imported", plain.head)
        self.plain[made.session_id] = plain.moved(made.session_id)

    @rule(at=at_some, key=st.sampled_from("abc"), data=st.none() | st.binary(max_size=4))
    def document(self, at: float, key: str, data: bytes | None) -> None:
        session, plain = self._any(at)
        if plain.is_ended:
            with pytest.raises(SessionEndedError):
                session.documents.put(key, b"")
        elif data is None:
            session.documents.delete([key])
            plain.documents.pop(key, None)
        else:
            session.documents.put(key, data)
            plain.documents[key] = data

    @rule()
    def _poll(self) -> None:
        """Do what waits: erasures, redactions, segments.

        A redaction has an entry in the history of each session that has the message; a later poll may write those of forks.
        """
        poller(self.harness).run_once()
        for session_id, item in self.plain.items():
            session = self.log.sessions.of(session_id)
            for entry in list(session.history())[: session.info().head - item.head]:
                assert entry.action == "redact"
                item.note()

    @rule(at=at_some)
    def end(self, at: float) -> None:
        session, plain = self._any(at)
        if not plain.is_ended and at > 0.8:
            session.end()
            plain.end()

    # ------------------------------------------------------------ what must hold

    @rule(at=at_some, to=at_some)
    def everything_reads_as_the_model_says(self, at: float, to: float) -> None:
        session, plain = self._any(at)
        _same(session, plain)
        position = 1 + int(to * (plain.head - 1))
        _same_at(session, plain, position)
        result = session.diff(position)
        came = [item for item in plain.now.view if item not in plain.moments[position].view]
        assert [message.position for message in result.messages] == came

    def teardown(self) -> None:
        for session_id, plain in self.plain.items():
            session = self.log.sessions.of(session_id)
            _same(session, plain)
            assert [message.position for message in session.messages(order="desc")] == sorted(plain.messages)[::-1]
        listed = {item.session_id: item.head for item in self.log.sessions.list()}
        assert set(listed) == set(self.plain)

    def _new_id(self) -> str:
        self.made += 1
        return f"s{self.made}"

    def _any(self, at: float) -> tuple[Session, PlainSession]:
        ids = list(self.plain)
        session_id = ids[min(int(at * len(ids)), len(ids) - 1)]
        self.newest = session_id
        return self.log.sessions.of(session_id), self.plain[session_id]


def _same(session: Session, plain: PlainSession) -> None:
    info = session.info()
    assert (info.head, info.title, info.messages) == (plain.head, plain.now.title, len(plain.now.view))
    assert info.status == ("ended" if plain.is_ended else "active")
    assert {message.position: message.body for message in session.messages()} == plain.messages
    assert [message.position for message in session.messages(in_view=True)] == list(plain.now.view)
    assert session.state().state == plain.now.state
    assert {item.key: item.data for item in session.documents.list()} == plain.documents
    assert _texts(session) == [plain.messages[item]["content"] for item in plain.now.view]
    by_loop = {(loop.first, loop.last) for loop in session.loops()}
    assert {first for first, _ in by_loop} <= set(plain.now.view)


def _same_at(session: Session, plain: PlainSession, position: int) -> None:
    then = plain.moments[position]
    assert [message.position for message in session.messages(at=position)] == list(then.view)
    assert session.state(at=position).state == then.state
    assert _texts(session, at=position) == [plain.messages[item]["content"] for item in then.view]


def _texts(session: Session, **options: Any) -> list[str]:
    """What a window of everything says, without the lines that make it valid."""
    window = session.context(policy="full", budget=AMPLE, format="turnlog", **options)
    return [message["content"] for message in window.messages if message["content"] != NOTHING_SAID]


def test_any_operations_in_any_order(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", 16)
    is_slow = harness.name == "moto"
    most = examples(20) if is_slow else examples(150)
    machine = type("Machine", (Sessions,), {"harness": harness})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=most,
            stateful_step_count=12 if is_slow else 25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
