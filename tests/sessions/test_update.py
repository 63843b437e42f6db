"""Settings that change: each change is a commit, and windows of earlier moments keep the settings of their time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Harness
from tests.explorer import ScheduleRun, explore
from tests.support.steps import application, fresh
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import (
    IdempotencyMismatchError,
    InvalidInputError,
    LoopUnfinishedError,
    NotFoundError,
    TooLargeError,
)
from turnlog.log.keys import SessionKeys
from turnlog.ports import BlobStore, ItemTable
from turnlog.testing.fixed import SequentialIds

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
OTHER_TOOL = {
    "type": "function",
    "function": {"name": "write_down", "parameters": {"type": "object", "properties": {}}},
}
ASK, ANSWER = {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "All is well."}
SNAPSHOTS = {"every_loops": 3, "keep": 5, "keep_named": 8, "named_days": 9}
NOISE = "".join(f"{(at * 2654435761) % 2**32:08x}" for at in range(9_000))
"""Out of line, and over what an item beside the commits holds."""
CHANGES: list[dict[str, Any]] = [
    {"system": "Answer in verse."},
    {"tools": [TOOL, OTHER_TOOL]},
    {"policy": "full"},
    {"policy": {"steps": [{"step": "loops", "max": 1}]}, "model": "gpt-4o"},
    {"output_reserve": 1000, "title": "Renamed", "metadata": {"a": 1}},
    {"system": NOISE, "loop_timeout_seconds": 60},
    {"system": None, "tools": None, "policy": None, "model": None, "output_reserve": None},
]


def created(log: Turnlog, name: str = "s", **settings: Any) -> Session:
    defaults: dict[str, Any] = {"system": "Be brief.", "tools": [TOOL], "recall": "never", "title": "Old"}
    return log.sessions.create(name, **(defaults | settings))


def without_caches(harness: Harness, session: Session) -> None:
    keys = SessionKeys(session.backend.owner, session.id)  # type: ignore[attr-defined]
    harness.app.engine.items.delete_many([keys.meta, keys.system])


def test_a_field_that_is_given_is_set_and_what_is_left_out_stays(harness: Harness) -> None:
    session = created(harness.log(), metadata={"a": 1, "b": 2})
    before = session.info()
    result = session.update(title="New", metadata={"c": 3})
    assert (result.title, result.metadata, result.policy, result.head) == ("New", {"c": 3}, "default", 2)
    assert (
        result
        == session.info()
        == before.model_copy(update={"title": "New", "metadata": {"c": 3}, "head": 2, "updated_at": result.updated_at})
    )
    window = session.context()
    assert (window.messages[0]["content"], window.tools) == ("Be brief.", [TOOL])
    assert next(harness.log().sessions.list()).title == "New", "the list says so at once"


def test_every_setting_but_the_texts_of_windows_can_be_read(harness: Harness) -> None:
    settings = {
        "output_reserve": 900,
        "strict": True,
        "loop_timeout_seconds": 60,
        "snapshots": SNAPSHOTS,
        "policy": "full",
        "model": "gpt-4o",
        "ttl_days": 9,
        "inactive_after_minutes": 50,
    }
    session = created(harness.log(), **settings)
    for session_info in (session.info(), next(harness.log().sessions.list())):
        assert {name: session_info[name] for name in settings} == settings
    session.update(strict=False, snapshots=None, loop_timeout_seconds=61)
    changed = session.info()
    assert (changed.strict, changed.snapshots, changed.loop_timeout_seconds) == (False, None, 61)


def test_windows_count_the_settings_of_their_session(harness: Harness) -> None:
    log = harness.log()
    session, given = created(log), {"system": "Be brief.", "tools": [TOOL]}
    session.append(ASK)
    for change in ({}, {"system": NOISE}, {"tools": [TOOL, OTHER_TOOL]}, {"system": None, "tools": None}):
        given |= change
        session.update(title="New", **change)
        assert session.context(budget=200_000).tokens == log.build_window([ASK], budget=200_000, **given).tokens


def test_null_is_what_a_session_has_that_was_created_without_the_field(harness: Harness) -> None:
    log = harness.log()
    plain, session = log.sessions.create("plain", recall="never"), created(log, policy="full", model="gpt-4o")
    session.update(output_reserve=5, strict=True, loop_timeout_seconds=9, metadata={"a": 1})
    session.update(**dict.fromkeys(("title", "system", "tools", "policy", "model", "output_reserve"), None))
    result = session.update(strict=None, loop_timeout_seconds=None, metadata=None)
    same = ("title", "policy", "model", "recall", "metadata", "tokens")
    assert [result[name] for name in same] == [plain.info()[name] for name in same]
    for value in (plain, session):
        value.append(ASK, ASK)
    assert session.context().messages == plain.context().messages
    assert session.context().manifest.budget == plain.context().manifest.budget


@pytest.mark.parametrize("lose_caches", [False, True])
def test_w8_windows_of_earlier_moments_keep_the_settings_of_their_time(harness: Harness, lose_caches: bool) -> None:
    session = created(harness.log())
    seen = []
    for change in CHANGES:
        session.append(ASK)
        seen.append(session.context(budget=90_000))
        session.append(ANSWER)
        if lose_caches:
            without_caches(harness, session)
        session.update(**change)
        seen.append(session.context(budget=90_000))
    for window in seen:
        if lose_caches:
            without_caches(harness, session)
        assert session.context(build=window.manifest.build).model_dump() == window.model_dump()
        assert session.context(budget=90_000, at=window.head).model_dump() == window.model_dump()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tools": [OTHER_TOOL]}, "tools"),
        ({"system": "Answer in verse."}, "system"),
        ({"policy": "turns(1)"}, "policy"),
        ({"title": "x", "metadata": {"a": 1}}, None),
    ],
)
def test_the_prefix_tells_which_setting_broke_it(harness: Harness, change: dict[str, Any], reason: str | None) -> None:
    session = created(harness.log())
    session.append(ASK, ANSWER, ASK, ANSWER, ASK)
    session.append(ANSWER)
    session.update(**change)
    session.append(ASK)
    assert session.context().prefix.reason == reason


def test_other_settings_are_in_force_for_the_next_append(harness: Harness) -> None:
    session = created(harness.log())
    session.append(ASK, ANSWER)
    session.update(loop_timeout_seconds=60)
    session.append(ASK)
    harness.clock.advance(61)
    assert session.append(ASK).loop == 3
    session.update(strict=True)
    with pytest.raises(LoopUnfinishedError):
        session.append(ASK)


def test_a_key_has_one_effect_and_its_answer_again(harness: Harness) -> None:
    session = created(harness.log())
    first = session.update(title="One", idempotency_key="k")
    session.update(title="Two")
    assert session.update(title="One", idempotency_key="k") == first
    assert session.info().title == "Two"
    with pytest.raises(IdempotencyMismatchError):
        session.update(title="Three", idempotency_key="k")
    session.update(title=None, idempotency_key="null")
    with pytest.raises(IdempotencyMismatchError):
        session.update(model=None, idempotency_key="null")


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"recall": "never"},
        {"state": {}},
        {"ttl_days": 0},
        {"unknown": 1},
        {"title": 7},
        {"title": "x" * 201},
        {"policy": "no_such_policy"},
        {"policy": {"steps": 3}},
        {"loop_timeout_seconds": 0},
        {"tools": ["x"]},
        {"model": ""},
    ],
)
def test_what_can_t_be_set_is_refused_whole(log: Turnlog, bad: dict[str, Any]) -> None:
    session = created(log)
    with pytest.raises(InvalidInputError):
        session.update(**({"title": "New"} if bad and "title" not in bad else {}), **bad)
    assert (session.info().title, session.info().head) == ("Old", 1)


def test_settings_together_have_a_limit(log: Turnlog) -> None:
    session = created(log, metadata={"x": "y" * 3_500_000})
    with pytest.raises(TooLargeError):
        session.update(system="z" * 900_000)
    assert session.info().head == 1
    with pytest.raises(NotFoundError):
        log.sessions.of("not-there").update(title="x")


def test_history_tells_which_settings_were_given(log: Turnlog) -> None:
    session = created(log)
    session.update(system=NOISE, policy="full")
    (entry,) = session.history(action="policy_change")
    assert (entry.first, entry.last, entry.diff, entry.metadata) == (2, 2, None, {"changed": ["policy", "system"]})


def test_every_order_of_an_append_and_an_update_keeps_both() -> None:
    def appending(items: ItemTable, blobs: BlobStore) -> Any:
        return application(items, blobs, SequentialIds(1000)).sessions.of("s").append(ASK)

    def updating(items: ItemTable, blobs: BlobStore) -> Any:
        session = application(items, blobs, SequentialIds(2000)).sessions.of("s")
        return session.update(title="New", system="Answer in verse.")

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)]
        log = application(items, blobs, SequentialIds(10**9))
        session = log.sessions.get("s")
        assert (session.info().head, session.info().title, session.info().messages) == (3, "New", 1)
        assert [message["content"] for message in session.context().messages] == ["Answer in verse.", "And now?"]
        position = next(session.messages()).position
        at = [message["content"] for message in session.context(at=position).messages]
        assert at[0] == ("Be brief." if position == 2 else "Answer in verse.")
        (listed,) = log.sessions.list()
        assert listed.title == "New"

    assert explore([appending, updating], fresh(lambda log: created(log)), check, max_preemptions=2) >= 6


def test_every_order_of_two_updates_of_different_fields_keeps_both() -> None:
    def updating(start: int, **fields: Any) -> Any:
        return lambda items, blobs: application(items, blobs, SequentialIds(start)).sessions.of("s").update(**fields)

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)]
        log = application(items, blobs, SequentialIds(10**9))
        for value in (log.sessions.get("s").info(), *log.sessions.list()):
            assert (value.title, value.model) == ("New", "gpt-4o")

    operations = [updating(1000, title="New"), updating(2000, model="gpt-4o")]
    explore(operations, fresh(lambda log: created(log)), check, max_preemptions=2)
