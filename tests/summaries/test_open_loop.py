"""Summaries inside the open loop: an agent's one long loop is compressed between its steps, and nothing but its length changes."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import stored
from tests.properties.histories import FORMATS, Given, disorderly
from tests.properties.plain_pairing import plainly_paired
from tests.support.jobs import poller
from tests.support.summary_events import summaries
from tests.support.talks import turn
from tests.support.triggers import script
from turnlog.client.model import Session
from turnlog.core.summaries import LEASE_MS
from turnlog.linter.rules import lint
from turnlog.summaries.covering import KEEP_STEPS, closed_steps

SMALL: dict[str, Any] = {"output_reserve": 120_000, "recall": "never"}
"""A budget of 8,000 tokens."""
TASK = {"role": "user", "content": "Make the tests of the order service pass. Don't touch the schema."}


def step(number: int, *, words: int = 60) -> list[dict[str, Any]]:
    """A call with what the agent says, and its result; about 200 tokens."""
    function = {"name": "bash", "arguments": f'{{"command": "cat src/part_{number:03d}.py"}}'}
    call = {"id": f"call-{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": f"Step {number}: I look at the next part.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call-{number}", "content": f"VALUE-{number:05d} " + "some line of code " * words},
    ]  # fmt: skip


def long_loop(harness: Any, steps: int, *before: dict[str, Any], session_id: str = "s", **options: Any) -> Session:
    """A session with one long loop behind some messages; jobs are done as they come."""
    session: Session = harness.log().sessions.create(session_id, **{**SMALL, **options})
    session.append(*before, TASK)
    go_on(harness, session, 1, steps)
    return session


def go_on(harness: Any, session: Session, first: int, steps: int) -> list[str]:
    answers = list[str]()
    for number in range(first, first + steps):
        answers += [session.append(message).compression for message in step(number)]
        poller(harness).run_once()
        for format in FORMATS if number % 10 == 0 else ():
            window = session.context(format=format)
            assert format == "turnlog" or not lint(window.messages, format=format)
    return answers


def test_default_asks_when_the_open_loop_alone_crosses_the_high_mark(harness: Any) -> None:
    session = harness.log().sessions.create("s", **SMALL)
    session.append(TASK)
    answers = list[str]()
    for number in range(1, 100):
        answers += [session.append(message).compression for message in step(number)]
        if "queued" in answers:
            break
    assert session.info().tokens > 0.8 * 8_000 > session.info().tokens - 600
    assert answers.count("queued") == 1
    assert poller(harness).run_once() == 1
    (made,) = summaries(harness)
    assert (made.first, made.first_loop, made.last_loop) == (2, 1, 0), "no loop is covered whole"
    assert 2 < made.last < session.info().head - 2 * KEEP_STEPS
    window = session.context()
    assert TASK in window.messages, "the task stays, word for word"
    assert "summary of earlier steps of exchange 1 of this conversation" in str(window.messages[0]["content"])
    assert window.messages[2]["role"] == "assistant", "what follows begins with a step"
    assert window.tokens < 0.8 * 8_000


def test_each_summary_continues_the_one_before_a_step_of_the_grid_later(harness: Any) -> None:
    session = long_loop(harness, 120)
    made = summaries(harness)
    assert 4 <= len(made) <= session.info().tokens / (0.35 * 8_000)
    assert [event.base for event in made] == [0, *(event.position for event in made[:-1])]
    assert [event.last for event in made] == sorted({event.last for event in made})
    assert {event.last_loop for event in made} == {0}
    window = session.context()
    assert TASK in window.messages
    assert "VALUE-00120" in str(window.messages)
    step = 1 if is_full() else 5 if harness.name == "sqlite" else 20
    breaks = {session.context(at=position).manifest.epoch.id for position in range(2, session.info().head + 1, step)}
    assert len(breaks) <= len(made) + 1, "only a summary that lands begins another epoch"


def test_what_is_covered_is_reached_by_recall_and_search_and_the_log_keeps_it(harness: Any) -> None:
    session = long_loop(harness, 60)
    assert session.recall(call_id="call-3").content.startswith("VALUE-00003")
    assert [hit.position for hit in session.search("VALUE-00003").results]
    assert len(list(session.messages())) == 121
    assert {"VALUE-00003", "src/part_003.py"} & {fact.value for fact in session.summary().facts}


def test_closed_loops_before_it_are_covered_first_the_newest_too(harness: Any) -> None:
    before = [message for number in range(1, 4) for message in turn(number, words=10)]
    session = long_loop(harness, 60, *before)
    made = session.summary()
    assert (made.first_loop, made.last_loop) == (1, 3)
    assert made.last > 13
    window = session.context()
    assert "exchanges 1 to 3 and earlier steps of exchange 4" in str(window.messages[0]["content"])
    assert [body for body in window.messages if body["role"] == "user"][1:] == [TASK]


def test_when_the_loop_is_closed_its_task_is_told_and_no_longer_sent(harness: Any) -> None:
    session = long_loop(harness, 60)
    session.append({"role": "assistant", "content": "All tests pass."})
    for number in range(61, 66):
        session.append(*turn(number, words=10))
    assert TASK in session.context().messages, "until the loop is covered whole"
    made = session.compress(keep_loops=2).summary
    assert (made.last_loop, made.messages) == (3, 1 + 2 * 60 + 1 + 2 * 4)
    window = session.context()
    assert TASK not in window.messages
    assert "order service" in made.text and "All tests pass" in made.text
    assert not lint(window.messages, format="openai_chat")


def test_an_open_call_and_what_follows_it_is_never_covered(harness: Any) -> None:
    session = harness.log().sessions.create("s", **SMALL)
    session.append(TASK)
    for number in range(1, 6):
        session.append(*step(number))
    waiting, late = step(6)
    session.append(waiting)
    for number in range(7, 60):
        session.append(*step(number))
    made = session.compress().summary
    assert made.last == 1 + 1 + 2 * 5
    session.append(late)
    window = session.context()
    assert "VALUE-00006" in str(window.messages)
    assert not lint(window.messages, format="openai_chat")
    assert session.compress().summary.last == made.last, (
        "what is newer than the result's call is not covered with the result"
    )
    for number in range(60, 62):
        session.append(*step(number))
    assert session.compress().summary.last >= window.head
    assert "VALUE-00061" in str(session.context().messages)


def test_a_caller_s_keep_loops_speaks_of_closed_loops_alone(harness: Any) -> None:
    session = harness.log().sessions.create("s", **SMALL)
    session.append(*turn(1, words=10), *turn(2, words=10), TASK)
    for number in range(1, 60):
        session.append(*step(number))
    assert session.compress(keep_loops=1).summary.last_loop == 1
    assert session.compress(keep_loops=0).summary.last == 1 + 8
    assert session.compress().summary.last > 1 + 8


def test_without_a_step_that_can_be_covered_the_newest_closed_loops_stay(harness: Any) -> None:
    session = harness.log().sessions.create("s", **SMALL)
    for number in range(1, 4):
        session.append(*turn(number, words=10))
    session.append({"role": "user", "content": "Read this: " + "a long report " * 5_000})
    made = session.compress()
    assert made.summary.last_loop == 1, "the newest two stay"


def test_while_nothing_is_published_a_long_loop_asks_once_in_ten_minutes(harness: Any) -> None:
    session = harness.log().sessions.create("s", **SMALL)
    session.append(TASK, step(1)[0])  # its result never comes
    answers = [session.append(message).compression for number in range(2, 80) for message in step(number)]
    poller(harness).run_once()
    assert answers.count("queued") == 1
    harness.clock.advance(seconds=LEASE_MS // 1000 + 1)
    assert [session.append(message).compression for message in step(80)].count("queued") == 1
    poller(harness).run_once()
    assert session.summary() is None
    assert {job.result["reason"] for job in harness.log().jobs()} == {"nothing_to_cover"}


def test_a_job_with_nothing_to_cover_reads_no_history(harness: Any) -> None:
    session = long_loop(harness, 60)
    before = session.compress().summary
    short = harness.log().sessions.create()
    short.append({"role": "user", "content": "Hello."})
    read = list[Any]()
    commits = harness.app.log.commits
    reading = commits.in_view_on
    try:
        commits.in_view_on = lambda *args, **options: read.append(args) or reading(*args, **options)
        assert session.compress().reason == short.compress().reason == "nothing_to_cover"
    finally:
        commits.in_view_on = reading
    assert read == []
    assert session.summary() == before


# ---------------------------------------------------------------- time travel, privacy


def test_a_rewind_into_what_is_covered_brings_the_earlier_summary_back(harness: Any) -> None:
    session = long_loop(harness, 60)
    made = summaries(harness)
    first, second = made[0], made[1]
    session.rewind(to=second.position - 1)
    assert session.summary().position == first.position
    go_on(harness, session, 61, 40)
    newest = summaries(harness)[-1]
    assert newest.base != second.position and newest.last > first.last
    window = session.context()
    assert TASK in window.messages and "VALUE-00100" in str(window.messages)
    session.rewind(to=first.position - 1)
    assert session.summary() is None
    assert "summary of" not in str(session.context().messages)


def test_a_fork_has_the_summary_of_its_moment_and_goes_on_alone(harness: Any) -> None:
    session = long_loop(harness, 60)
    made = summaries(harness)
    within, behind = session.fork("within", at=made[0].position + 2), session.fork("behind")
    assert within.summary().position == made[0].position
    assert behind.summary().last == made[-1].last
    for fork in (within, behind):
        assert TASK in fork.context().messages
        go_on(harness, fork, 100, 40)
        assert fork.summary().last > made[1].last
        assert TASK in fork.context().messages
        assert "VALUE-00139" in str(fork.context().messages)
    assert session.summary().position == made[-1].position


def test_a_redaction_within_what_is_covered_leaves_no_summary_of_it(harness: Any) -> None:
    session = long_loop(harness, 60)
    secret = next(message.position for message in session.messages() if "VALUE-00002" in str(message.body))
    session.redact(secret)
    assert session.summary() is None
    assert "VALUE-00002" not in str(session.context().messages)
    made = session.compress().summary
    assert made.last > secret
    assert "VALUE-00002" not in str(made) + str(session.context().messages)


def test_two_workers_at_once_publish_one_and_late_jobs_nothing(harness: Any) -> None:
    session = harness.log().sessions.create("s", **SMALL)
    session.append(TASK)
    for number in range(1, 50):
        session.append(*step(number))
    summariser = script(harness, "Parts of the source were read, one by one.")
    for _ in range(2):
        session.compress(mode="async")
    while poller(harness).run_once():
        pass
    assert len(summaries(harness)) == len(summariser.requests) == 1


# ---------------------------------------------------------------- as a law


@settings(max_examples=examples(300), derandomize=not is_full(), deadline=None)
@given(disorderly(max_size=40), st.integers(0, 4_000), st.integers(0, 500))
def test_no_call_is_parted_from_its_result(history: Any, border: int, before: int) -> None:
    """Of any loop: what is covered begins it, and has each result of its calls, all of which have one."""
    held = stored(history)
    loop = held.flow.loop.number
    sources = [source for source in held.sources if source.loop == loop]
    count = closed_steps(sources, before=before, border=border)
    assert 0 <= count < max(1, len(sources))
    covered = {source.event.position for source in sources[:count]}
    plain = plainly_paired(history)
    inside = {source.event.position for source in sources}
    for position in inside & set(plain.calls):
        for call in [(position, index) for index in range(plain.calls[position])]:
            place = plain.result_of.get(call)
            if place is None:
                assert position not in covered or call in plain.hosted, "an open call is never covered"
            elif place[0] in inside:
                assert (position in covered) == (place[0] in covered)
    for group in plain.groups.values():
        assert len({position in covered for position in group}) == 1, "the items of an answer are one"


def test_steps_are_covered_that_began_before_the_border_but_the_newest() -> None:
    sources = stored([Given(body) for body in (TASK, *(body for number in range(6) for body in step(number)))]).sources
    for messages, border in enumerate(accumulate(source.event.tokens for source in sources), start=1):
        whole_steps = min(messages // 2, 6 - KEEP_STEPS)
        count = 1 + 2 * whole_steps if whole_steps else 0
        assert closed_steps(sources, before=0, border=border) == count
        assert closed_steps(sources, before=100, border=100 + border) == count
