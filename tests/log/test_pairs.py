"""D2: pairs of operations on one session, in every order of requests that conflict, with one preemption.

`make full` explores three preemptions, and all pairs where `make pr` has one of three. Whatever the order, what is acknowledged is
there, the log is whole, and everything that is read says the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.effort import is_full, some
from tests.explorer import ScheduleRun, explore
from tests.support.pairs import OPERATIONS, SAID
from tests.support.steps import application, fresh
from tests.support.with_queue import with_queue
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import TurnlogError
from turnlog.core.identity import Owner
from turnlog.linter.rules import lint
from turnlog.log.commits import CommitLog
from turnlog.log.keys import SessionKeys
from turnlog.log.payloads import Payloads
from turnlog.ports import BlobStore, ItemTable
from turnlog.testing.fixed import FixedClock, SequentialIds

OWNER = Owner.of("acme", "ada")


def prepared(log: Turnlog) -> None:
    session = log.sessions.create("s", state={"n": 0})
    for number in range(3):
        session.append({"role": "user", "content": f"{number} " + "what about it " * 30})
        session.append({"role": "assistant", "content": f"{number} " + "that is so " * 30})
    session.create_snapshot("before")
    session.append({"role": "user", "content": "the last question"})
    session.patch_state({"m": 1})


def of(operation: str, start: int) -> Callable[[ItemTable, BlobStore], Any]:
    return lambda items, blobs: OPERATIONS[operation](with_queue(items, blobs, SequentialIds(start)).sessions.of("s"))


def may_be_refused(operation: str, other: str, error: TurnlogError) -> bool:
    """What is refused because the other came first."""
    if "end" in (operation, other) and error.error_code == "session_ended":
        return operation not in ("end", "snapshot", "full snapshot", "fork", "list", "update", "compress", "redact")
    return False


def check_whole(items: ItemTable, blobs: BlobStore) -> tuple[Session, list[int]]:
    """Everything that is read of the session says the same. Returns the positions in view."""
    log = application(items, blobs, SequentialIds(10**9))
    session, info = log.sessions.get("s"), log.sessions.get("s").info()
    commits = CommitLog(items, Payloads(items, blobs), FixedClock(), SequentialIds(10**9 + 1))
    stored = commits.range(SessionKeys(OWNER, "s"), 1, info.head)
    assert stored[-1].header.last == info.head
    shown = list(session.messages(in_view=True))
    assert (info.messages, info.tokens) == (len(shown), sum(item.tokens for item in shown))
    assert session.replay().state == session.state().state
    assert [item.session_id for item in log.sessions.list() if item.session_id == "s"] == ["s"]
    window = session.context(policy="full", budget=10**6, format="turnlog")
    assert [message["content"] for message in window.messages] == [item.body["content"] for item in shown]
    assert not lint(session.context(budget=100_000).messages, format="openai_chat")
    return session, [item.position for item in shown]


def check_effect(operation: str, answer: Any, session: Session) -> None:
    """What is acknowledged is there."""
    values = [item.action for item in session.history()]
    if operation == "append":
        assert [message.body for message in session.messages()].count(SAID) == 1
        assert answer.last <= session.info().head
    elif operation == "state":
        assert values.count("state_change") == 2
    elif operation == "compress":
        assert values.count("summary_published") >= (answer.status == "published")
    elif operation in ("snapshot", "full snapshot"):
        assert session.snapshot(answer.snapshot_id).position == answer.position <= session.info().head
    elif operation in ("restore", "rewind", "end"):
        assert values.count(operation) == 1
    elif operation == "update":
        assert values.count("policy_change") == 1
    elif operation == "redact":
        assert values.count("redact") == 1
        assert next(session.messages()).redacted
    elif operation == "fork":
        fork = Session(session.backend, "fork")
        assert (
            [message.position for message in fork.messages()]
            == [2, 3]
            == [message.position for message in fork.messages(in_view=True)]
        )
        assert fork.state().state == {"n": 0}
    else:
        assert "s" in answer


@pytest.mark.parametrize(("one", "other"), some(itertools.combinations_with_replacement(OPERATIONS, 2), 3))
def test_d2_every_order_of_a_pair_of_operations(one: str, other: str, tells: Callable[..., None]) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        session, shown = check_whole(items, blobs)
        for operation, its_other, answer in ((one, other, run.results[0]), (other, one, run.results[1])):
            if isinstance(answer, TurnlogError):
                assert may_be_refused(operation, its_other, answer), (operation, answer)
                continue
            assert not isinstance(answer, BaseException), (operation, answer)
            check_effect(operation, answer, session)
        assert shown == sorted(shown)

    operations = [of(one, 2_000), of(other, 3_000)]
    most = 3 if is_full() else 1
    tried = explore(operations, fresh(prepared), check, max_preemptions=most, only_conflicts=True)
    assert tried >= 1
    tells("at once", one, tried)
