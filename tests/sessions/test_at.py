"""`at` and `build` on every engine: the window as it was at any moment of the log (D7, W8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Harness, moto_harness, sqlite_harness
from tests.support.as_json import as_json
from tests.support.talks import AMPLE, filled, turn
from turnlog.client.model import Session
from turnlog.core.errors import (
    BuildMismatchError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    OtherRendererError,
    TurnlogError,
)
from turnlog.core.times import milliseconds_of, rfc3339
from turnlog.log import reading as history
from turnlog.log.keys import SessionKeys
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.state_store import SessionState, state_at


def sent(window: WindowAnswer) -> str:
    """All but what names the commit."""
    answer = window.model_dump(mode="json")
    answer["manifest"].pop("build")
    return json.dumps(answer)


def grown(harness: Any) -> tuple[Session, dict[int, WindowAnswer]]:
    """A session with a summary in its midst, and the window at each head on the way."""
    session = harness.log().sessions.create("s", system="Be brief.", model="gpt-4o", tools=[{"type": "web_search"}])
    windows = {1: session.context()}
    for number in range(1, 9):
        for batch in (turn(number)[:1], turn(number)[1:3], turn(number)[3:]):
            session.append(*batch)
            windows[session.info().head] = session.context()
            harness.clock.advance(60)
        if number in (4, 6):
            session.compress(keep_loops=1)
            windows[session.info().head] = session.context()
    return session, windows


def test_at_a_head_of_the_past_is_the_window_of_that_time(harness: Any) -> None:
    session, windows = grown(harness)
    assert {part.kind for window in windows.values() for part in window.manifest.parts} >= {"summary", "loop", "system"}
    for position, window in windows.items():
        assert as_json(session.context(at=position)) == as_json(window)
        assert window.head == window.manifest.position == position


def test_w8_a_loop_that_a_time_out_opened_is_there_at_every_moment_of_its_commit(harness: Harness) -> None:
    session = harness.log().sessions.create("s", loop_timeout_seconds=60)
    session.append({"role": "user", "content": "one"})
    harness.clock.advance(61)
    reply, again = {"role": "assistant", "content": "well"}, {"role": "user", "content": "three"}
    written = session.append({"role": "user", "content": "two"}, reply, again)
    loops = {
        at: [part.loop for part in session.context(at=at).manifest.parts if part.kind == "loop"]
        for at in range(1, written.last + 1)
    }
    assert loops == {1: [], 2: [1], 3: [1, 2], 4: [1, 2], 5: [1, 2, 3]}
    forks = {at: session.fork(f"at-{at}", at=at).info().loops for at in loops}
    assert forks == {at: len(numbers) for at, numbers in loops.items()}


def test_a_build_gives_the_same_bytes_again(harness: Any) -> None:
    session, windows = grown(harness)
    for options in (
        {"policy": "run_loops", "budget": 3_000},
        {"format": "turnlog", "answer_open_calls": True, "model": "o3"},
    ):
        window = session.context(**options)  # type: ignore[arg-type]
        windows[-len(windows)] = window
    for number in range(20, 24):
        session.append(*turn(number))
    session.compress(keep_loops=0)
    keys = SessionKeys(harness.log().backend.owner, "s")
    harness.app.engine.items.delete_many([keys.meta, keys.summary, keys.system])
    for window in windows.values():
        assert as_json(session.context(build=window.manifest.build)) == as_json(window)
        as_sent = json.loads(as_json(window))["manifest"]["build"]
        assert as_json(session.context(build=as_sent)) == as_json(window)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)  # a window of many positions, by six requests each
def test_at_inside_a_commit_is_the_state_after_the_event(harness: Any) -> None:
    log, batches = harness.log(), [turn(1), [*turn(2), *turn(3)[:2]], [*turn(3)[2:], *turn(4)]]
    whole = log.sessions.create("whole", system="Be brief.")
    for batch in batches:
        whole.append(*batch)
    messages = [message for batch in batches for message in batch]
    for position in range(2, 2 + len(messages)):
        part = log.sessions.create(f"part-{position}", system="Be brief.")
        for message in messages[: position - 1]:
            part.append(message)
        for policy in ("default", "run_loops", "messages(3)"):
            for budget in (AMPLE, 900):
                wanted = part.context(policy=policy, budget=budget)
                assert sent(whole.context(policy=policy, budget=budget, at=position)) == sent(wanted)


def test_at_a_commit_with_a_state_event(harness: Any) -> None:
    session = harness.log().sessions.create("s")
    session.append(*turn(1), run={"agent_id": "main", "iteration": 1})
    head = session.info().head
    assert (head, session.context(at=6).head) == (6, 6)
    assert session.context(at=5).messages == session.context(at=6).messages == session.context().messages
    assert state_at(harness.app.log, SessionKeys(harness.log().backend.owner, "s"), 6) != SessionState({})


def test_at_inside_a_commit_with_messages_out_of_line(harness: Any) -> None:
    session = harness.log().sessions.create("s", recall="never")
    large = [{**message, "content": f"{message['content']} " + "line of a log\n" * 4_000} for message in turn(1)]
    session.append(*large[:3], large[3], {"role": "user", "content": "thanks"})
    window = session.context(at=4)
    assert [message["content"] for message in window.messages] == [message["content"] for message in large[:3]]
    assert session.context(at=4, policy="run_loops").tokens == window.tokens


def test_at_a_time_is_at_the_newest_commit_until_then(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session, windows = grown(harness)
    monkeypatch.setattr(history, "NEAR", 4)
    clocks = {position: milliseconds_of(window.manifest.build.clock) for position, window in windows.items()}  # type: ignore[union-attr]
    for position, time_ms in clocks.items():
        assert session.context(at=rfc3339(time_ms)).head == position
        earlier = [known for known, other in clocks.items() if other <= time_ms - 1]
        if earlier:
            assert session.context(at=rfc3339(time_ms - 1)).head == max(earlier)
    assert session.context(at="2100-01-01T00:00:00+02:00").head == session.info().head
    with pytest.raises(InvalidInputError, match="newer than"):
        session.context(at=rfc3339(clocks[1] - 1))


@pytest.mark.parametrize("at", [0, -1, 10**15, True, 1.5, "yesterday", "2026-11-21", "2026-11-21T10:00:00", "12", []])
def test_what_is_no_moment_is_refused(log: Any, at: Any) -> None:
    session = filled(log, 1)
    with pytest.raises(InvalidInputError) as raised:
        session.context(at=at)
    assert raised.value.problems[0].pointer == "/at"


def test_above_the_head_is_refused_with_the_head(log: Any) -> None:
    session = filled(log, 1)
    with pytest.raises(InvalidInputError) as raised:
        session.context(at=6)
    assert raised.value.details == {"head": 5}
    for at in (3, "2100-01-01T00:00:00Z"):
        with pytest.raises(NotFoundError):
            log.sessions.of("nobody").context(at=at)


def test_a_build_that_this_log_can_not_give_is_a_typed_error(log: Any) -> None:
    session, other = filled(log, 6), filled(log, 6, "other")
    session.compress(keep_loops=1)
    build = session.context().manifest.build.model_dump(mode="json")
    wrong: list[tuple[dict[str, Any], type[TurnlogError]]] = [
        ({"renderer": 0}, OtherRendererError),
        ({"position": 99}, BuildMismatchError),
        ({"commit": "00" * 16}, BuildMismatchError),
        ({"clock": "2026-01-01T00:00:00.000Z"}, BuildMismatchError),
        ({"summary": 3}, BuildMismatchError),
        ({"summary": None}, BuildMismatchError),
        ({"tools": "00"}, BuildMismatchError),
        ({"format": "html"}, InvalidInputError),
        ({"policy": {"steps": [{"step": "guess"}]}}, InvalidInputError),
        ({"more": 1}, InvalidInputError),
        ({"budget": {"tokens": 0, "source": "given"}}, InvalidInputError),
        ({"budget": {"tokens": 10, "source": "given", "factor": 0.0}}, InvalidInputError),
    ]
    for change, kind in wrong:
        with pytest.raises(kind):
            session.context(build={**build, **change})
    with pytest.raises(BuildMismatchError):
        other.context(build=build)
    with pytest.raises(InvalidInputError, match="with build"):
        session.context(build=build, budget=100)
    with pytest.raises(InvalidInputError):
        log.build_window([{"role": "user", "content": "hi"}], build=build)
    with pytest.raises(InvalidInputError):
        log.build_window([{"role": "user", "content": "hi"}], at=1)


def test_a_build_with_the_calls_own_tools_wants_them_again(log: Any) -> None:
    session = filled(log, 2, tools=[{"type": "function", "function": {"name": "of_the_session"}}])
    tools = [{"type": "function", "function": {"name": "own", "description": "é"}}]
    window = session.context(tools=tools)
    build = window.manifest.build
    session.append(*turn(3))
    assert as_json(session.context(build=build, tools=tools)) == as_json(window)
    for other in (None, [], [{"function": tools[0]["function"], "type": "function"}]):
        with pytest.raises(BuildMismatchError):
            session.context(build=build, tools=other)


def test_a_list_of_messages_has_no_build(log: Any) -> None:
    assert log.build_window([{"role": "user", "content": "hi"}]).manifest.build is None


def test_a_missing_commit_that_was_in_force_is_named(harness: Any) -> None:
    session = filled(harness.log(), 6)
    summary = session.compress(keep_loops=1).summary
    session.append(*turn(7))
    harness.app.engine.items.delete_many([SessionKeys(harness.log().backend.owner, "s").commit(summary.position)])
    with pytest.raises(CorruptError) as raised:
        session.context(at=summary.position + 2)
    assert raised.value.item == f"C#{summary.position:012d}"


def test_a_log_that_has_lost_its_beginning_says_so(harness: Any) -> None:
    session = filled(harness.log(), 3)
    keys = SessionKeys(harness.log().backend.owner, "s")
    harness.app.engine.items.delete_many([keys.commit(position) for position in (1, 2, 3)])
    with pytest.raises(CorruptError) as raised:
        session.context(at=2)
    assert raised.value.item == f"C#{2:012d}"


def test_at_takes_two_requests_more_and_three_with_settings_out_of_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with moto_harness(monkeypatch) as harness:
        log = harness.log()
        plain = filled(log, 12, system="Be brief.")
        plain.compress(keep_loops=1)
        large = filled(log, 12, "large", system="".join(f"{at * 7919:x} " for at in range(9_000)))
        for session, most in ((plain, 3), (large, 4)):
            head = session.info().head
            session.append(*turn(13))
            for at in (head, head - 2):
                with harness.meter.measure() as spent:
                    window = session.context(at=at)
                assert window.head == at
                assert sum(spent.requests.values()) <= most
            with harness.meter.measure() as spent:
                session.context(build=window.manifest.build)
            assert sum(spent.requests.values()) <= most


def test_a_time_takes_a_request_for_each_halving(tmp_path: Any) -> None:
    with sqlite_harness(tmp_path) as harness:
        session = harness.log().sessions.create("s")
        for at in range(600):
            harness.clock.advance(1)
            session.append({"role": ("user", "assistant")[at % 2], "content": str(at)})
        cost = requests_of(harness, session, 601)
        messages = {message.position: message.created_at for message in session.messages()}
        for position, halvings in ((601, 0), (540, 0), (530, 4), (40, 4), (2, 4)):
            assert requests_of(harness, session, messages[position]) <= cost + 2 + halvings


def requests_of(harness: Harness, session: Session, at: int | str) -> int:
    before = harness.faults.calls
    session.context(at=at, policy="turns(1)")
    return int(harness.faults.calls - before)
