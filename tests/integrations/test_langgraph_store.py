"""`TurnlogStore` beside LangGraph's own store in memory, in a real graph, and what only it does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypedDict, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore, InvalidNamespaceError, MatchCondition, Op, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from tests.conftest import Harness
from tests.effort import examples
from turnlog.core.errors import InvalidInputError
from turnlog.integrations.langgraph import TurnlogSaver, TurnlogStore

LABELS = st.sampled_from(["users", "a", "a/b", "~x", "用户", "long " * 30])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "k/2", "", "偏好", "key " * 60])
NESTED = st.fixed_dictionaries({"deep": st.lists(st.integers(0, 1), max_size=2)})
TEXTS = st.sampled_from(["tea", "green tea", "喝茶"])
VALUES = st.fixed_dictionaries({"n": st.integers(0, 3)}, optional={"text": TEXTS, "in": NESTED})
FILTERS = st.sampled_from(
    [None, {"n": 1}, {"n": {"$gt": 0, "$lte": 2}}, {"n": {"$ne": 3}}, {"in": {"deep": [0, 1]}}, {"text": "tea"}]
)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMESPACES, KEYS, VALUES | st.none()),
        st.tuples(st.just("get"), NAMESPACES, KEYS),
        st.tuples(st.just("search"), st.lists(LABELS, max_size=2).map(tuple), FILTERS),
        st.tuples(st.just("list"), st.sampled_from([None, ("users",), ("*", "a")]), st.sampled_from([None, 1, 2])),
    ),
    max_size=25,
)


def plain(items: Sequence[Any]) -> list[Any]:
    return sorted(((item.namespace, item.key, item.value) for item in items), key=repr)


def namespaces(store: BaseStore, path: Any, depth: int | None) -> list[tuple[str, ...]]:
    return store.list_namespaces(prefix=path, max_depth=depth, limit=1_000)


def check(ours: TurnlogStore, theirs: InMemoryStore, op: tuple[Any, ...]) -> None:
    kind, *rest = op
    if kind == "put":
        namespace, key, value = rest
        for store in (ours, theirs):
            store.put(namespace, key, value) if value is not None else store.delete(namespace, key)
    elif kind == "get":
        answers = [store.get(*rest) for store in (ours, theirs)]
        assert plain([answer for answer in answers[:1] if answer]) == plain(
            [answer for answer in answers[1:] if answer]
        )
    elif kind == "search":
        prefix, wanted = rest
        answers = [store.search(prefix, filter=wanted, limit=1_000) for store in (ours, theirs)]
        assert plain(answers[0]) == plain(answers[1])
        pages = [ours.search(prefix, filter=wanted, limit=2, offset=start) for start in range(0, len(answers[0]), 2)]
        assert [item for page in pages for item in page] == answers[0]
    else:
        living = InMemoryStore()  # the store in memory lists namespaces whose items are all deleted
        for item in theirs.search((), limit=1_000):
            living.put(item.namespace, item.key, item.value)
        assert namespaces(ours, *rest) == namespaces(living, *rest)


@settings(max_examples=examples(320), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ops=OPS)
def test_it_answers_as_the_store_in_memory(harness: Harness, ops: list[tuple[Any, ...]]) -> None:
    number = getattr(harness, "stores", 0)
    harness.stores = number + 1  # type: ignore[attr-defined]
    ours, theirs = TurnlogStore(harness.log(), f"store-{number}"), InMemoryStore()
    for op in ops:
        check(ours, theirs, op)


def test_a_batch_reads_before_it_writes(harness: Harness) -> None:
    ops: list[Op] = [PutOp(("a",), "k", {"n": 1}), SearchOp(("a",)), PutOp(("a",), "k", {"n": 2})]
    ours, theirs = TurnlogStore(harness.log()), InMemoryStore()
    assert ours.batch(ops) == theirs.batch(ops) == [None, [], None]
    assert ours.get(("a",), "k").value == theirs.get(("a",), "k").value == {"n": 2}
    assert [item.key for item in ours.search(["a"], filter={"n": 2})] == ["k"], "a prefix may be a list"


def test_an_item_that_is_deleted_is_gone_and_the_others_stay(harness: Harness) -> None:
    store = TurnlogStore(harness.log())
    for key in ("k", "l"):
        store.put(("a",), key, {"n": 1})
    store.batch([PutOp(("a",), "k", None), PutOp(("a",), "never there", None), PutOp(("a",), "m", {"n": 2})])
    assert store.get(("a",), "k") is None
    assert sorted(item.key for item in store.search(("a",))) == ["l", "m"]


@pytest.mark.parametrize("namespace", [("foo.bar",), ("foo", ""), ("foo", 1)])
def test_a_batch_with_an_invalid_namespace_is_refused_whole(harness: Harness, namespace: Any) -> None:
    store = TurnlogStore(harness.log())
    for op in (PutOp(namespace, "key", {"n": 1}), PutOp(namespace, "key", None), SearchOp(namespace)):
        with pytest.raises(InvalidNamespaceError):
            store.batch([PutOp(("valid",), "key", {}), op])
    assert store.get(("valid",), "key") is None


def test_a_search_ranks_by_words_and_with_an_embedder_by_meaning(harness: Harness) -> None:
    store = TurnlogStore(harness.log())
    for name, text in (("x", "coffee at nine"), ("y", "green tea at five"), ("z", "我喜欢喝茶")):
        store.put(("likes",), name, {"text": text})
    assert store.search(("likes",), query="Which TEA is GREEN?")[0].key == "y"
    assert store.search(("likes",), query="喝茶")[0].key == "z"

    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0 if word in text else 0.1 for word in ("drink", "walk")] for text in texts]

    index: Any = {"embed": embed, "dims": 2, "fields": ["text"]}
    ours, theirs = TurnlogStore(harness.log(), "by-meaning", index=index), InMemoryStore(index=index)
    for store_ in (ours, theirs):
        store_.put(("a",), "1", {"text": "a drink"})
        store_.put(("a",), "2", {"text": "a walk"})
        store_.put(("a",), "3", {"text": "a walk"}, index=False)
    answers = [store_.search(("a",), query="to walk") for store_ in (ours, theirs)]
    assert [item.key for item in answers[0]] == [item.key for item in answers[1]] == ["2", "1", "3"]
    assert answers[0][0].score == pytest.approx(answers[1][0].score)


def test_the_async_calls_await_an_embedder_that_is_async(harness: Harness) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 if word in text else 0.1 for word in ("drink", "walk")] for text in texts]

    async def rank(store: BaseStore) -> list[tuple[str, Any]]:
        await store.aput(("a",), "1", {"text": "a drink", "note": "to walk"})
        await store.abatch(
            [PutOp(("a",), "2", {"text": "a walk"}), PutOp(("a",), "3", {"text": "a walk"}, index=False)]
        )
        answers = await store.abatch([SearchOp(("a",), query="to walk"), SearchOp(("a",), query="a drink")])
        return [
            (item.key, item.score and pytest.approx(item.score)) for answer in answers for item in cast(Any, answer)
        ]

    index: Any = {"embed": embed, "dims": 2, "fields": ["text"]}
    ours, theirs = TurnlogStore(harness.log(), index=index), InMemoryStore(index=index)
    assert asyncio.run(rank(ours)) == asyncio.run(rank(theirs))
    for store in (ours, theirs):
        with pytest.raises(ValueError, match="async function but no sync function"):
            store.put(("a",), "4", {"text": "a drink"})
    assert ours.get(("a",), "4") is None


def test_items_expire_and_are_swept(harness: Harness) -> None:
    now = [10**12]
    store = TurnlogStore(harness.log(), ttl={"default_ttl": 10, "refresh_on_read": True}, now_ms=lambda: now[0])
    store.put(("a",), "short", {"n": 1})
    store.put(("a",), "kept", {"n": 2}, ttl=None)
    now[0] += 9 * 60_000
    assert store.get(("a",), "short") is not None, "a read lets the time begin again"
    now[0] += 9 * 60_000
    assert store.get(("a",), "short", refresh_ttl=False) is not None
    now[0] += 60_000
    assert store.get(("a",), "short") is None and [item.key for item in store.search(("a",))] == ["kept"]
    assert store.sweep_ttl() == 1 and store.sweep_ttl() == 0
    created = store.get(("a",), "kept").created_at
    now[0] += 60_000
    store.put(("a",), "kept", {"n": 3}, ttl=None)
    item = store.get(("a",), "kept")
    assert item.created_at == created < item.updated_at


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_sweep_deletes_nothing_that_is_put_again_meanwhile(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    log, now = harness.log(), [10**12]
    store = TurnlogStore(log, now_ms=lambda: now[0])
    store.batch([PutOp(("a",), f"{number:03}", {"n": number}, ttl=1) for number in range(101)])
    now[0] += 120_000
    call = log.backend.call

    def writing_meanwhile(operation: str, **options: Any) -> Any:
        if operation == "put_documents":
            monkeypatch.undo()
            store.put(("a",), "007", {"n": -1}, ttl=1)
        return call(operation, **options)

    monkeypatch.setattr(log.backend, "call", writing_meanwhile)
    assert store.sweep_ttl() == 101
    assert [(item.key, item.value) for item in store.search(("a",))] == [("007", {"n": -1})]
    now[0] += 120_000
    assert store.sweep_ttl() == 1 and store.sweep_ttl() == 0


@pytest.mark.parametrize("read", ["get", "search"])
@pytest.mark.parametrize("value", [{"n": 2}, None])
def test_a_read_that_lets_the_time_begin_again_undoes_no_newer_write(
    harness: Harness, read: str, value: dict[str, int] | None
) -> None:
    log, now = harness.log(), 10**12
    other = TurnlogStore(log, now_ms=lambda: now)
    other.put(("a",), "k", {"n": 1}, ttl=10)

    def written_meanwhile() -> int:
        """Write what the reader does not know yet: it asks for the time just before it writes."""
        other.batch([PutOp(("a",), "k", value, ttl=10)])
        return now

    reader = TurnlogStore(log, now_ms=written_meanwhile)
    reader.get(("a",), "k") if read == "get" else reader.search(("a",))
    item = other.get(("a",), "k", refresh_ttl=False)
    assert (item.value if item is not None else None) == value


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_search_refreshes_25_items_a_request_and_all_but_those_that_have_changed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, now, operations = harness.log(), [10**12], list[str]()
    other = TurnlogStore(log, now_ms=lambda: now[0])
    for number in range(30):
        other.put(("a",), f"{number:02}", {"n": number}, ttl=10)
    now[0] += 9 * 60_000
    call = log.backend.call

    def writing_meanwhile(operation: str, **options: Any) -> Any:
        operations.append(operation)
        if operations == ["get_documents", "put_documents"]:
            other.put(("a",), "07", {"n": -1}, ttl=1)
        return call(operation, **options)

    monkeypatch.setattr(log.backend, "call", writing_meanwhile)
    assert len(TurnlogStore(log, now_ms=lambda: now[0]).search(("a",), limit=30)) == 30
    monkeypatch.undo()
    assert operations.count("put_documents") == 2 + 1, "two of the search, and the other's"
    now[0] += 9 * 60_000
    left = {item.key for item in other.search(("a",), limit=30, refresh_ttl=False)}
    assert left == {f"{number:02}" for number in range(30)} - {"07"}


def test_a_value_that_is_no_json_is_refused_by_name(harness: Harness) -> None:
    store = TurnlogStore(harness.log())
    with pytest.raises(InvalidInputError, match="'k' in 'a' is not JSON"):
        store.put(("a",), "k", {"n": object()})
    with pytest.raises(ValueError, match=r"\$near"):
        store.put(("a",), "k", {"n": 1})
        store.search(("a",), filter={"n": {"$near": 1}})


@pytest.mark.parametrize("value", [["tea"], "tea", 5])
def test_a_value_that_is_no_object_is_refused_and_the_batch_with_it(harness: Harness, value: Any) -> None:
    """In a store that has one, LangGraph's filters and lists of namespaces would fail."""
    store = TurnlogStore(harness.log())
    with pytest.raises(InvalidInputError, match=f"'k' in 'a' must be an object, not {type(value).__name__}"):
        store.batch([PutOp(("a",), "other", {"n": 1}), PutOp(("a",), "k", value)])
    assert store.list_namespaces() == [] and store.search((), filter={"n": 1}) == []


def test_a_graph_remembers_across_threads(harness: Harness) -> None:
    def node(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        known = store.search(("ada",))
        store.put(("ada",), "likes", {"text": state["messages"][-1].content})
        return {"messages": [("ai", known[0].value["text"] if known else "nothing")]}

    for expected in ("nothing", "I like tea"):
        graph = (
            StateGraph(MessagesState)
            .add_node("node", node)
            .add_edge(START, "node")
            .compile(store=TurnlogStore(harness.log()))
        )
        assert graph.invoke({"messages": [("user", "I like tea")]})["messages"][-1].content == expected


def test_the_async_calls_answer_alike(harness: Harness) -> None:
    async def run() -> None:
        store = TurnlogStore(harness.log())
        await store.aput(("a", "b"), "k", {"n": 1})
        assert (await store.aget(("a", "b"), "k")).value == {"n": 1}
        assert await store.alist_namespaces(suffix=("b",)) == [("a", "b")]
        assert MatchCondition("suffix", ("b",)).path == ("b",)

    asyncio.run(run())


@pytest.mark.every_engine
@pytest.mark.parametrize("messages", ["messages", None])
def test_a_thread_without_messages_and_a_store_that_are_used_do_not_expire(harness: Harness, messages: Any) -> None:
    store = TurnlogStore(harness.log(), ttl_days=3)
    saver = TurnlogSaver(harness.log(), messages=messages, ttl_days=3)
    graph = counting().compile(checkpointer=saver, store=store)
    config: Any = {"configurable": {"thread_id": "quiet"}}
    for day in range(7):
        graph.invoke({"count": day}, config)
        store.put(("days",), str(day), {"day": day})
        assert len(list(saver.list(config))) == 3 * (day + 1)
        assert len(store.search(("days",))) == day + 1
        harness.clock.advance(86_400)
    harness.clock.advance(2 * 86_400)
    assert (list(saver.list(config)), store.search(("days",))) == ([], [])


def test_a_thread_with_the_id_of_a_store_is_deleted_and_copied_without_its_values(harness: Harness) -> None:
    store, saver = TurnlogStore(harness.log()), TurnlogSaver(harness.log())
    store.put(("users", "ada"), "likes", {"text": "tea"})
    graph = counting().compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "langgraph-store"}}
    graph.invoke({"count": 1}, config)
    saver.copy_thread("langgraph-store", "copy")
    saver.delete_thread("langgraph-store")
    assert plain(store.search(())) == [(("users", "ada"), "likes", {"text": "tea"})]
    assert list(saver.list(config)) == []
    assert {
        key.split("/")[0] for key in (document.key for document in harness.log().sessions.of("copy").documents.list())
    } == {"lgc"}


def counting() -> StateGraph[Any, Any, Any, Any]:
    class State(TypedDict):
        count: int

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("count", lambda state: {"count": state["count"] + 1})
    builder.add_edge(START, "count")
    return builder
