"""The LangGraph saver does what the framework's own in memory does, whatever is put, written, deleted and copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from tests.conftest import Harness, sqlite_harness
from tests.effort import examples
from tests.integrations.checkpoints import Model, checkpoint, config, plain
from turnlog.integrations.langgraph import TurnlogSaver, known, reading, writing

SMALL = st.integers(-9, 2**40)
THREADS = st.sampled_from(["t", "t", "t", "two words"])
SPACES = st.sampled_from(["", "", "", "child:1|a/b"])
IDS = st.none() | st.none() | st.integers(1, 12).map(lambda at: f"1f{at:04}-6")
"""None: the newest one, or the next one to put."""
ITEMS = st.one_of(
    st.text(max_size=90),
    st.builds(HumanMessage, st.text(max_size=9), id=st.sampled_from(["h1", None])),
    st.builds(AIMessage, st.sampled_from(["so", "so " * 40]), id=st.sampled_from(["a1", "a2"])),
    st.dictionaries(st.sampled_from("ab"), SMALL, max_size=2),
)
VALUES = st.one_of(st.none(), SMALL, st.text(max_size=200), st.binary(max_size=9), st.lists(SMALL, max_size=4))
RUNS = st.sampled_from(["run-1", "run-2"])
CHANGE = st.tuples(st.integers(-2, 3), st.lists(ITEMS, max_size=3))
"""How a list changes: so many elements less (or all of it stays), and these more."""
WRITE = st.tuples(st.sampled_from(["m", "x", ERROR, INTERRUPT]), st.one_of(VALUES, st.lists(ITEMS, max_size=3)))
STEP = st.one_of(
    st.tuples(
        st.just("put"),
        THREADS,
        SPACES,
        IDS,
        st.booleans(),
        CHANGE,
        st.dictionaries(st.sampled_from("xyz"), VALUES),
        RUNS,
    ),
    st.tuples(
        st.just("writes"),
        THREADS,
        SPACES,
        IDS,
        st.lists(
            st.tuples(st.sampled_from(["m", "x", ERROR, INTERRUPT]), st.one_of(VALUES, st.lists(ITEMS, max_size=3))),
            max_size=3,
        ),
        st.sampled_from(["task-1", "task/2"]),
        st.sampled_from(["", "~a", "~b"]),
    ),
    st.tuples(
        st.just("list"), THREADS, st.none() | SPACES, st.none() | IDS, st.none() | st.integers(0, 3), st.none() | RUNS
    ),
    st.tuples(st.just("prune"), THREADS),
    st.tuples(st.just("runs"), RUNS),
    st.tuples(st.just("copy"), THREADS),
    st.tuples(st.just("delete"), THREADS),
    st.tuples(st.just("other process")),
)


@pytest.fixture(params=["as they are", "small"])
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small ones everything is beside its document, in parts, and lists are stored whole again soon."""
    if request.param == "small":
        for module, name, value in (
            (known, "LEAST_DEPTH", 2),
            (writing, "BESIDE_BYTES", 80),
            (writing, "PIECE_BYTES", 80),
            (writing, "PART_BYTES", 300),
            (known, "TAIL_BYTES", 500),
            (reading, "FIRST_DOCUMENTS", 3),
        ):
            monkeypatch.setattr(module, name, value)


class Both:
    """The same done to both savers, and answers compared."""

    def __init__(self, make: Callable[[], TurnlogSaver]) -> None:
        self.make = make
        self.ours, self.theirs, self.count = make(), Model(), 0

    def newest(self, thread: str, space: str) -> str | None:
        result = self.theirs.get_tuple(config(thread, space))
        return result.checkpoint["id"] if result is not None else None

    def ancestors(self, thread: str, space: str, checkpoint_id: str | None) -> set[str]:
        """Return the ids from a checkpoint back to its first ancestor. The framework's own savers walk in a circle for ever."""
        ids = set[str]()
        while checkpoint_id is not None:
            assert checkpoint_id not in ids, "a circle"
            ids.add(checkpoint_id)
            stored = self.theirs.get_tuple(config(thread, space, checkpoint_id))
            parent = stored.parent_config if stored is not None else None
            checkpoint_id = parent["configurable"]["checkpoint_id"] if parent is not None else None
        return ids

    def writes(self, thread: str, space: str, checkpoint_id: str | None, writes: Any, task: str, path: str) -> None:
        at = checkpoint_id or self.newest(thread, space) or "1f0000-6"
        for saver in (self.ours, self.theirs):
            saver.put_writes(config(thread, space, at), writes, task, path)

    def turn(self, thread: str, space: str, items: Any, change: Any, run: str) -> None:
        """As a graph does it: a task writes what the next checkpoint has."""
        self.writes(thread, space, None, [("m", items)], "task-1", "~a")
        less, more = change
        self.put(thread, space, None, True, (less, [*items, *more]), {}, run)

    def put(
        self, thread: str, space: str, checkpoint_id: str | None, is_child: bool, change: Any, others: Any, run: str
    ) -> None:
        self.count += 1
        checkpoint_id = checkpoint_id or max(f"1f{self.count:04}-6", (self.newest(thread, space) or "") + "0")
        newest = self.newest(thread, space)
        is_child = is_child and checkpoint_id not in self.ancestors(thread, space, newest)
        before = self.theirs.get_tuple(config(thread, space)) if is_child else None
        state: Any = before.checkpoint if before is not None else {"channel_values": {}, "channel_versions": {}}
        less, more = change
        values, changed = dict(state["channel_values"]), dict(others)
        if less >= 0 or more:
            items = list(values.get("m") or [])
            changed["m"] = items[: len(items) - max(0, less)] + more
        new = {name: self.theirs.get_next_version(state["channel_versions"].get(name), None) for name in changed}
        values = {name: item for name, item in {**values, **changed}.items() if item is not None}
        given = checkpoint(checkpoint_id, values, {**state["channel_versions"], **new})
        parent = config(thread, space, before.checkpoint["id"] if before is not None else None)
        assert self.ours.put(parent, given, {"run_id": run}, new) == self.theirs.put(
            parent, given, {"run_id": run}, new
        )

    def compare(self, thread: str) -> None:
        for space in ("", "child:1|a/b"):
            assert plain(self.ours.get_tuple(config(thread, space))) == plain(
                self.theirs.get_tuple(config(thread, space))
            )
            for item in self.theirs.list(config(thread, space)):
                for saver in (self.ours, self.make()):
                    assert plain(saver.get_tuple(item.config)) == plain(item)
                    histories = (
                        get(saver, config=item.config, channels=["m", "x"])
                        for get in (
                            TurnlogSaver.get_delta_channel_history,
                            BaseCheckpointSaver.get_delta_channel_history,
                        )
                    )
                    assert next(histories) == next(histories)
        self.listed(thread, None, None, None, None)

    def listed(self, thread: str, space: str | None, before: str | None, limit: int | None, run: str | None) -> None:
        asked: dict[str, Any] = {"filter": {"run_id": run} if run else None}
        if before is not None:
            asked["before"] = config(thread, space or "", before)
        result, other = (
            list(map(plain, saver.list(config(thread, space), **asked))) for saver in (self.ours, self.theirs)
        )
        assert [item[1]["id"] for item in result] == sorted((item[1]["id"] for item in other), reverse=True), (
            "newest first"
        )
        assert sorted(result, key=repr) == sorted(other, key=repr)
        some = list(map(plain, self.ours.list(config(thread, space), limit=limit, **asked)))
        assert some == result[:limit]

    def do(self, step: Any) -> None:
        kind, *given = step
        if kind == "put":
            self.put(given[0], *given[1:])
        elif kind == "writes":
            self.writes(given[0], *given[1:])
        elif kind == "turn":
            self.turn(given[0], *given[1:])
        elif kind == "list":
            self.listed(given[0], *given[1:])
        elif kind == "other process":
            self.ours = self.make()
        else:
            for saver in (self.ours, self.theirs):
                if kind == "prune":
                    saver.prune([given[0]])
                elif kind == "runs":
                    saver.delete_for_runs([given[0]])
                elif kind == "copy":
                    saver.delete_thread("copy")
                    saver.copy_thread(given[0], "copy")
                else:
                    saver.delete_thread(given[0])


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with sqlite_harness(tmp_path) as made:
        yield made


@pytest.mark.usefixtures("limits")
@settings(max_examples=examples(640), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=6, max_size=24))
def test_it_does_what_the_saver_in_memory_does(harness: Harness, steps: Any) -> None:
    owner = f"u{harness.faults.calls}"
    both = Both(lambda: TurnlogSaver(harness.log(user=owner)))
    for step in steps:
        both.do(step)
    for thread in ("t", "two words", "copy"):
        both.compare(thread)
    every = [item.config["configurable"]["thread_id"] for item in both.ours.list(None)]
    assert sorted(every) == sorted(item.config["configurable"]["thread_id"] for item in both.theirs.list(None))
