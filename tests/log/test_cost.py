"""V1: requests and capacity per operation, metered by the guard on moto; flat in session length."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Literal

import pytest

from tests.conftest import Harness, moto_harness, sqlite_harness
from tests.support.costs import FIXTURE, OWNER, TEXT, filled
from tests.support.scripted import ScriptedSummariser, summarise_with
from turnlog.client.model import Session
from turnlog.core.positions import SEGMENT_POSITIONS
from turnlog.summaries.budget import Spending, SummariseWithinBudget
from turnlog.testing.fixed import SequentialIds


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    with moto_harness(monkeypatch) as made:
        yield made


@pytest.mark.parametrize("messages", [10, 1_000, pytest.param(10_000, marks=pytest.mark.full)])
def test_an_append_is_two_requests_one_wcu_and_one_rcu_at_any_length(moto: Harness, messages: int) -> None:
    """A key costs one put and one write unit more."""
    assert len(TEXT) == 600
    session = filled(moto, messages)
    for at in range(30):
        key = f"key-{at}" if at % 2 else None
        with moto.meter.measure() as spent:
            head = session.append(FIXTURE, idempotency_key=key).head
        # One in 256 asks for a segment: a job's record and a message.
        asks, keyed = int(head % SEGMENT_POSITIONS == 0), at % 2
        assert dict(spent.requests) == {"Query": 1, "PutItem": 1 + keyed + asks} | ({"SendMessage": 1} if asks else {})
        assert spent.write_units == 1 + keyed + asks, f"append {at}"
        assert spent.read_units <= 1
        assert spent.index_write_units == 0


@pytest.mark.parametrize("messages", [10, 1_000, pytest.param(10_000, marks=pytest.mark.full)])
def test_an_append_that_crosses_the_trigger_is_four_requests_and_two_wcu(moto: Harness, messages: int) -> None:
    """A job's record and its message come to what an append costs; the one after it costs no more than any."""
    session = filled(moto, messages)
    session.update(policy={"steps": [{"step": "summary"}], "compress": {"any": [{"loops_over": 3}]}})
    for crosses in (True, False):
        with moto.meter.measure() as spent:
            answer = session.append(FIXTURE)
        assert answer.compression == ("queued" if crosses else "none")
        assert dict(spent.requests) == {"Query": 1, "PutItem": 1 + crosses} | ({"SendMessage": 1} if crosses else {})
        assert spent.write_units == 1 + crosses
        assert spent.read_units <= 1


def test_a_retry_reads_what_has_come_since_its_first_attempt(moto: Harness) -> None:
    session = filled(moto, 10)
    session.append(FIXTURE, idempotency_key="key")
    for _ in range(4):
        session.append(FIXTURE)
    with moto.meter.measure() as spent:
        session.append(FIXTURE, idempotency_key="key")
    assert dict(spent.requests) == {"Query": 2, "PutItem": 1}
    assert spent.write_units == 1
    assert spent.read_units <= 1 + 5


@pytest.mark.parametrize("name", ["put_state", "record", "update", "rewind", "end", "compress"])
def test_a_key_costs_any_call_one_put_and_one_write_unit(moto: Harness, name: str) -> None:
    requests = list[dict[str, float]]()
    for key in (None, "key"):
        session = moto.log(*OWNER).sessions.create(f"session-000{int(key is None)}")
        for at in range(12):
            session.append({"role": ("user", "assistant")[at % 2], "content": f"{at}: {TEXT}"})
        arguments: dict[str, Any] = {"update": {"title": "New"}, "compress": {}, "end": {}}.get(name, {})
        positional = {"put_state": [{"n": 1}], "record": ["noted"], "rewind": [3]}.get(name, [])
        with moto.meter.measure() as spent:
            getattr(session, name)(*positional, idempotency_key=key, **arguments)
        requests.append(dict(spent.requests) | {"write units": spent.write_units})
    without, keyed = requests
    more = {name: keyed[name] - without.get(name, 0) for name in keyed}
    assert {name: count for name, count in more.items() if count} == {"PutItem": 1, "write units": 1}


def test_the_read_of_an_append_is_one_rcu(moto: Harness) -> None:
    session = filled(moto, 10)
    for at in range(30):
        with moto.meter.measure() as spent:
            session.append(FIXTURE, idempotency_key=f"key-{at}")
        assert spent.read_units <= 1, f"append {at}"


def test_an_append_at_10000_messages_makes_the_calls_it_makes_at_10(tmp_path: Any) -> None:
    """The same on SQLite, where 10,000 messages are quick: the calls of the port, which are one request each."""
    with sqlite_harness(tmp_path) as harness:
        session = filled(harness, 10)
        counts = list[int]()
        for length in (10, 10_000):
            while session.info().messages < length:
                start = session.info().messages
                session.append(
                    *({"role": ("user", "assistant")[n % 2], "content": str(n)} for n in range(start, start + 25))
                )
            before = harness.faults.calls
            session.append(FIXTURE)
            counts.append(harness.faults.calls - before)
            before = harness.faults.calls
            session.append(FIXTURE, idempotency_key=f"at-{length}")
            counts.append(harness.faults.calls - before)
        assert counts == [2, 3, 2, 3]


def test_a_window_of_64_commits_is_one_request(moto: Harness) -> None:
    session = harness_conversation(moto, commits=64)
    with moto.meter.measure() as spent:
        window = session.context()
    assert dict(spent.requests) == {"Query": 1}
    assert spent.read_units <= 13
    assert len(window.messages) == 65  # the system text, with the line of the recall tools
    assert spent.write_units == 0


@pytest.mark.parametrize("messages", [200, pytest.param(10_000, marks=pytest.mark.full)])
def test_a_window_costs_the_same_at_any_length(moto: Harness, messages: int) -> None:
    """One message a commit, so that a page of commits is few messages."""
    session = moto.log(*OWNER).sessions.create("session-0001")
    for number in range(messages):
        session.append({"role": ("user", "assistant")[number % 2], "content": f"{number}. {TEXT[:400]}"})
        if number + 1 in (10, messages):
            with moto.meter.measure() as spent:
                window = session.context(budget=8_000)
            assert dict(spent.requests) == {"Query": 1}
            assert spent.read_units <= (2 if number < 10 else 30)
    assert any(part.kind == "older" for part in window.manifest.parts)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_page_of_messages_reads_the_commits_that_it_needs(moto: Harness, order: Literal["asc", "desc"]) -> None:
    """One request more where the newest commit has more messages than others."""
    session = moto.log(*OWNER).sessions.create("session-0001")
    texts = [sha256(str(number).encode()).hexdigest() for number in range(25)]
    talk = [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
    for _ in range(20):
        session.append(*talk)
    with moto.meter.measure() as spent:
        assert len(session.page(limit=100, order=order).messages) == 100
    assert dict(spent.requests) == {"Query": 2}
    assert spent.read_units <= 4  # all commits are 9
    for message in talk * 5:
        session.append(message)
    session.append(*talk)
    with moto.meter.measure() as spent:
        assert len(session.page(after=501, limit=100, order=order).messages) == 100
    assert dict(spent.requests)["Query"] <= 4


def test_system_messages_at_the_beginning_cost_a_long_window_one_small_request(moto: Harness) -> None:
    session = moto.log(*OWNER).sessions.create("session-0001")
    session.append({"role": "system", "content": "Be brief."})
    for number in range(300):
        session.append({"role": ("user", "assistant")[number % 2], "content": f"{number}. {TEXT[:400]}"})
    with moto.meter.measure() as spent:
        window = session.context(budget=8_000)
    assert any(part.kind == "older" for part in window.manifest.parts)
    assert {"role": "system", "content": "Be brief."} in window.messages
    assert dict(spent.requests) == {"Query": 2}
    assert spent.read_units <= 30


def test_a_window_with_payloads_that_are_sent_whole_is_two_requests(moto: Harness) -> None:
    session = harness_conversation(moto, commits=20)
    call = {"id": "c9", "type": "function", "function": {"name": "cat", "arguments": "{}"}}
    session.append({"role": "user", "content": "show"}, {"role": "assistant", "content": None, "tool_calls": [call]})
    session.append({"role": "tool", "tool_call_id": "c9", "content": "".join(f"{at * 7919:x} " for at in range(2_000))})
    with moto.meter.measure() as spent:
        session.context()
    assert sum(spent.requests.values()) == 2
    session.append({"role": "assistant", "content": "There."}, {"role": "user", "content": "thanks"})
    with moto.meter.measure() as spent:
        session.context(policy="run_loops")
    assert sum(spent.requests.values()) == 1, "a digest needs no payload"


def test_recall_is_two_requests_and_one_more_for_a_later_commit_and_for_what_is_out_of_line(moto: Harness) -> None:
    session = harness_conversation(moto, commits=40)
    call = {"id": "c9", "type": "function", "function": {"name": "cat", "arguments": "{}"}}
    asked, large = (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        "".join(f"{at * 7919:x} " for at in range(2_000)),
    )
    for content, apart, requests in (("small", False, 2), ("small", True, 3), (large, False, 3), (large, True, 4)):
        answer = {"role": "tool", "tool_call_id": "c9", "content": content}
        batches = [[asked], [answer]] if apart else [[asked, answer]]
        refs = [session.append(*batch).refs for batch in batches]
        ref = refs[0][0].ref
        session.append({"role": "assistant", "content": "Seen."})
        with moto.meter.measure() as spent:
            assert session.recall(ref).found
        assert sum(spent.requests.values()) == requests
        assert spent.write_units == 0
    with moto.meter.measure() as spent:
        assert session.recall(call_id="c9").ref == ref
    assert sum(spent.requests.values()) == 2, "one page back, one payload"


def test_a_search_of_what_is_not_sealed_is_one_request_for_each_page_and_one_for_the_segments(moto: Harness) -> None:
    session = harness_conversation(moto, commits=64)
    with moto.meter.measure() as spent:
        assert session.search("warehouse").results
    assert dict(spent.requests) == {"Query": 2}
    assert spent.write_units == 0


def harness_conversation(harness: Harness, *, commits: int) -> Session:
    session = harness.log(*OWNER).sessions.create("session-0001", system="You are a careful agent. " * 8)
    for at in range(commits):
        session.append({"role": ("user", "assistant")[at % 2], "content": f"{at}: {TEXT[:400]}"})
    return session


def test_a_change_of_the_state_is_two_reads_and_two_writes_at_any_length(moto: Harness) -> None:
    """The end of the log and the state are read, the commit and the state are written."""
    session = filled(moto, 10)
    session.put_state({"lang": "en", "cart": []})
    spent_at = list[tuple[dict[str, int], float, float]]()
    for length in (10, 200):
        filled_to(session, length)
        with moto.meter.measure() as spent:
            session.patch_state({"lang": "zh"})
        spent_at.append((dict(spent.requests), spent.write_units, spent.read_units))
    assert spent_at[0] == spent_at[1]
    assert spent_at[0][0] == {"Query": 1, "GetItem": 1, "PutItem": 2}
    assert spent_at[0][1] == 2
    assert spent_at[0][2] <= 2
    with moto.meter.measure() as spent:
        session.state()
    assert (dict(spent.requests), spent.write_units) == ({"Query": 1, "GetItem": 1}, 0)
    with moto.meter.measure() as spent:
        session.history_page(limit=100)
    assert (dict(spent.requests), spent.write_units) == ({"Query": 1}, 0)
    with moto.meter.measure() as spent:
        session.record("noted")
    assert dict(spent.requests) == {"Query": 1, "GetItem": 1, "PutItem": 1}


def filled_to(session: Session, messages: int) -> None:
    for at in range(session.info().messages, messages, 25):
        session.append(*({"role": "user", "content": f"{n}"} for n in range(at, min(at + 25, messages))))


def test_a_decision_and_a_result_that_ends_the_waiting_write_the_commit_and_the_state(
    moto: Harness,
) -> None:
    call = {"id": "c9", "type": "function", "function": {"name": "cat", "arguments": "{}"}}
    asked, answer = (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c9", "content": "x"},
    )
    for decides in (True, False):
        session = moto.log(*OWNER).sessions.create(f"session-000{decides:d}")
        session.append(FIXTURE, asked, run={"pending_action": {"call_id": "c9"}})
        with moto.meter.measure() as spent:
            session.decide_pending("reject") if decides else session.append(answer)
        puts = spent.requests["PutItem"]
        assert puts == 2, "the commit and the state"
        assert sum(spent.requests.values()) - puts == (3 if decides else 2)


def test_a_model_costs_a_summary_one_get_and_two_puts(moto: Harness) -> None:
    """The tenant's tokens: a small item, read, set aside and settled."""
    requests = list[dict[str, int]]()
    for is_model in (False, True):
        extractive = moto.app.summariser
        if is_model:
            spending = Spending(moto.app.engine.items, moto.clock, SequentialIds(), moto.app.signals)
            model = ScriptedSummariser(["All of it was about one order."])
            counter = moto.app.counter
            within = SummariseWithinBudget(model, extractive, spending, counter, tokens_per_day=100_000)
            summarise_with(moto.app, within)
        session = moto.log(*OWNER).sessions.create(f"session-000{is_model:d}")
        for at in range(12):
            session.append({"role": ("user", "assistant")[at % 2], "content": f"{at}: {TEXT}"})
        with moto.meter.measure() as spent:
            assert session.compress().status == "published"
        requests.append(dict(spent.requests) | {"write units": spent.write_units})
    without, with_model = requests
    more = {name: with_model[name] - without.get(name, 0) for name in with_model}
    assert {name: count for name, count in more.items() if count} == {"GetItem": 1, "PutItem": 2, "write units": 2}


def test_the_list_entry_is_touched_at_most_every_five_minutes(moto: Harness) -> None:
    session = filled(moto, 2)
    touches = 0
    for _ in range(40):
        moto.clock.advance(30)
        with moto.meter.measure() as spent:
            session.append(FIXTURE)
        touches += spent.requests["PutItem"] - 1
    assert 3 <= touches <= 4  # 20 minutes
    listed = next(harness_listed(moto))
    assert listed.messages >= 30


def test_a_quiet_session_is_settled_by_the_first_list_and_exact_from_then_on(moto: Harness) -> None:
    session = filled(moto, 2)
    for at in range(5):
        session.append(FIXTURE, idempotency_key=f"key-{at}")
    moto.log(*OWNER).sessions.create("newer")
    moto.clock.advance(301)
    for expected in (True, False):
        with moto.meter.measure() as spent:
            listed = {item.session_id: item for item in harness_listed(moto)}
        assert listed["session-0001"].messages == 7
        assert listed["session-0001"] == session.info()
        assert (spent.requests["PutItem"] > 0) is expected
    assert dict(spent.requests) == {"Query": 1}
    session.append(FIXTURE)
    assert next(harness_listed(moto)).messages == 8


def harness_listed(harness: Harness) -> Iterator[Any]:
    return harness.log(*OWNER).sessions.list()


def test_a_create_is_a_handful_of_requests(moto: Harness) -> None:
    """The first session of a user also puts the user into the list of its tenant's users."""
    for name, puts in (("first", 5), ("second", 4)):
        with moto.meter.measure() as spent:
            moto.log(*OWNER).sessions.create(name)
        assert dict(spent.requests) == {"PutItem": puts, "BatchGetItem": 1}


def test_a_change_of_settings_an_end_and_a_reset_are_a_handful_of_requests(moto: Harness) -> None:
    """The end of the log is read, and the settings beside it; the commit, the caches and the entry of the list are written.

    What ends is noted before, and handed to long-term memory by a job: its record and its message.
    """
    session = moto.log(*OWNER).sessions.create("plain", system="Be brief.")
    with moto.meter.measure() as spent:
        session.update(title="New")
    assert dict(spent.requests) == {"Query": 1, "GetItem": 1, "PutItem": 4}
    with moto.meter.measure() as spent:
        session.end()
    assert dict(spent.requests) == {"Query": 1, "GetItem": 1, "PutItem": 4, "SendMessage": 1}
    other = moto.log(*OWNER).sessions.create("other", system="Be brief.")
    with moto.meter.measure() as spent:
        other.reset()
    assert dict(spent.requests) == {"Query": 2, "GetItem": 3, "BatchGetItem": 1, "PutItem": 9, "SendMessage": 1}


def test_a_list_is_one_query(moto: Harness) -> None:
    log = moto.log(*OWNER)
    for at in range(5):
        log.sessions.create(f"s{at}")
    list(log.sessions.list())
    with moto.meter.measure() as spent:
        assert len(log.sessions.page(limit=3).sessions) == 3
    assert dict(spent.requests) == {"Query": 1}


def test_the_fixtures_names_have_12_characters() -> None:
    assert {len(part) for part in (*OWNER, "session-0001")} == {12}
