"""The LangGraph saver: the published conformance suite, real graphs, faults, and writers side by side."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import importlib
import io
import json
import random
import runpy
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint, get_checkpoint_metadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.types import Command

from tests.conftest import ROOT, Harness, sqlite_harness
from tests.effort import boundaries, is_full
from tests.integrations.checkpoints import Branch, checkpoint, config, plain
from tests.integrations.served import url_of
from turnlog import Turnlog
from turnlog.core.errors import CorruptError, InvalidInputError, SessionEndedError, UnavailableError
from turnlog.integrations.langgraph import TurnlogSaver, records
from turnlog.sessions.document_models import MAX_DOCUMENT_BYTES

CLAUSES = 81


@pytest.fixture(scope="module")
def agents() -> Any:
    return importlib.import_module("tests.integrations.langgraph_agents")


@pytest.mark.parametrize("harness", ["sqlite", pytest.param("moto", marks=pytest.mark.full)], indirect=True)
def test_the_published_conformance_suite(harness: Harness, record_property: Callable[[str, object], None]) -> None:
    from langgraph.checkpoint.conformance import checkpointer_test, validate

    users = iter(range(100))

    @checkpointer_test(name=f"TurnlogSaver on {harness.name}")
    async def saver() -> Any:
        yield TurnlogSaver(harness.log(user=f"u{next(users)}"))

    report = asyncio.run(validate(saver))
    passed = sum(result.tests_passed for result in report.results.values())
    names = [
        f"{name} {result.tests_passed}/{result.tests_passed + result.tests_failed}"
        for name, result in report.results.items()
    ]
    line = f"{report.checkpointer_name}: {report.conformance_level()}, {passed} clauses passed ({', '.join(names)})"
    record_property("conformance", line)
    assert report.passed_all() and all(result.detected for result in report.results.values()), report.to_dict()
    assert passed >= CLAUSES


# ------------------------------------------------------------ the contract, sentence by sentence


def test_a_put_names_the_checkpoint_and_its_config_the_parent(harness: Harness) -> None:
    branch = Branch(TurnlogSaver(harness.log()))
    first, second = branch.put("1", m=["a"]), branch.put("2", m=["a", "b"])
    assert (first, second) == (config(checkpoint_id="1"), config(checkpoint_id="2"))
    value = branch.get()
    assert value is not None and value.config == second and value.parent_config == first
    asked = {"configurable": {**first["configurable"], "mine": 1}, "tags": ["x"]}
    exact = branch.saver.get_tuple(asked)
    assert exact.config is asked and exact.checkpoint["channel_values"] == {"m": ["a"]} and exact.parent_config is None
    assert branch.get("15") is None and branch.saver.get_tuple(config("other")) is None


def test_metadata_are_those_of_the_framework_and_nothing_else(harness: Harness) -> None:
    saver = TurnlogSaver(harness.log())
    values: Any = {**config(), "metadata": {"user": "ada", "deep": {"not": "kept"}}}
    values["configurable"] |= {"model": "m", "__secret": 1}
    saver.put(values, checkpoint("1", {}, {}), {"source": "input", "step": -1}, {})
    result = saver.get_tuple(config())
    assert result is not None and result.metadata == get_checkpoint_metadata(values, {"source": "input", "step": -1})
    assert result.metadata == {"source": "input", "step": -1, "user": "ada", "model": "m"}


def test_values_that_did_not_change_come_from_older_checkpoints_and_none_means_removed(harness: Harness) -> None:
    branch = Branch(TurnlogSaver(harness.log()))
    branch.put("1", a="x" * 20_000, b=[1, 2], c={"d": HumanMessage("hi")})
    branch.put("2", b=None)
    branch.put("3", e=b"raw")
    for saver in (branch.saver, TurnlogSaver(harness.log())):
        value = branch.get(saver=saver)
        assert value is not None
        assert value.checkpoint["channel_values"] == {"a": "x" * 20_000, "c": {"d": HumanMessage("hi")}, "e": b"raw"}
        first = branch.get("1", saver=saver)
        assert first is not None and first.checkpoint["channel_values"]["b"] == [1, 2]


LISTS = [
    [["a", "b", "c", "d"], ["a", "b", "c", "x"], ["a", "b", "c"], ["a", "b", "c", "y", "z"]],
    [["a", "b"], [], ["a", "b", "c"], ["c"], None, ["d"]],
    [[{"deep": [1]}], [{"deep": [1]}, {"a set"}], [{"deep": [2]}, {"a set"}], [1, 2.5, None]],
    [[HumanMessage("a", id="1")], [HumanMessage("b", id="1")], [HumanMessage("b", id="1"), b"raw", bytearray(b"x")]],
]


@pytest.mark.parametrize("lists", LISTS, ids=range(len(LISTS)))
def test_a_list_is_what_it_was_however_it_has_changed(harness: Harness, lists: list[Any]) -> None:
    branch = Branch(TurnlogSaver(harness.log()))
    for at, item in enumerate(lists):
        branch.put(f"{at}", m=item)
    for saver in (branch.saver, TurnlogSaver(harness.log())):
        for at, item in enumerate(lists):
            value = branch.get(f"{at}", saver=saver)
            assert value is not None and value.checkpoint["channel_values"].get("m") == item
        listed = [match.checkpoint["channel_values"].get("m") for match in saver.list(config())]
        assert listed == lists[::-1] and repr(listed) == repr(lists[::-1])


def test_a_checkpoint_is_found_whose_id_begins_another_ones(harness: Harness) -> None:
    branch = Branch(TurnlogSaver(harness.log()))
    for checkpoint_id in ("1", "1-a"):
        branch.put(checkpoint_id, m=[checkpoint_id])
        result = branch.get("1", saver=TurnlogSaver(harness.log()))
        assert result is not None and result.checkpoint["channel_values"] == {"m": ["1"]}


def test_no_checkpoint_is_before_itself(harness: Harness) -> None:
    saver, place = TurnlogSaver(harness.log()), config(checkpoint_id="1")
    Branch(saver).put("1", m=["a"])
    assert [item.checkpoint["id"] for item in saver.list(place)] == ["1"]
    assert list(saver.list(place, before=place)) == []


def test_a_copy_of_a_checkpoint_beside_it_has_its_values(harness: Harness) -> None:
    """As LangGraph forks: the same versions, nothing new, the parent's parent."""
    branch = Branch(TurnlogSaver(harness.log()))
    branch.put("1", m=["a"], x=1)
    branch.put("2", m=["a", "b"])
    saver = TurnlogSaver(harness.log())
    saver.put(config(checkpoint_id="1"), checkpoint("3", branch.values, branch.versions), {"source": "fork"}, {})
    result = saver.get_tuple(config())
    assert result is not None and result.checkpoint["channel_values"] == {"m": ["a", "b"], "x": 1}


def test_a_copy_of_a_checkpoint_in_which_a_channel_has_no_value_has_none_either(harness: Harness) -> None:
    """As LangGraph forks behind a node that has run: the channel that called the node is empty."""
    branch = Branch(TurnlogSaver(harness.log()))
    branch.put("1", m=["a"], x=1)
    branch.put("2", x=None)
    branch.saver.put(config(checkpoint_id="1"), checkpoint("3", branch.values, branch.versions), {"source": "fork"}, {})
    for saver in (branch.saver, TurnlogSaver(harness.log())):
        result = saver.get_tuple(config())
        assert result is not None and result.checkpoint["channel_values"] == {"m": ["a"]}


def test_writes_come_back_in_order_of_path_task_and_index_and_the_first_one_stays(harness: Harness) -> None:
    saver = TurnlogSaver(harness.log())
    Branch(saver).put("1", m=["a"])
    at = config(checkpoint_id="1")
    saver.put_writes(at, [("x", 1), (INTERRUPT, "first"), ("y", [HumanMessage("b")])], "task-z", "~a")
    saver.put_writes(at, [("x", 2)], "task-a", "~b")
    saver.put_writes(at, [("x", 3)], "task-a/with words" * 20, "")
    saver.put_writes(at, [("x", "late"), (INTERRUPT, "second")], "task-z", "~c")
    saver.put_writes(at, [(ERROR, "wrong")], "task-a", "~b")
    saver.put_writes(at, [], "nobody")
    for value in (saver, TurnlogSaver(harness.log())):
        result = value.get_tuple(at)
        assert result is not None and result.pending_writes == [
            ("task-a/with words" * 20, "x", 3),
            ("task-z", "x", 1),
            ("task-z", "y", [HumanMessage("b")]),
            ("task-a", ERROR, "wrong"),
            ("task-a", "x", 2),
            ("task-z", INTERRUPT, "second"),
        ]


def test_writes_larger_than_a_document_come_back(harness: Harness) -> None:
    saver = TurnlogSaver(harness.log())
    Branch(saver).put("1", m=["a"])
    large = [random.Random(seed).randbytes(MAX_DOCUMENT_BYTES // 2) for seed in range(3)]
    saver.put_writes(config(checkpoint_id="1"), [("m", large)], "task")
    result = TurnlogSaver(harness.log()).get_tuple(config())
    assert result is not None and result.pending_writes == [("task", "m", large)]


def test_versions_grow_from_numbers_texts_and_nothing(harness: Harness) -> None:
    saver = TurnlogSaver(harness.log())
    first = saver.get_next_version(None)
    assert first.startswith(f"{1:032}.") and saver.get_next_version(first) > first
    assert saver.get_next_version(41).startswith(f"{42:032}.")


def test_threads_of_any_name_are_listed_by_it_and_a_deleted_one_can_be_used_again(harness: Harness) -> None:
    log = harness.log()
    saver, names = TurnlogSaver(log, title="Desk"), ["plain-1", "two words", "café/1|x", "t_1", "h_1", "x" * 300]
    for name in names:
        Branch(saver, name).put("1", m=[name])
        Branch(saver, name, "sub:" + "n" * 300).put("2", m=[name])
    assert sorted(item.config["configurable"]["thread_id"] for item in saver.list(None)) == sorted(names * 2)
    assert {item.config["configurable"]["checkpoint_ns"] for item in saver.list(None)} == {"", "sub:" + "n" * 300}
    assert log.sessions.get("plain-1").info().title == "Desk"
    for name in names:
        saver.delete_thread(name)
        saver.delete_thread(name)
        assert saver.get_tuple(config(name)) is None and list(saver.list(config(name, None))) == []
        Branch(saver, name).put("1", m=["again"])
        result = saver.get_tuple(config(name))
        assert result is not None and result.checkpoint["channel_values"] == {"m": ["again"]}
    saver.delete_thread("never")
    assert not log.sessions.exists("never")
    log.sessions.get("plain-1").end()
    with pytest.raises(SessionEndedError):
        Branch(saver, "plain-1").put("2", m=["no more"])


def test_names_that_look_like_a_digest_or_sort_last_are_listed(harness: Harness) -> None:
    saver = TurnlogSaver(harness.log())
    Branch(saver, "t", "~node:1").put("~~~", m=[1])
    Branch(saver, "t", "zzz").put("1", m=[2])
    configs = [item.config["configurable"] for item in saver.list(config("t", None))]
    assert {(item["checkpoint_ns"], item["checkpoint_id"]) for item in configs} == {("~node:1", "~~~"), ("zzz", "1")}
    saver.delete_thread("t")
    assert list(saver.list(config("t", None))) == []


def test_a_thread_can_live_in_the_session_of_its_conversation(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("desk")
    session.append({"role": "user", "content": "hi"})
    saver = TurnlogSaver(log)
    Branch(saver, "desk").put("1", m=["a"])
    saver.delete_thread("desk")
    assert [message.body["content"] for message in session.messages()] == ["hi"]


def test_prune_leaves_one_checkpoint_and_what_it_is_made_of(harness: Harness) -> None:
    saver = TurnlogSaver(harness.log())
    branch = Branch(saver)
    for at in range(6):
        if at:
            saver.put_writes(config(checkpoint_id=f"{at}"), [("m", [f"said {at}" * 9])], "task")
        branch.put(
            f"{at + 1}", m=[*(branch.values.get("m") or []), f"said {at}" * 9], large="y" * 9_000 if at < 2 else f"{at}"
        )
    before = branch.get()
    documents = harness.log().sessions.of("t").documents
    count = len(list(documents.list()))
    saver.prune(["t"])
    for value in (saver, TurnlogSaver(harness.log())):
        assert plain(branch.get(saver=value)) == plain(before)
        assert [match.checkpoint["id"] for match in value.list(config())] == ["6"]
        assert branch.get("3", saver=value) is None
    assert len(list(documents.list())) < count, "large values that nobody needs are gone"
    branch.put("7", m=[*branch.values["m"], "more"])
    result = branch.get(saver=TurnlogSaver(harness.log()))
    assert result is not None and result.checkpoint["channel_values"]["m"] == branch.values["m"]
    saver.prune(["t", "nobody"], strategy="delete")
    assert list(documents.list()) == []
    with pytest.raises(InvalidInputError):
        saver.prune(["t"], strategy="everything")


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_what_an_older_version_wrote_is_read_continued_and_pruned(harness: Harness) -> None:
    """Its lists name elements of tasks' writes, and patches of them, which are no longer written."""
    old = json.loads((Path(__file__).parent / "golden" / "langgraph-written.json").read_text(encoding="utf-8"))
    documents = harness.log().sessions.get_or_create("t").documents
    documents.put_many({key: base64.b64decode(data) for key, data in old["documents"].items()})
    saver = TurnlogSaver(harness.log())
    for name, values in old["states"].items():
        for reader in (saver, TurnlogSaver(harness.log())):
            read = reader.get_tuple(config(checkpoint_id=name))
            assert read is not None and read.checkpoint["channel_values"] == values
    for key in ("lgc//1/w/model", "lgc//2/w/user"):
        data = base64.b64decode(old["documents"][key])
        for damaged in (None, data[:-3] + b"xyz"):
            if damaged is None:
                documents.delete([key])
            else:
                documents.put(key, damaged)
            with pytest.raises(CorruptError):
                TurnlogSaver(harness.log()).get_tuple(config(checkpoint_id="4"))
        documents.put(key, data)
    newest = saver.get_tuple(config())
    assert newest is not None
    branch = Branch(saver)
    branch.at, branch.values = "5", dict(newest.checkpoint["channel_values"])
    branch.versions = dict(newest.checkpoint["channel_versions"])
    branch.put("6", m=[*branch.values["m"], "One more."])
    for _ in range(2):
        read = TurnlogSaver(harness.log()).get_tuple(config())
        assert read is not None and read.checkpoint["channel_values"] == branch.values
        saver.prune(["t"])
    keys = {document.key for document in documents.list("")}
    assert keys >= {"lgc//1/w/model", "lgc//2/w/user"}, "writes that the list still names"
    assert [stored.checkpoint["id"] for stored in saver.list(config())] == ["6"]


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_lists_that_are_built_on_lists_of_many_checkpoints_are_read_continued_and_pruned(harness: Harness) -> None:
    """As 0.1 wrote them before lists were in pieces, with what others need of checkpoints that were deleted."""
    old = json.loads((Path(__file__).parent / "golden" / "langgraph-chains.json").read_text(encoding="utf-8"))
    documents = harness.log().sessions.get_or_create("t").documents
    documents.put_many({key: base64.b64decode(data) for key, data in old["documents"].items()})
    saver = TurnlogSaver(harness.log())

    def digest(values: Any) -> str:
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    states = {item.checkpoint["id"]: digest(item.checkpoint["channel_values"]) for item in saver.list(config())}
    assert states == old["states"]
    for name, state in old["states"].items():
        read = TurnlogSaver(harness.log()).get_tuple(config(checkpoint_id=name))
        assert read is not None and digest(read.checkpoint["channel_values"]) == state
    assert read is not None
    branch = Branch(saver)
    parent = saver.get_tuple(config(checkpoint_id="11"))
    assert parent is not None
    branch.at, branch.values = "11", dict(parent.checkpoint["channel_values"])
    branch.versions = dict(parent.checkpoint["channel_versions"])
    for name in ("15", "16"):
        branch.put(name, m=[*branch.values["m"], f"more in {name}"])
    for _ in range(2):
        for reader in (saver, TurnlogSaver(harness.log())):
            read = reader.get_tuple(config())
            assert read is not None and read.checkpoint["channel_values"] == branch.values
        saver.prune(["t"])
    assert [stored.checkpoint["id"] for stored in saver.list(config())] == ["16"]


def test_what_is_missing_or_damaged_is_an_error_and_never_an_older_state(harness: Harness) -> None:
    saver = TurnlogSaver(harness.log())
    branch = Branch(saver)
    branch.put("1", m=["a"], large="y" * 9_000)
    saver.put_writes(config(checkpoint_id="1"), [("m", ["b"])], "task")
    branch.put("2", m=["a", "b"])
    branch.put("3", m=["a", "b", "c"])
    documents = harness.log().sessions.of("t").documents
    values = {item.key: item.data for item in documents.list()}
    for key, data in values.items():
        for damaged in (None, data[:-3] + b"xyz"):
            if damaged is None:
                documents.delete([key])
            else:
                documents.put(key, damaged)
            if key not in ("lgc//3", "lgc//1/w/task"):
                with pytest.raises(CorruptError):
                    branch.get(saver=TurnlogSaver(harness.log()))
            documents.put(key, data)
    documents.put("lgc//1/w/task", values["lgc//1/w/task"][:-3] + b"xyz")
    with pytest.raises(CorruptError):
        branch.get("1", saver=TurnlogSaver(harness.log()))
    for damaged in (b"", b"\x07", values["lgc//3"][:9]):
        documents.put("lgc//3", damaged)
        with pytest.raises(CorruptError):
            branch.get(saver=TurnlogSaver(harness.log()))


# ------------------------------------------------------------ faults, and writers side by side


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_checkpoint_is_there_whole_or_not_at_all_and_a_repeated_put_brings_it(harness: Harness, when: Any) -> None:
    before, after = {"m": ["a"], "x": 1}, {"m": ["a", "b"], "x": "y" * 9_000}

    def begun(user: str) -> Branch:
        branch = Branch(TurnlogSaver(harness.log(user=user)))
        branch.put("1", **before)
        return branch

    def on(branch: Branch) -> None:
        branch.saver.put_writes(config(checkpoint_id="1"), [("m", ["b"]), ("x", "y" * 9_000)], "task")
        copy = Branch(branch.saver)
        copy.at, copy.values, copy.versions = "1", dict(before), dict(branch.versions)
        copy.put("2", **after)

    clean = begun("clean")
    count = harness.faults.calls
    on(clean)
    for at in boundaries(harness.faults.calls - count, harness.name, emulated=3):
        branch = begun(f"u{when}{at}")
        harness.faults.fail(at, when)
        result = False
        try:
            on(branch)
        except UnavailableError:
            result = True
        harness.faults.clear()
        fresh = TurnlogSaver(harness.log(user=f"u{when}{at}"))
        value = branch.get(saver=fresh)
        assert value is not None
        assert value.checkpoint["channel_values"] in ([before, after] if result else [after])
        if value.checkpoint["id"] == "1" and value.pending_writes:
            assert value.pending_writes == [("task", "m", ["b"]), ("task", "x", "y" * 9_000)]
        branch.saver = fresh if at % 2 else branch.saver
        on(branch)
        value = branch.get(saver=TurnlogSaver(harness.log(user=f"u{when}{at}")))
        assert value is not None and value.checkpoint["channel_values"] == after
        first = branch.get("1")
        assert first is not None and first.pending_writes == [("task", "m", ["b"]), ("task", "x", "y" * 9_000)]


def test_a_run_whose_thread_is_deleted_while_it_is_read_goes_on_with_what_it_writes(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = harness.log()
    call, saver = log.backend.call, TurnlogSaver(log)
    branch = Branch(saver)
    branch.put("1", m=["a" * 200, "b" * 200])

    def reading(operation: str, **options: Any) -> Any:
        if operation == "put_documents":
            branch.get()
        return call(operation, **options)

    monkeypatch.setattr(log.backend, "call", reading)
    saver.delete_thread("t")
    monkeypatch.undo()
    branch.put("2", x=["c"])
    fresh = branch.get(saver=TurnlogSaver(harness.log()))
    assert fresh is not None and fresh.checkpoint["channel_values"] == {"x": ["c"]}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["prune", "copy", "delete", "runs"])
@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_what_takes_away_or_copies_can_be_done_again_wherever_it_ended(harness: Harness, when: Any, what: str) -> None:
    def begun(user: str) -> Branch:
        branch = Branch(TurnlogSaver(harness.log(user=user)))
        for at in range(1, 6):
            branch.put(
                f"{at}",
                {"run_id": "one" if at == 2 else "two"},
                m=[*(branch.values.get("m") or []), f"{at}"],
                x="y" * 9_000,
            )
            branch.saver.put_writes(config(checkpoint_id=f"{at}"), [("m", [f"{at + 1}"])], "task")
        return branch

    def do(saver: TurnlogSaver) -> None:
        {
            "prune": lambda: saver.prune(["t"]),
            "copy": lambda: saver.copy_thread("t", "u"),
            "delete": lambda: saver.delete_thread("t"),
            "runs": lambda: saver.delete_for_runs(["one"]),
        }[what]()

    clean = begun("clean")
    newest = plain(clean.get())
    count = harness.faults.calls
    do(clean.saver)
    ours = [plain(item) for item in clean.saver.list(None)]
    for at in boundaries(harness.faults.calls - count, harness.name, sqlite=2):
        branch = begun(f"u{when}{what}{at}")
        expected = plain(branch.get())
        harness.faults.fail(at, when)
        with contextlib.suppress(UnavailableError):
            do(branch.saver)
        harness.faults.clear()
        fresh = TurnlogSaver(harness.log(user=f"u{when}{what}{at}"))
        if what != "delete":
            assert plain(fresh.get_tuple(config())) == expected, "what stays can be read at any time"
        do(fresh)
        again = [plain(item) for item in fresh.list(None)]
        assert len(again) == len(ours) and [item[0] for item in again] == [our[0] for our in ours]
    assert newest is not None


@pytest.mark.parametrize("pruned", ["t", "u"])
def test_a_second_copy_keeps_what_checkpoints_of_the_first_one_need(harness: Harness, pruned: str) -> None:
    branch = Branch(TurnlogSaver(harness.log()))
    for at in range(1, 5):
        branch.put(f"{at}", m=[*(branch.values.get("m") or []), f"{at}"], x=1 if at == 1 else f"{at}", kept="first")
    branch.saver.copy_thread("t", "u")
    branch.saver.put_writes(config("u", checkpoint_id="4"), [("m", ["own"])], "task")
    before = [plain(item) for item in branch.saver.list(config("u"))]
    branch.saver.prune([pruned])
    branch.saver.copy_thread("t", "u")
    after = [plain(item) for item in TurnlogSaver(harness.log()).list(config("u"))]
    assert after == before


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_deleting_a_run_without_checkpoints_reads_no_values_also_where_others_are_hidden(harness: Harness) -> None:
    branch = Branch(TurnlogSaver(harness.log()))
    for at in range(1, 6):
        values = [*(branch.values.get("m") or []), f"{at}"]
        branch.put(f"{at}", {"run_id": "one" if at == 2 else "two"}, m=values, x=f"{at}" * 9_000)

    def requests_of(run_id: str) -> int:
        before = harness.faults.calls
        TurnlogSaver(harness.log()).delete_for_runs([run_id])
        return harness.faults.calls - before

    least = requests_of("nobody")
    assert requests_of("one") > least
    assert requests_of("nobody") <= least


def test_two_writers_from_one_parent_lose_nothing(harness: Harness) -> None:
    root = Branch(TurnlogSaver(harness.log()))
    root.put("100", m=["a"])
    ready = threading.Barrier(4)

    def write(at: int) -> None:
        saver = TurnlogSaver(harness.log())
        branch = Branch(saver)
        branch.at, branch.values, branch.versions = "100", {"m": ["a"]}, dict(root.versions)
        ready.wait()
        saver.put_writes(config(checkpoint_id="100"), [("m", [f"of {at}"])], "shared" if at < 2 else f"task-{at}")
        for step in range(3):
            branch.put(f"{200 + 10 * step + at}", m=[*branch.values["m"], f"{at}.{step}"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    fresh = TurnlogSaver(harness.log())
    for at in range(4):
        value = root.get(f"{220 + at}", saver=fresh)
        assert value is not None and value.checkpoint["channel_values"]["m"] == [
            "a",
            *(f"{at}.{step}" for step in range(3)),
        ]
    parent = root.get("100", saver=fresh)
    assert parent is not None and parent.pending_writes is not None
    assert [pending_write[0] for pending_write in parent.pending_writes] == ["shared", "task-2", "task-3"]
    newest = root.get(saver=fresh)
    assert newest is not None and newest.checkpoint["id"] == "223"


WRITER = """
import sys
from tests.integrations.checkpoints import Branch, config
from turnlog import Turnlog
from turnlog.integrations.langgraph import TurnlogSaver

url, name = sys.argv[1:]
with Turnlog.open(url) as log:
    saver = TurnlogSaver(log)
    root = saver.get_tuple(config(checkpoint_id="0"))
    branch = Branch(saver)
    branch.at, branch.values, branch.versions = "0", {"m": ["a"]}, dict(root.checkpoint["channel_versions"])
    for at in range(8):
        saver.put_writes(config(checkpoint_id=branch.at), [("m", [f"{name}-{at}"])], f"task-{name}")
        branch.put(f"{at + 1}-{name}", m=[*branch.values["m"], f"{name}-{at}"])
"""


def test_two_processes_on_one_thread_lose_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    with Turnlog.open(url) as log:
        Branch(TurnlogSaver(log)).put("0", m=["a"])
        started = [_process("-c", WRITER, url, name) for name in ("x", "y")]
        for item in started:
            _, errors = item.communicate(timeout=120)
            assert item.returncode == 0, errors
        saver = TurnlogSaver(log)
        for name in ("x", "y"):
            result = saver.get_tuple(config(checkpoint_id=f"8-{name}"))
            assert result is not None and result.checkpoint["channel_values"]["m"] == [
                "a",
                *(f"{name}-{at}" for at in range(8)),
            ]
        assert len(list(saver.list(config()))) == 17
        first = saver.get_tuple(config(checkpoint_id="0"))
        assert first is not None and [pending_write[0] for pending_write in first.pending_writes or []] == [
            "task-x",
            "task-y",
        ]


def test_a_large_value_is_deflated_where_that_makes_it_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnlog.integrations.langgraph import records

    sizes, make = list[int](), zlib.compressobj

    class Counted:
        def __init__(self, *given: Any) -> None:
            self._deflate = make(*given)

        def compress(self, raw: bytes) -> bytes:
            sizes.append(len(raw))
            return self._deflate.compress(raw)

        def flush(self) -> bytes:
            return self._deflate.flush()

    monkeypatch.setattr("zlib.compressobj", Counted)
    noise = random.Random(1).randbytes(400_000)
    for content, is_smaller in ((noise, False), (b"text " * 80_000, True), (noise[:100], False)):
        sizes.clear()
        stored = records.packed(content)
        assert records.unpacked(stored, item="x") == content
        assert (len(stored) < len(content)) == is_smaller
        assert is_smaller or max(sizes, default=0) < 70_000, "noise is not deflated in vain"


def test_what_was_put_is_read_in_every_other_saver(harness: Harness) -> None:
    writer, readers = Branch(TurnlogSaver(harness.log())), [TurnlogSaver(harness.log()) for _ in range(2)]
    for at in range(5):
        writer.put(f"{at}", m=[*(writer.values.get("m") or []), f"{at}"])
        writer.saver.put_writes(config(checkpoint_id=f"{at}"), [("m", ["next"])], "task")
        for saver in readers:
            value = writer.get(saver=saver)
            assert value is not None and value.checkpoint["channel_values"] == writer.values
            assert value.pending_writes == [("task", "m", ["next"])]


def test_a_cancelled_put_is_done_and_then_the_cancellation_is_told(harness: Harness) -> None:
    saver = TurnlogSaver(harness.log())

    async def run() -> None:
        task = asyncio.create_task(saver.aput(config(), checkpoint("1", {"m": ["a"]}, {"m": "1"}), {}, {"m": "1"}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await saver.aget_tuple(config()) is not None

    asyncio.run(run())


# ------------------------------------------------------------ real graphs


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_with_a_tool_is_as_with_the_saver_in_memory(
    harness: Harness, agents: Any, is_async: bool, durability: Any
) -> None:
    def run(saver: Any) -> Any:
        graph, at = agents.agent(saver, lambda: "aisle 4", calls=2), {"configurable": {"thread_id": "t"}}
        for question in ("Where is it?", "And now?"):
            values = {"messages": [("user", question)]}
            if is_async:
                asyncio.run(graph.ainvoke(values, at, durability=durability))
            else:
                graph.invoke(values, at, durability=durability)
        history = list(graph.get_state_history(at))
        return [
            ([(message.type, message.content) for message in state.values.get("messages", [])], state.next)
            for state in history
        ]

    assert run(TurnlogSaver(harness.log())) == run(InMemorySaver())


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_thread_goes_on_where_it_was_imported(harness: Harness, agents: Any) -> None:
    """An export of all that a person has takes the checkpoints along, of a graph that waits for an answer too."""
    at, file = {"configurable": {"thread_id": "t"}}, io.BytesIO()
    here = agents.agent(TurnlogSaver(harness.log()), lambda: "aisle 4")
    here.invoke({"messages": [("user", "Where is it?")]}, at)
    asking = {"configurable": {"thread_id": "asking"}}
    agents.asking(TurnlogSaver(harness.log())).invoke({"answers": ["start"]}, asking)
    harness.log().export(file)
    other = harness.log(user="eve")
    assert {item.status for item in other.sessions.import_(file)} == {"imported"}
    there = agents.agent(TurnlogSaver(other), lambda: "aisle 4")
    assert [item.values for item in there.get_state_history(at)] == [item.values for item in here.get_state_history(at)]
    there.invoke({"messages": [("user", "And now?")]}, at)
    assert len(there.get_state(at).values["messages"]) > len(here.get_state(at).values["messages"])
    graphs = [agents.asking(TurnlogSaver(log)) for log in (harness.log(), other)]
    assert graphs[1].get_state(asking).interrupts == graphs[0].get_state(asking).interrupts != ()
    assert graphs[1].invoke(Command(resume="yes"), asking) == graphs[0].invoke(Command(resume="yes"), asking)


def test_interrupts_subgraphs_and_time_travel(harness: Harness, agents: Any) -> None:
    def run(make: Callable[[], Any]) -> Any:
        at: Any = {"configurable": {"thread_id": "t"}}
        result = list[Any]()
        first = agents.asking(make()).invoke({"answers": ["start"]}, at)
        result.append(first["answers"])
        result.append([item.value for item in first["__interrupt__"]])
        graph = agents.asking(make())
        state = graph.get_state(at, subgraphs=True)
        result.append([(task.name, bool(task.state)) for task in state.tasks])
        result.append(graph.invoke(Command(resume="yes"), at)["answers"])
        history = list(graph.get_state_history(at))
        result.append([(item.values, item.next, item.metadata["source"], item.metadata["step"]) for item in history])
        before = next(item for item in history if item.next == ("after",))
        forked = graph.update_state(before.config, {"answers": ["another"]}, as_node="beside")
        result.append(graph.invoke(None, forked)["answers"])
        result.append(graph.get_state(history[0].config).values)
        copied = graph.update_state(history[0].config, None, as_node="__copy__")
        result.append(graph.get_state(copied).values)
        return result

    memory, log = InMemorySaver(), harness.log()
    assert run(lambda: TurnlogSaver(log)) == run(lambda: memory)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_delta_channels_are_put_together_also_after_a_prune_and_a_copy(
    harness: Harness, agents: Any, durability: Any
) -> None:
    def run(make: Callable[[], Any], prune: bool) -> Any:
        at: Any = {"configurable": {"thread_id": "t"}}
        result = list[Any]()
        for turn in range(8):
            result.append(agents.sparse(make()).invoke({"said": [f"turn {turn}"]}, at, durability=durability))
            if prune:
                saver = make()
                saver.prune(["t"])
                history = saver.get_delta_channel_history(config=at, channels=["said"])
                assert history == super(TurnlogSaver, saver).get_delta_channel_history(config=at, channels=["said"])
                saver.copy_thread("t", f"copy-{turn}")
                copied: Any = {"configurable": {"thread_id": f"copy-{turn}"}}
                assert agents.sparse(make()).get_state(copied).values == result[-1]
        return result

    memory, log = InMemorySaver(), harness.log()
    assert run(lambda: TurnlogSaver(log), True) == run(lambda: memory, False)
    assert len(list(TurnlogSaver(log).list(config()))) < 8


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_the_history_of_delta_channels_is_that_of_the_framework(harness: Harness, agents: Any) -> None:
    ours, theirs = TurnlogSaver(harness.log()), InMemorySaver()
    for saver in (ours, theirs):
        graph = agents.sparse(saver)
        for turn in range(7):
            graph.invoke({"said": [f"turn {turn}"]}, config())
    asked = ["said", "nothing"]
    for saver in (ours, TurnlogSaver(harness.log())):
        for value in [None, *(match.config for match in ours.list(config()))]:
            result = saver.get_delta_channel_history(config=value or config(), channels=asked)
            assert result == super(TurnlogSaver, saver).get_delta_channel_history(
                config=value or config(), channels=asked
            )
    newest, other = (saver.get_delta_channel_history(config=config(), channels=asked) for saver in (ours, theirs))
    assert [write[1:] for write in newest["said"]["writes"]] == [write[1:] for write in other["said"]["writes"]]
    assert newest["said"].get("seed") == other["said"].get("seed") and newest["nothing"] == {"writes": []}
    assert asyncio.run(ours.aget_delta_channel_history(config=config(), channels=asked)) == newest
    assert ours.get_delta_channel_history(config=config(checkpoint_id=""), channels=asked) == newest
    assert ours.get_delta_channel_history(config=config(), channels=[]) == {}
    assert ours.get_delta_channel_history(config=config("nobody"), channels=["x"]) == {"x": {"writes": []}}


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_the_history_of_a_delta_channel_is_whole_when_the_clock_went_back(harness: Harness) -> None:
    """Ids are times: a parent may have the greater one."""
    for thread, ids in {"back": "cba", "on": "abc", "to and fro": "bac", "fro and to": "acb", "again": "cab"}.items():
        for saver in (TurnlogSaver(harness.log()), InMemorySaver()):
            at: Any = config(thread)
            for number, name in enumerate(ids):
                values: Any = {**empty_checkpoint(), "id": name, "channel_versions": {"said": f"{number}"}}
                values["channel_values"] = {} if number else {"said": "seed"}
                at = saver.put(at, values, {}, {} if number else {"said": "0"})
                saver.put_writes(at, [("said", f"write {number}")], "task")
            result = saver.get_delta_channel_history(config=at, channels=["said"])
            wanted = [("task", "said", "write 0"), ("task", "said", "write 1")]
            assert result == {"said": {"writes": wanted, "seed": "seed"}}, (thread, type(saver))


def _process(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.network
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("moto", marks=pytest.mark.full)])
def test_a_killed_agent_goes_on_in_a_new_process(tmp_path: Path, engine: str) -> None:
    with url_of(engine, tmp_path) as url:
        killed = _process("-m", "tests.integrations.langgraph_agents", url, "desk", "crash")
        killed.communicate(timeout=120)
        assert killed.returncode == -signal.SIGKILL
        with Turnlog.open(url) as log:
            kept = TurnlogSaver(log).get_tuple(config("desk"))
            assert kept is not None and [message.type for message in kept.checkpoint["channel_values"]["messages"]] == [
                "human",
                "ai",
            ]
        again = _process("-m", "tests.integrations.langgraph_agents", url, "desk")
        output, errors = again.communicate(timeout=120)
        assert again.returncode == 0, errors
        assert [load[0] for load in json.loads(output)] == ["human", "ai", "tool", "ai"]


@pytest.mark.parametrize("harness", ["moto"], indirect=True)
def test_an_agent_that_fails_in_a_node_goes_on_in_another_saver(harness: Harness, agents: Any) -> None:
    def crash() -> None:
        raise SystemExit("killed")

    at = {"configurable": {"thread_id": "t"}}
    with pytest.raises(SystemExit):
        agents.agent(TurnlogSaver(harness.log()), lambda: "aisle 4", crash=crash).invoke(
            {"messages": [("user", "Where?")]}, at
        )
    graph = agents.agent(TurnlogSaver(harness.log()), lambda: "aisle 4")
    assert graph.get_state(at).next == ("tools",)
    assert [message.type for message in graph.invoke(None, at)["messages"]] == ["human", "ai", "tool", "ai"]


@pytest.mark.network
def test_over_http(agents: Any) -> None:
    from turnlog.app import make_application
    from turnlog.engines import SystemClock
    from turnlog.server.local_server import LocalServer
    from turnlog.settings import Settings

    app = make_application(Settings(engine="memory://", identity="jwt"))
    server = LocalServer(app, SystemClock(), port=0).start()
    try:
        with Turnlog.open(server.url) as log:
            at = {"configurable": {"thread_id": "two words"}}
            first = agents.agent(TurnlogSaver(log), lambda: "aisle 4").invoke({"messages": [("user", "Where?")]}, at)
            again = agents.agent(TurnlogSaver(log), lambda: "aisle 4").invoke({"messages": [("user", "And now?")]}, at)
            assert (
                len(first["messages"]) == 4
                and again["messages"][:4] == first["messages"]
                and len(again["messages"]) == 8
            )
            assert TurnlogSaver(log).get_tuple(config("nobody")) is None
            TurnlogSaver(log).delete_thread("two words")
            assert list(TurnlogSaver(log).list(None)) == []
    finally:
        server.stop()
        app.close()


# ------------------------------------------------------------ what it costs

MESSAGES = 1_000 if is_full() else 300
CALLS = 1 if is_full() else 8
"""At once in each turn: in the short form there are fewer steps."""


@pytest.fixture(scope="module")
def long_thread(tmp_path_factory: pytest.TempPathFactory, agents: Any) -> Any:
    """An agent's thread of many messages of 1,000 characters: the harness, the bytes written, those of the text."""
    with sqlite_harness(tmp_path_factory.mktemp("long")) as harness:
        written = [0]
        table = harness.app.engine.items
        put = table.put

        def metered(item: Any, **given: Any) -> Any:
            written[0] += _bytes(item)
            return put(item, **given)

        table.put = metered
        graph = agents.agent(TurnlogSaver(harness.log(), messages=None), agents.Texts(1_000), calls=CALLS)
        state: Any = {"messages": []}
        while len(state["messages"]) < MESSAGES:
            state = graph.invoke({"messages": [("user", "x")]}, config())
        yield harness, written[0], sum(len(message.content.encode()) for message in state["messages"]), state


def _bytes(item: Any) -> int:
    """As DynamoDB counts them: names and values."""
    sizes = {bytes: len, str: lambda item: len(item.encode())}
    return sum(len(name) + sizes.get(type(value), lambda _: 9)(value) for name, value in item.items())


def test_what_is_written_is_less_than_two_and_a_half_times_the_text(long_thread: Any) -> None:
    _, written, text, state = long_thread
    assert len(state["messages"]) >= MESSAGES
    assert written <= 2.5 * text, f"{written / text:.2f} bytes for each of the text"


def test_a_load_is_three_requests(long_thread: Any) -> None:
    harness, _, _, state = long_thread
    for saver, most in ((cold := TurnlogSaver(harness.log()), 3), (cold, 2)):
        before = harness.faults.calls
        result = saver.get_tuple(config())
        assert harness.faults.calls - before <= most
        assert result is not None and result.checkpoint["channel_values"]["messages"] == state["messages"]


def test_a_log_remembers_for_each_of_its_savers_and_forgets_what_one_deletes(harness: Harness) -> None:
    log = harness.log()
    branch = Branch(TurnlogSaver(log))
    for at in range(1, 30):
        branch.put(f"{at:03}", m=[*(branch.values.get("m") or []), f"{at} " * 500])
    for saver, most in ((TurnlogSaver(harness.log()), 3), (TurnlogSaver(log), 2)):
        before = harness.faults.calls
        value = branch.get(saver=saver)
        assert harness.faults.calls - before <= most
        assert value is not None and value.checkpoint["channel_values"] == branch.values
    TurnlogSaver(log).delete_thread("t")
    assert branch.get() is None
    again = Branch(TurnlogSaver(log))
    again.put("029", m=["new"])
    for saver in (branch.saver, TurnlogSaver(harness.log())):
        value = again.get(saver=saver)
        assert value is not None and value.checkpoint["channel_values"] == {"m": ["new"]}


def test_a_checkpoint_is_two_requests_and_its_writes_are_two(harness: Harness) -> None:
    """Whether the session is there, and the document. A large value in front of it is another two."""
    branch = Branch(TurnlogSaver(harness.log()))
    branch.put("1", m=["a"])
    for item, most in (({"m": ["a", "b"]}, 2), ({"x": "y" * 9_000}, 4), ({}, 2)):
        before = harness.faults.calls
        branch.put(f"{len(branch.ids) + 1}", **item)
        assert harness.faults.calls - before == most
    before = harness.faults.calls
    branch.saver.put_writes(config(checkpoint_id="4"), [("m", ["c"])], "task")
    assert harness.faults.calls - before == 2
    before = harness.faults.calls
    assert branch.get(saver=TurnlogSaver(harness.log())) is not None
    assert harness.faults.calls - before <= 3


def test_a_first_load_reads_each_value_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests: whether the session is there, the newest documents, and all pieces of the list at once."""
    unpacked, unpack = list[str](), records.unpacked
    with sqlite_harness(tmp_path) as harness:
        branch, messages = Branch(TurnlogSaver(harness.log(), messages=None)), list[str]()
        for number in range(100):
            messages.append(f"{number} " + "word " * 150)
            branch.put(f"{number:03}", m=list(messages))
        monkeypatch.setattr(records, "unpacked", lambda data, *, item: unpacked.append(item) or unpack(data, item=item))
        before = harness.faults.calls
        result = TurnlogSaver(harness.log(), messages=None).get_tuple(config())
        assert harness.faults.calls - before == 3
    assert result is not None and result.checkpoint["channel_values"] == {"m": messages}
    assert len(unpacked) == len(set(unpacked)) <= 1 + 10 + 9


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "langgraph_agent.py"), run_name="__main__")
    output = capsys.readouterr().out
    assert "SKU-1 costs 12.50" in output and output.count("goes on") == 2
