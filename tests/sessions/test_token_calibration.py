"""What appends tell of windows: when one was sent, and how the provider counted it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Harness, moto_harness
from tests.support.as_json import as_json
from tests.support.costs import FIXTURE, OWNER
from tests.support.costs import filled as filled_fast
from tests.support.talks import AMPLE, filled, turn
from turnlog.client.model import Session
from turnlog.core.errors import BudgetTooSmallError, InvalidInputError
from turnlog.log.headers import read_header
from turnlog.ports import Query, item_size_bytes
from turnlog.sessions.message_models import Appended


def told(session: Session, number: int, percent: int, **more: Any) -> Appended:
    """One exchange, whose reply tells that the provider counted so many hundredths of our tokens."""
    session.append({"role": "user", "content": f"Question {number}"})
    window = session.context()
    tokens = more.pop("tokens", window.tokens)
    used = {"position": more.pop("position", window.head), "tokens": tokens}
    usage = {"input_tokens": tokens * percent // 100, "output_tokens": 5}
    return session.append({"role": "assistant", "content": f"Answer {number}"}, window=used, usage=usage, **more)


def factor(session: Session) -> float:
    return session.context().manifest.budget.factor


def test_the_budget_is_in_the_providers_tokens(harness: Any) -> None:
    session = filled(harness.log(), 10)
    assert factor(session) == 1
    before = session.context(budget=2_000)
    factors = list[float]()
    for number in range(5):
        told(session, number, 150)
        factors.append(factor(session))
    assert factors == [1, 1, 1.5, 1.5, 1.5]
    window = session.context(budget=3_000)
    assert (window.manifest.budget.tokens, window.manifest.budget.source) == (3_000, "given")
    assert window.tokens * 1.5 <= 3_000
    assert as_json(session.context(build=window.manifest.build)) == as_json(window)
    assert as_json(session.context(build=before.manifest.build)) == as_json(before), "at that time it was 1"
    session.append(*turn(30))
    session.compress(keep_loops=1)
    assert factor(session) == 1.5, "other commits carry it on"
    assert as_json(session.context(build=window.manifest.build)) == as_json(window)


def test_a_window_never_has_more_of_our_tokens_than_its_budget(log: Any) -> None:
    session = filled(log, 30)
    for number in range(5):
        told(session, number, 30)
    assert factor(session) == 1
    for budget in (500, 1_000, 2_000):
        assert session.context(budget=budget).tokens <= budget


def test_the_budget_of_an_agent_within_a_call_is_in_the_providers_tokens_too(log: Any) -> None:
    session = filled(log, 10)
    for number in range(3):
        told(session, number, 150)
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    session.append({"role": "user", "content": "Find it."})
    head = session.append({"role": "assistant", "content": None, "tool_calls": [call]}).head
    parent = {"ref": f"{head}.0", "agent_id": "finder"}
    for number in range(30):
        session.append({"role": ("user", "assistant")[number % 2], "content": "word " * 60}, parent=parent)
    window = session.context(budget=1_500, parent=parent)
    assert (window.manifest.budget.tokens, window.manifest.budget.factor) == (1_500, 1.5)
    assert window.tokens * 1.5 <= 1_500


def test_what_is_needed_is_in_the_providers_tokens_too(log: Any) -> None:
    session = filled(log, 4)
    for number in range(3):
        told(session, number, 137)
    with pytest.raises(BudgetTooSmallError) as raised:
        session.context(budget=5)
    assert raised.value.__cause__ is None, "a traceback with other figures would confuse"
    needed = int(raised.value.details["needed"])
    assert session.context(budget=needed).tokens * 1.4 <= needed
    assert raised.value.details["budget"] == 5 and 0 < int(raised.value.details["fixed"]) < needed
    with pytest.raises(BudgetTooSmallError):
        session.context(budget=needed - 2)


def test_counts_that_can_not_be_true_are_kept_reported_and_teach_nothing(harness: Any) -> None:
    session = filled(harness.log(), 4, strict=True)
    for number in range(6):
        answer = told(session, number, 0 if number % 2 else 900)
        assert [(warning.code, warning.pointer) for warning in answer.warnings] == [("usage_ignored", "/usage")]
    assert factor(session) == 1
    for number in range(6):
        assert told(session, number, 300, tokens=40).warnings == []
    assert factor(session) == 1, "small windows teach nothing"
    told(session, 9, 150, idempotency_key="k")
    session.append({"role": "user", "content": "?"}, usage={"input_tokens": 9, "output_tokens": 9})


@pytest.mark.parametrize(
    ("notes", "pointer"),
    [
        ({"window": {"position": 99, "tokens": 500}}, "/window/position"),
        ({"window": {"position": 0, "tokens": 500}}, "/window/position"),
        ({"window": {"position": 2, "tokens": -1}}, "/window/tokens"),
        ({"window": {"position": 2, "tokens": 10**9}}, "/window/tokens"),
        ({"usage": {"input_tokens": -5, "output_tokens": 1}}, "/usage/input_tokens"),
        ({"usage": {"input_tokens": 10**12, "output_tokens": 1}}, "/usage/input_tokens"),
        ({"usage": {"input_tokens": True, "output_tokens": 1}}, "/usage/input_tokens"),
        ({"usage": {"input_tokens": 5, "output_tokens": 10**12}}, "/usage/output_tokens"),
    ],
)
def test_hostile_counts_are_refused(log: Any, notes: dict[str, Any], pointer: str) -> None:
    session = filled(log, 1)
    with pytest.raises(InvalidInputError) as raised:
        session.append({"role": "user", "content": "hi"}, **notes)
    assert raised.value.problems[0].pointer == pointer
    assert session.info().head == 5


def test_last_sent_is_what_the_newest_append_with_a_window_named(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 2)
    assert (session.info().last_sent_at, session.info().last_sent_position) == (None, None)
    told(session, 1, 100)
    info = session.info()
    assert (info.last_sent_position, info.last_sent_at) == (10, info.updated_at)
    harness.clock.advance(600)
    session.append(*turn(5))
    session.append({"role": "user", "content": "?"}, usage={"input_tokens": 9, "output_tokens": 9})
    session.compress(keep_loops=0)
    later = session.info()
    assert (later.last_sent_at, later.last_sent_position) == (info.last_sent_at, 10)
    harness.clock.advance(600)
    assert next(iter(log.sessions.list())) == later


def test_an_append_that_is_repeated_teaches_once(log: Any) -> None:
    session = filled(log, 4)
    for number in range(2):
        answer = told(session, number, 150, idempotency_key=f"k{number}")
    window = {"position": session.info().head, "tokens": 1_000}
    for _ in range(4):
        again = session.append(
            {"role": "user", "content": "hi"},
            window=window,
            usage={"input_tokens": 100, "output_tokens": 5},
            idempotency_key="same",
        )
    assert [warning.code for warning in again.warnings] == ["usage_ignored"]
    assert answer.warnings == []
    assert factor(session) == 1


def test_an_append_that_teaches_costs_the_same_and_its_header_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    with moto_harness(monkeypatch) as harness:
        session = filled_fast(harness, 10)
        for at in range(30):
            with harness.meter.measure() as spent:
                session.append(
                    FIXTURE,
                    window={"position": session_head(harness), "tokens": 12_345},
                    usage={"input_tokens": 14_321 + at, "output_tokens": 456},
                )
            assert spent.write_units == 1, f"append {at}"
            assert spent.requests["PutItem"] == 1
        item = newest(harness)
        assert read_header(item).calibration.percent == 120
        header = {name: value for name, value in item.items() if name not in ("pk", "sk", "b")}
        assert item_size_bytes(header) < 200
        assert session.context(budget=AMPLE).manifest.budget.factor == 1.2


def newest(harness: Harness) -> dict[str, Any]:
    partition = f"T#{OWNER[0]}#U#{OWNER[1]}#S#session-0001"
    return dict(harness.app.engine.items.query(Query(partition, "C#", "C~", descending=True, limit=1)).items[0])


def session_head(harness: Harness) -> int:
    return int(newest(harness)["l"])
