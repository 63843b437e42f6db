"""A tenant's tokens of a day: never over the limit, whoever asks at the same time; then extracts in the model's place."""

from __future__ import annotations

import logging
import random
from typing import Any, cast

import pytest

from tests.conftest import Harness
from tests.support.scripted import Outcome, ScriptedSummariser, summarise_with
from tests.support.talks import filled
from turnlog.app import LoggedSignals
from turnlog.client.model import Session
from turnlog.core.errors import (
    CorruptError,
    SummariserConfigError,
    SummaryRefusedError,
    ThrottledError,
    TurnlogError,
    UnavailableError,
)
from turnlog.core.summaries import LoopText, Spent, Summarised, SummaryRequest
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.engines.token_estimate import EstimateCounter
from turnlog.log.keys import TenantKeys
from turnlog.ports import Condition, Item, Lost
from turnlog.summaries.budget import Spending, SummariseWithinBudget
from turnlog.summaries.summarisers import ExtractiveSummariser
from turnlog.testing.fixed import FixedClock, SequentialIds

DAY_SECONDS = 24 * 3600
GOOD = "All orders have left the warehouse."
PAID = Summarised(GOOD, "bedrock:m", 900, 100)
REFUSED = SummaryRefusedError("no", details={"reason": "empty", "input_tokens": 300, "output_tokens": 7})


def spending(harness: Harness) -> Spending:
    return Spending(harness.app.engine.items, harness.clock, harness.app.ids, harness.app.signals)


def with_model(harness: Harness, *outcomes: Outcome, limit: int = 1_000_000) -> tuple[Session, ScriptedSummariser]:
    """A session of ten loops whose summaries are made by a scripted model."""
    model, counter = ScriptedSummariser(outcomes, name="bedrock:m"), EstimateCounter()
    composed = SummariseWithinBudget(
        model,
        ExtractiveSummariser(counter),
        spending(harness),
        counter,
        tokens_per_day=limit,
    )
    summarise_with(harness.app, composed)
    return filled(harness.log(), 10), model


def spent(harness: Harness, tenant: str = "acme") -> Spent:
    return spending(harness).of_day(tenant, harness.clock.now_ms())


def test_the_counter_is_arithmetic() -> None:
    begun = Spent().reserve(60, limit=100)
    assert begun is not None and begun.tokens == 60
    assert begun.reserve(41, limit=100) is None
    both = begun.reserve(40, limit=100)
    assert both is not None and both.tokens == 100
    ended = both.settle(60, input_tokens=50, output_tokens=5)
    assert ended == Spent(1, 50, 5, 40)
    assert ended.settle(40, input_tokens=0, output_tokens=0) == Spent(1, 50, 5, 0)
    assert Spent().settle(10, input_tokens=1, output_tokens=0) == Spent(1, 1, 0, 0)


def test_a_summary_by_the_model_is_counted(harness: Harness) -> None:
    session, model = with_model(harness, PAID)
    made = session.compress().summary
    assert (made.text, made.summariser) == (GOOD, "bedrock:m")
    assert "ORD-00003" in {fact.value for fact in made.facts}, "facts ride beside the text"
    assert model.requests[0].tenant_id == "acme"
    assert spent(harness) == Spent(1, 900, 100, 0)
    assert spent(harness, "other") == Spent()


def test_over_the_budget_it_is_extracted(harness: Harness) -> None:
    session, model = with_model(harness, limit=500)
    made = session.compress().summary
    assert made.summariser == "extractive-4 (over_budget)"
    assert "Question 3" in made.text
    assert model.requests == []
    assert spent(harness) == Spent()


def test_one_warning_a_day_says_that_the_tokens_are_used_up(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """Also for an own function: its summaries are replaced too."""
    # Days of which neither another test nor this one on another engine has warned in this process.
    harness.clock.advance(random.Random(harness.name).randrange(100, 9_000) * DAY_SECONDS)
    session, _ = with_model(harness, limit=500)
    for day in range(2):
        for keep in (5, 4, 3):
            assert session.compress(keep_loops=keep - day).summary.summariser == "extractive-4 (over_budget)"
        harness.clock.advance(DAY_SECONDS)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([text for text in warnings if "summary_tokens_per_day" in text]) == 2


def test_the_next_day_has_its_own(harness: Harness) -> None:
    session, model = with_model(harness, Summarised(GOOD, "m", 1_800, 100), PAID, limit=3_000)
    assert session.compress(keep_loops=5).summary.summariser == "m"
    assert session.compress(keep_loops=4).summary.summariser == "extractive-4 (over_budget)"
    harness.clock.advance(DAY_SECONDS)
    assert session.compress(keep_loops=3).summary.summariser == "bedrock:m"
    assert model.is_done
    assert spent(harness) == Spent(1, 900, 100, 0)


def test_a_refused_answer_costs_and_is_extracted(harness: Harness) -> None:
    session, _ = with_model(harness, REFUSED)
    made = session.compress().summary
    assert made.summariser == "extractive-4 (refused: empty)"
    assert "Question 3" in made.text
    assert spent(harness) == Spent(1, 300, 7, 0)


@pytest.mark.parametrize(
    ("error", "is_charged"),
    [
        (UnavailableError("down"), False),
        (ThrottledError("slow down"), False),
        (SummariserConfigError("denied"), False),
        (UnavailableError("late", code="summariser_timeout"), True),
        (UnavailableError("odd", code="summariser_unreadable"), True),
    ],
)
def test_what_fails_is_raised_and_nothing_is_published(harness: Harness, error: TurnlogError, is_charged: bool) -> None:
    session, _ = with_model(harness, error, PAID)
    with pytest.raises(type(error)):
        session.compress()
    assert session.summary() is None
    result = spent(harness)
    assert result.calls == 0
    assert bool(result.reserved) is is_charged, "a model that may have worked has its tokens counted"
    session.append({"role": "user", "content": "goes on"})
    assert session.context(budget=100_000).messages
    assert session.compress().status == "published"


def test_calls_at_the_same_time_share_one_budget(harness: Harness) -> None:
    """Reservations: however they interleave, what is under way and what is spent stay within the limit."""
    first, second = spending(harness), spending(harness)
    result = first.reserve("acme", 400, limit=1_000)
    two = second.reserve("acme", 500, limit=1_000)
    assert result is not None and two is not None
    assert first.reserve("acme", 101, limit=1_000) is None
    assert first.reserve("acme", 400, limit=1_000) is None
    # Each knows an item that the other has replaced since.
    first.settle(result, input_tokens=300, output_tokens=20)
    second.settle(two, input_tokens=400, output_tokens=30)
    assert spent(harness) == Spent(2, 700, 50, 0)


def test_a_budget_that_others_change_at_every_try_is_busy(harness: Harness) -> None:
    other, pauses = spending(harness), list[float]()

    class Racing(FixedClock):
        """A clock in whose pauses another writer comes first."""

        def sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            assert other.reserve("acme", 1, limit=1_000) is not None

    counted = Spending(harness.app.engine.items, Racing(), harness.app.ids, harness.app.signals)
    reservation = counted.reserve("acme", 400, limit=1_000)
    assert reservation is not None and pauses == []
    other.reserve("acme", 1, limit=1_000)
    with pytest.raises(UnavailableError, match="all 10 tries") as raised:
        counted.settle(reservation, input_tokens=10, output_tokens=1)
    assert raised.value.error_code == "busy"
    assert pauses == [0.025] * 10


def test_a_put_whose_answer_is_lost_charges_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends such a put again, and its condition fails on the item that the first one wrote."""
    items, counted = harness.app.engine.items, spending(harness)
    put = items.put

    def put_twice(item: Item, *, condition: Condition | None = None) -> Lost | None:
        put(item, condition=condition)
        return put(item, condition=condition)

    monkeypatch.setattr(items, "put", put_twice)
    reservation = counted.reserve("acme", 400, limit=1_000)
    assert reservation is not None and spent(harness) == Spent(reserved=400)
    counted.settle(reservation, input_tokens=300, output_tokens=20)
    assert spent(harness) == Spent(1, 300, 20, 0)


def test_a_call_over_midnight_is_settled_on_its_day(harness: Harness) -> None:
    counted, yesterday = spending(harness), harness.clock.now_ms()
    reservation = counted.reserve("acme", 400, limit=1_000)
    assert reservation is not None
    harness.clock.advance(DAY_SECONDS)
    counted.settle(reservation, input_tokens=10, output_tokens=1)
    assert spent(harness) == Spent()
    assert counted.of_day("acme", yesterday) == Spent(1, 10, 1, 0)


def test_a_settlement_that_fails_throws_no_text_away(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = with_model(harness, PAID)
    monkeypatch.setattr(Spending, "settle", _down)
    assert session.compress().summary.text == GOOD
    assert spent(harness).reserved > 0


def _down(*_: Any, **__: Any) -> None:
    raise UnavailableError("the table is down")


def test_the_item_has_counts_only_and_an_end(harness: Harness) -> None:
    session, _ = with_model(harness, PAID)
    session.compress()
    key = TenantKeys("acme").spending("2025-11-21")
    item = dict(harness.app.engine.items.get_many([key])[key])
    assert item.pop("ttl") == 1_763_683_200 + 8 * DAY_SECONDS
    assert len(cast("bytes", item.pop("w"))) == 8, "random bytes of the write"
    assert item == {"pk": "T#acme", "sk": "B#2025-11-21", "n": 2, "c": 1, "i": 900, "o": 100, "r": 0}
    harness.app.engine.items.put({**item, "i": "many"})
    with pytest.raises(CorruptError, match="B#2025-11-21"):
        spent(harness)


def test_a_model_costs_one_get_and_two_puts(harness: Harness) -> None:
    counted, before = spending(harness), harness.faults.calls
    for _ in range(3):
        reservation = counted.reserve("acme", 10, limit=1_000)
        assert reservation is not None
        counted.settle(reservation, input_tokens=1, output_tokens=1)
    assert harness.faults.calls - before == 3 * 3
    assert counted.reserve("acme", 1_000, limit=1_000) is None
    assert harness.faults.calls - before == 3 * 3 + 1, "over the limit: one get"


def test_a_request_without_a_tenant_is_not_counted(harness: Harness) -> None:
    counter = EstimateCounter()
    model = ScriptedSummariser([PAID, REFUSED])
    extracts = ExtractiveSummariser(counter)
    composed = SummariseWithinBudget(model, extracts, spending(harness), counter, tokens_per_day=0)
    before = harness.faults.calls
    assert composed.summarise(SummaryRequest("", (), 100)) == PAID
    assert composed.summarise(SummaryRequest("", (), 100)).summariser == "extractive-4 (refused: empty)"
    assert harness.faults.calls == before


def test_the_operator_is_told_what_calls_took_and_what_was_over_the_budget() -> None:
    counts, counter, items = list[tuple[str, int]](), EstimateCounter(), SqliteItemTable(SqliteDatabase(MEMORY))

    class Counts:
        """`Signals` that are kept."""

        def count(self, name: str, value: int = 1) -> None:
            counts.append((name, value))

    model = ScriptedSummariser([PAID, REFUSED, Summarised(GOOD, "m", 1, 0)])
    composed = SummariseWithinBudget(
        model,
        ExtractiveSummariser(counter),
        Spending(items, FixedClock(), SequentialIds(), Counts()),
        counter,
        tokens_per_day=2_007,
    )
    for _ in range(4):
        composed.summarise(SummaryRequest("", (), 100, "acme"))
    assert counts == [("summary_tokens", tokens) for tokens in (1_000, 307, 1)] + [("summary_over_budget", 1)]


@pytest.mark.parametrize(("missing_tokens", "summariser"), [(0, "bedrock:m"), (1, "extractive-4 (over_budget)")])
def test_a_call_needs_tokens_for_its_prompt_its_texts_and_its_answer(missing_tokens: int, summariser: str) -> None:
    counter, texts = EstimateCounter(), ("before", "part one", "where is it?", "on its way", "find {}", "look {}")
    loops = (LoopText(1, texts[2], texts[3], texts[4:]), LoopText(2, "", ""))
    tokens = 600 + 100 + sum(counter.count(text) + 8 for text in texts)
    composed = SummariseWithinBudget(
        ScriptedSummariser([PAID]),
        ExtractiveSummariser(counter),
        Spending(SqliteItemTable(SqliteDatabase(MEMORY)), FixedClock(), SequentialIds(), LoggedSignals()),
        counter,
        tokens_per_day=tokens - missing_tokens,
    )
    assert composed.summarise(SummaryRequest(texts[0], loops, 100, "acme", texts[1:2])).summariser == summariser


def test_v2_logs_have_counts_and_reasons_only(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    session, _ = with_model(harness, PAID, REFUSED)
    session.append({"role": "user", "content": "canary-7731 " * 90}, {"role": "assistant", "content": "canary " * 90})
    session.compress(keep_loops=5)
    session.compress(keep_loops=0)
    ours = [record.getMessage() for record in caplog.records if record.name == "turnlog"]
    assert "the model took 900 tokens in, 100 out" in ours
    assert "a summary is not by bedrock:m: refused: empty" in ours
    assert "canary" not in "\n".join(ours)
