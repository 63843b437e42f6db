"""The history: every event of the log is one entry, in order, found by page and by filter, on both engines."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.steps import LONG, application, fresh
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import IdempotencyMismatchError, InvalidInputError, NotFoundError, TooLargeError
from turnlog.sessions.history_routes import HistoryEntry
from turnlog.testing.fixed import SequentialIds

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TURN: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
    {"role": "tool", "tool_call_id": "c1", "content": "x"},
    {"role": "tool", "tool_call_id": "c2", "content": "y"},
    {"role": "assistant", "content": "there"},
]


def told(entry: HistoryEntry) -> tuple[Any, ...]:
    return entry.action, entry.agent_id, entry.diff


@pytest.fixture
def session(log: Turnlog) -> Session:
    return log.sessions.create("s", state={"lang": None})


@pytest.fixture
def here() -> Session:
    """In memory: for what no engine has a part in."""
    return application(*fresh(lambda log: None)(), SequentialIds()).sessions.create("s")


def test_every_event_is_an_entry(harness: Any, session: Session) -> None:
    session.append(*TURN, run={"agent_id": "planner", "iteration": 1})
    session.patch_state({"lang": "zh", "n": 1}, action="translated")
    session.patch_state([{"op": "remove", "path": "/n"}])
    session.put_state({"lang": "zh"})
    session.patch_agent({"iteration": 1}, agent_id="b")
    session.record("handed_over", agent_id="b", metadata={"to": "billing"})
    entries = list(session.history())
    assert [entry.history_id for entry in entries] == [str(position) for position in range(session.info().head, 0, -1)]
    agent = {"agents": {"planner": {"agent_id": "planner", "iteration": 1}}}
    assert [told(entry) for entry in reversed(entries)] == [
        ("create", None, [{"op": "replace", "path": "", "value": {"lang": None}}]),
        ("message_added", "planner", None),
        ("tool_call", "planner", None),
        ("tool_result", "planner", None),
        ("tool_result", "planner", None),
        ("message_added", "planner", None),
        ("run", "planner", agent),
        ("translated", None, {"lang": "zh", "n": 1}),
        ("state_change", None, [{"op": "remove", "path": "/n"}]),
        ("state_change", None, [{"op": "replace", "path": "", "value": {"lang": "zh"}}]),
        ("state_change", "b", {"agents": {"b": {"agent_id": "b", "iteration": 1}}}),
        ("handed_over", "b", None),
    ]
    keys = [(entry.metadata.get("old_state_keys"), entry.metadata.get("new_state_keys")) for entry in reversed(entries)]
    assert keys == [
        ([], ["lang"]),
        *[(None, None)] * 5,
        (["lang"], ["agents", "lang"]),
        (["agents", "lang"], ["agents", "lang", "n"]),
        (["agents", "lang", "n"], ["agents", "lang"]),
        (["agents", "lang"], ["lang"]),
        (["lang"], ["agents", "lang"]),
        (["agents", "lang"], ["agents", "lang"]),
    ]
    calls = entries[-3]
    assert (calls.first, calls.last, calls.metadata) == (3, 3, {"role": "assistant", "loop": 1, "refs": ["3.0", "3.1"]})
    assert entries[0].metadata["to"] == "billing"


def test_a_summary_tells_what_it_covers(session: Session) -> None:
    session.append(*LONG)
    session.compress()
    newest = session.history_page(limit=1).entries[0]
    summary = session.summary()
    assert summary is not None
    assert newest.action == "summary_published"
    assert (newest.history_id, newest.first, newest.last) == (str(summary.position), summary.first, summary.last)
    assert newest.metadata["loops"] == [summary.first_loop, summary.last_loop]
    session.discard_summary()
    newest = session.history_page(limit=1).entries[0]
    assert (newest.action, newest.metadata) == ("summary_discarded", {"summary": summary.position})


def test_pages_and_filters(session: Session) -> None:
    for at in range(8):
        session.append(*TURN, run={"agent_id": f"a{at % 3}", "iteration": at})
        if at % 4 == 0:
            session.record("noted", agent_id="a0", metadata={"at": at})
    whole = session.history_page(limit=1_000)
    assert whole.next is None and len(whole.entries) == session.info().head == 1 + 8 * 6 + 2
    for limit in (7, 30):
        result, before = list[HistoryEntry](), None
        while True:
            page = session.history_page(limit=limit, before=before)
            assert len(page.entries) <= limit
            result += page.entries
            before = page.next
            if before is None:
                break
        assert result == whole.entries
    for action, agent in (
        ("tool_call", None),
        (None, "a1"),
        ("noted", "a0"),
        ("noted", "a1"),
        ("run", "a2"),
        ("nothing", None),
    ):
        wanted = [
            entry for entry in whole.entries if action in (None, entry.action) and agent in (None, entry.agent_id)
        ]
        assert list(session.history(action=action, agent=agent)) == wanted
        if wanted:
            page = session.history_page(limit=1, action=action, agent=agent)
            assert page.entries == wanted[:1]
    assert session.history_page(before=1).entries == []


def test_a_rare_entry_is_found_page_by_page_in_few_requests_each(
    harness: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnlog.sessions.history._FILTERED_COMMITS", 5)
    session.record("first")
    for _ in range(24):
        session.append({"role": "user", "content": "x"})
    before, pages, result = None, 0, list[HistoryEntry]()
    while True:
        calls = harness.faults.calls
        page = session.history_page(action="first", before=before)
        assert harness.faults.calls - calls <= 4
        result += page.entries
        pages, before = pages + 1, page.next
        if before is None:
            break
    assert (pages, [entry.history_id for entry in result]) == (2, ["2"])


def test_large_diffs_are_told_whole_and_a_page_ends_at_4_mb(session: Session) -> None:
    large = [{f"k{at}": "x" * 900_000} for at in range(6)]
    for patch in large:
        session.patch_state(patch) if len(session.state().state) < 4 else session.put_state(patch)
    page = session.history_page()
    assert 1 <= len(page.entries) < 6 and page.next is not None
    entries = list(session.history(action="state_change"))
    assert [entry.diff for entry in reversed(entries)][:3] == large[:3]
    metadata = {"m": "".join(f"{at * 7919:x}" for at in range(9_000))}
    entry = session.record("noted", metadata=metadata)
    assert entry.metadata["m"] == metadata["m"]
    assert session.history_page(limit=1).entries == [entry]
    with pytest.raises(TooLargeError):
        session.record("noted", metadata={"m": "x" * 70_000})


def test_a_recorded_entry_changes_nothing_and_a_key_records_it_once(session: Session) -> None:
    state, window = session.state(), session.context().messages
    entry = session.record(
        "handed_over", agent_id="a", metadata={"to": "x", "old_state_keys": "mine"}, idempotency_key="k"
    )
    assert (
        session.record("handed_over", agent_id="a", metadata={"to": "x", "old_state_keys": "mine"}, idempotency_key="k")
        == entry
    )
    with pytest.raises(IdempotencyMismatchError):
        session.record("handed_over", agent_id="b", idempotency_key="k")
    assert entry.metadata == {"to": "x", "old_state_keys": ["lang"], "new_state_keys": ["lang"]}
    assert (session.state(), session.context().messages) == (state, window)
    assert session.patch_state({"n": 1}, if_version=state.version).version == 3
    assert session.info().head == 3


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"action": "message_added"},
        {"action": "end"},
        {"action": ""},
        {"action": "x", "agent_id": "a b"},
        {"action": "x", "diff": {}},
    ],
)
def test_what_can_not_be_recorded(here: Session, body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        here.backend.call("record_history", path={"session_id": "s"}, body=body)
    assert here.info().head == 1


def test_what_can_not_be_asked(here: Session) -> None:
    for query in ({"limit": 0}, {"limit": 1_001}, {"before": 0}, {"after": 1}, {"limit": "x"}):
        with pytest.raises(InvalidInputError):
            here.backend.call("read_history", path={"session_id": "s"}, query=query)  # type: ignore[arg-type]
    for before in (None, 1, 7):
        with pytest.raises(NotFoundError):
            Session(here.backend, "nobody").history_page(before=before)


def test_a_history_from_before_keys_were_kept_is_told_without_them() -> None:
    from turnlog.log.lines import stored_line
    from turnlog.log.read_lines import read_event

    line = {"k": "s", "a": "run", "q": 0, "n": 1, "g": "main", "p": {"a": 1}}
    event = read_event(line, position=2, payload=None, parts=None)
    assert (event.keys_before, event.keys_after) == (None, None)  # type: ignore[union-attr]
    assert stored_line(event, None) == line


def test_a_page_is_one_request_and_one_for_what_is_out_of_line(harness: Any, session: Session) -> None:
    for at in range(20):
        session.append(*TURN, run={"iteration": at})
    calls = harness.faults.calls
    session.history_page()
    assert harness.faults.calls - calls == 1
    session.patch_state({"large": "".join(f"{at * 7919:x} " for at in range(2_000))})
    calls = harness.faults.calls
    session.history_page()
    assert harness.faults.calls - calls == 2
