"""A gradual move: both are written, a failure of Turnlog breaks nothing and is reported, every read compares."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.effort import boundaries
from tests.support.dual_writes import OldList
from turnlog.client.model import Turnlog
from turnlog.core.errors import UnavailableError
from turnlog.importers.dual_write import MAX_DIFFERENCES, Difference, DualWrite


@pytest.fixture
def log() -> Iterator[Turnlog]:
    """What depends on no engine; what does asks for the harness."""
    with Turnlog.open("memory://") as made:
        yield made


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def stored(log: Turnlog) -> list[dict[str, Any]]:
    return [message.body for message in log.sessions.get("s").messages()]


def test_both_hold_the_same_and_a_read_finds_no_difference(harness: Any) -> None:
    log = harness.log()
    both = DualWrite(OldList(), log.sessions.create("s"))
    for item in said("a", "b", "c"):
        both.append(item)
    both.append(*said("d", "e"))
    assert both.messages() == stored(log) == [*said("a", "b", "c"), *said("d", "e")]
    assert both.differences == []


def test_what_the_old_store_held_before_comes_with_the_first_append(log: Turnlog) -> None:
    before = said(*(f"{at}" for at in range(60)))
    both = DualWrite(OldList(*before), log.sessions.create("s"))
    both.append({"role": "user", "content": "now"})
    assert stored(log) == [*before, {"role": "user", "content": "now"}]
    assert both.messages() and both.differences == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failure_of_turnlog_at_any_call_breaks_nothing_and_is_made_up_for(harness: Any, when: str) -> None:
    messages = said("a", "b")
    for at in boundaries(30, harness.name):
        log = harness.log(user=f"{when}{at}")
        both = DualWrite(OldList(), log.sessions.create("s"))
        harness.faults.fail(at, when)
        for message in messages:
            both.append(message)
        met = not harness.faults.is_pending
        harness.faults.clear()
        both.append({"role": "user", "content": "at last"})
        assert both.messages() == [*messages, {"role": "user", "content": "at last"}] == stored(log)
        assert {difference.kind for difference in both.differences} <= {"write_failed"}
        if not met:
            break
    assert at > 5 and not met


def test_a_failed_write_and_a_failed_read_are_reported_without_contents(harness: Any) -> None:
    log, reported = harness.log(), list[Difference]()
    both = DualWrite(OldList(), log.sessions.create("s"), read_from="turnlog", on_difference=reported.append)
    harness.faults.fail(1, "before")
    both.append({"role": "user", "content": "a secret"})
    harness.faults.fail(1, "before")
    assert both.messages() == [{"role": "user", "content": "a secret"}], "the old store's"
    assert [(item.kind, item.error) for item in reported] == [
        ("write_failed", "unavailable"),
        ("read_failed", "unavailable"),
    ]
    assert "secret" not in repr(reported) and both.differences == reported


def test_every_kind_of_difference_is_told_with_its_place(log: Turnlog) -> None:
    old = OldList()
    both = DualWrite(old, log.sessions.create("s"))
    both.append(*said("a", "b", "c"))
    old.kept[1]["content"] = "B"
    del old.kept[2]
    assert both.messages() == old.kept
    assert both.differences == [Difference("differs", 1, 3), Difference("more", 2, 4)]
    old.kept += said("c", "d", "e")
    both.differences.clear()
    both.messages()
    assert both.differences == [Difference("differs", 1, 3), Difference("missing", 3), Difference("missing", 4)]


def test_where_they_differ_new_messages_still_go_to_both(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append({"role": "user", "content": "somebody else's"})
    both = DualWrite(OldList(*said("a")), session)
    both.append({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})
    assert [item["content"] for item in stored(log)] == ["somebody else's", "x", "y"]
    both.messages()
    assert [difference.kind for difference in both.differences] == ["differs"]


@pytest.mark.parametrize("refused", [{"content": "no role"}, {"role": "user", "content": "x", "n": float("nan")}])
def test_a_message_that_turnlog_refuses_stops_no_later_one(log: Turnlog, refused: dict[str, Any]) -> None:
    messages = [*said("a", "b"), refused, *said("c", "d"), *said("e")]
    both = DualWrite(OldList(*messages[:4]), log.sessions.create("s"), read_from="turnlog")
    for message in messages[4:]:
        both.append(message)
    assert stored(log) == [message for message in messages if message is not refused]
    assert [(item.kind, item.index) for item in both.differences] == [("write_failed", 2)]
    assert both.messages() == messages, "the old store has more"


def test_nor_does_an_orphan_result_in_a_strict_session(log: Turnlog) -> None:
    orphan = {"role": "tool", "tool_call_id": "zz", "content": "of no call"}
    both = DualWrite(OldList(*said("a"), orphan), log.sessions.create("s", strict=True), read_from="turnlog")
    for message in said("a", "b", "c")[1:]:
        both.append(message)
    assert stored(log) == said("a", "b", "c")
    assert [(item.kind, item.index) for item in both.differences] == [("write_failed", 1)]


def test_a_failure_of_the_old_store_is_the_callers_and_nothing_is_in_turnlog(log: Turnlog) -> None:
    class Broken(OldList):
        def append(self, *messages: Mapping[str, Any]) -> None:
            raise UnavailableError("the old store is down")

    both = DualWrite(Broken(), log.sessions.create("s"))
    with pytest.raises(UnavailableError, match="the old store is down"):
        both.append(*said("a"))
    assert stored(log) == [] and both.differences == []


def test_the_newest_differences_are_kept(log: Turnlog) -> None:
    both = DualWrite(OldList(), log.sessions.create("s"))
    both.old.kept.extend(said(*(f"{at}" for at in range(MAX_DIFFERENCES + 5))))  # type: ignore[attr-defined]
    both.messages()
    assert len(both.differences) == MAX_DIFFERENCES and both.differences[-1].index == MAX_DIFFERENCES + 4


def test_the_three_steps_of_the_documentation_run_one_after_the_other() -> None:
    """As the page shows them; what each of them leaves is looked at here."""
    text = (ROOT / "docs" / "how-to" / "imports.md").read_text("utf-8")
    code = re.findall(r"^```python\n(.*?)^```", text[text.index("\n## Move step by step\n") :], re.S | re.M)
    assert len(code) == 4
    names: dict[str, Any] = {}
    exec(code[0], names)  # noqa: S102 - our own page
    before = list(names["old"].messages())
    assert before
    for step in code[1:3]:
        exec(step, names)  # noqa: S102
        assert names["both"].differences == []
        assert list(names["old"].messages()) == [message.body for message in names["session"].messages()]
    assert len(names["old"].kept) == len(before) + 4
    exec(code[3], names)  # noqa: S102
    assert len(list(names["session"].messages())) == len(names["old"].kept) + 2
