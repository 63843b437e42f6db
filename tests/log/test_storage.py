"""D3, D4, D8 and the golden history: what is stored comes back equal, whatever it is, or is a typed error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import is_full
from tests.support.memory import GOLDEN, golden_item, memory
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import CorruptError, MalformedError, NewerSchemaError
from turnlog.core.identity import Owner
from turnlog.core.limits import MAX_POSITION
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.commit import checked_chain
from turnlog.log.headers import hashed_header
from turnlog.log.keys import SessionKeys, commit_sort_key, position_of
from turnlog.log.packing import pack, unpack
from turnlog.ports import Query

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()), max_size=40)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=()), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(value: object) -> str:
    """Equality that tells 1 from 1.0 and from true."""
    return json.dumps(value, sort_keys=True)


@settings(
    max_examples=150 if is_full() else 50,
    deadline=None,
    derandomize=not is_full(),
    suppress_health_check=list(HealthCheck),
)
@given(extra=JSON, metadata=st.dictionaries(st.text(max_size=8), JSON, max_size=3))
def test_d3_any_json_comes_back_equal(extra: Any, metadata: Any) -> None:
    log, _, _ = memory()
    session = log.sessions.create("s", metadata=metadata, state={"x": extra})
    body = {"role": "user", "content": "hi", "anything": extra}
    session.append(body, meta=[{"metadata": metadata}])
    stored = next(iter(session.messages()))
    assert same(stored.body) == same(body)
    assert same(stored.metadata) == same(metadata)
    assert same(session.info().metadata) == same(metadata)


SIZES = [0, 1, 2_000, 2_049, 33_000, 399_000, 410_000, 605_000, 1_000_000]


@pytest.mark.parametrize("size", SIZES)
def test_d8_every_size_is_kept_and_no_item_is_over_the_limit(log: Turnlog, size: int) -> None:
    """Text that can't be compressed, so that it goes through every place: inline, beside the commit, the blob store."""
    session = log.sessions.create("big", recall="never")
    text = "".join(f"{(at * 2654435761) % 2**32:08x}" for at in range(size // 8 + 1))[:size]
    body = {"role": "user", "content": text}
    session.append(body, {"role": "assistant", "content": "ok"})
    assert [message.body for message in session.messages()] == [body, {"role": "assistant", "content": "ok"}]
    assert session.context(budget=2_000_000).messages[0] == body
    assert next(session.loops()).user_message == text or size == 0


def test_d8_a_session_of_605_kb_with_a_message_of_600_kb_works(log: Turnlog) -> None:
    session = log.sessions.create("big", recall="never")
    sent = [{"role": "user", "content": "start"}]
    session.append(sent[0])
    for body in (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "cat", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "log line with words\n" * 30_000},
        {"role": "assistant", "content": "That is a long file."},
        {"role": "user", "content": "And now?"},
    ):
        session.append(body)
        sent.append(body)
    assert [message.body for message in session.messages()] == sent
    window = session.context(policy="run_loops", budget=4_000)
    note = {"role": "user", "content": "<turnlog-data kind='notes on exchange 1'>\n3.0 cat {}\n</turnlog-data>"}
    assert window.messages == [sent[0], sent[3], note, sent[4]]


def test_d8_25_messages_at_every_limit_are_one_commit(log: Turnlog) -> None:
    session = log.sessions.create("wide")
    batch = [
        {"role": "user", "content": f"{at} " + "".join(f"{at * 31 + n:06d}" for n in range(2_600))} for at in range(25)
    ]
    answer = session.append(*batch)
    assert (answer.first, answer.last) == (2, 26)
    assert [message.body for message in session.messages()] == batch


def test_d8_10000_calls_in_one_message_are_kept(log: Turnlog) -> None:
    session = log.sessions.create("calls")
    calls = [{"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for at in range(9_000)]
    body = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = session.append({"role": "user", "content": "go"}, body)
    assert len(answer.refs) == 9_000
    assert session.append({"role": "tool", "tool_call_id": "c8999", "content": "x"}).warnings == []
    assert [message.body for message in session.messages()][1] == body
    assert len(session.context().open_calls) == 8_999


def test_d8_pages_end_at_4_mb_and_positions_cross_every_digit(log: Turnlog) -> None:
    session = log.sessions.create("long")
    for at in range(0, 104, 8):
        session.append(*({"role": "user", "content": str(at + n)} for n in range(8)))
    stored = list(session.messages())
    assert [message.position for message in stored] == list(range(2, 106))
    assert [message.body["content"] for message in stored] == [str(at) for at in range(104)]
    page = session.page(after=8, before=12, limit=100)
    assert [message.position for message in page.messages] == [9, 10, 11]
    assert page.next is None
    back = session.page(before=100, limit=5, order="desc")
    assert [message.position for message in back.messages] == [99, 98, 97, 96, 95]
    assert back.next == 95


def test_pages_stop_at_4_mb(log: Turnlog) -> None:
    session = log.sessions.create("heavy")
    for at in range(6):
        session.append({"role": "user", "content": f"{at}" + " x" * 500_000})
    first = session.page(limit=100)
    assert len(first.messages) == 4
    assert [message.body["content"][0] for message in session.messages()] == list("012345")


# ------------------------------------------------------------ corruption


def _commits(items: SqliteItemTable) -> list[dict[str, Any]]:
    page = items.query(Query("T#acme#U#ada#S#s", "C#", "C~"))
    return [dict(item) for item in page.items]


def _conversation() -> tuple[Turnlog, SqliteItemTable, MemoryBlobStore, Session]:
    log, items, blobs = memory()
    session = log.sessions.create("s", system="Be brief.")
    session.append({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, idempotency_key="k")
    session.append({"role": "user", "content": "".join(f"{at * 7919:06x}" for at in range(1_000))})
    session.append({"role": "assistant", "content": "".join(f"{at * 7919:09x}" for at in range(9_000))})
    session.append({"role": "user", "content": "bye"})
    return log, items, blobs, session


def _readers(session: Session) -> dict[str, Any]:
    return {
        "messages": lambda: list(session.messages()),
        "context": lambda: session.context(),
        "loops": lambda: list(session.loops()),
    }


ATTRIBUTES = ["b", "h", "l", "t", "n", "ct", "ol", "w", "ik", "k", "v", "pr"]


@pytest.mark.parametrize("attribute", ATTRIBUTES)
@pytest.mark.parametrize("at", [0, 1, 2, 4])
def test_d4_a_changed_attribute_is_a_typed_error_that_names_the_item(at: int, attribute: str) -> None:
    _, items, _, session = _conversation()
    item = _commits(items)[at]
    if attribute not in item:
        pytest.skip("this commit has no such attribute")
    item[attribute] = _damaged(item[attribute])
    items.put(item)
    for read in _readers(session).values():
        with pytest.raises(CorruptError) as caught:
            read()
        assert caught.value.item in {commit["sk"] for commit in _commits(items)}


def _damaged(value: Any) -> Any:
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    return value + 1 if isinstance(value, int) else value + "1"


def test_d4_every_single_byte_of_a_body_is_guarded() -> None:
    _, items, _, _ = _conversation()
    item = _commits(items)[1]
    for at in range(len(item["b"])):
        damaged = item["b"][:at] + bytes([item["b"][at] ^ 0x40]) + item["b"][at + 1 :]
        with pytest.raises(CorruptError):
            checked_chain([{**item, "b": damaged}])


def test_d4_a_hole_is_a_typed_error() -> None:
    _, items, _, session = _conversation()
    from turnlog.ports import Key

    hole = _commits(items)[2]
    items.delete_many([Key(hole["pk"], hole["sk"])])
    for read in _readers(session).values():
        with pytest.raises(CorruptError, match=r"missing between|no commit holds"):
            read()


def test_d4_a_commit_swapped_for_another_session_s_is_found() -> None:
    log, items, _, session = _conversation()
    other = log.sessions.create("other", system="Be brief.")
    other.append({"role": "user", "content": "ho"}, {"role": "assistant", "content": "hello"}, idempotency_key="k")
    foreign = dict(items.query(Query("T#acme#U#ada#S#other", "C#000000000002", "C#000000000002")).items[0])
    items.put({**foreign, "pk": "T#acme#U#ada#S#s"})
    with pytest.raises(CorruptError, match="chain hash"):
        list(session.messages())


def test_d4_a_commit_with_other_than_its_number_of_events_is_found() -> None:
    """Whatever its checksum says: it is the item that is named, and no event that is read in another's place."""
    _, items, _, session = _conversation()
    item = next(dict(item) for item in _commits(items) if b"\n" in unpack(item["b"], item="x", beside=_covered(item)))
    lines = unpack(item["b"], item="x", beside=_covered(item)).split(b"\n")
    for others in (lines[:-1], [*lines, lines[-1]], lines[1:]):
        items.put({**item, "b": pack(b"\n".join(others), beside=_covered(item))})
        with pytest.raises(CorruptError, match=f"has {len(others)} events") as caught:
            list(session.messages())
        assert item["sk"] in str(caught.value)


def _covered(item: Any) -> bytes:
    return hashed_header(str(item["sk"]), item)


def test_a_cache_that_is_newer_than_a_query_is_no_sign_of_lost_commits() -> None:
    """A query is no snapshot of the table: a commit may land behind it. The end of the log is read again, and only then."""
    log, items, _, session = _conversation()
    commits, keys = log.backend.app.log.commits, SessionKeys(Owner.of("acme", "ada"), "s")  # type: ignore[attr-defined]
    before = commits.tail(keys)
    session.append({"role": "user", "content": "meanwhile"})
    after = commits.tail(keys)
    assert after.meta is not None and after.header.last > before.header.last
    newer = {**after.meta, "pos": after.header.last}
    commits.check_reached(keys, before.header, [newer])
    items.delete_many([keys.commit(after.header.first)])
    with pytest.raises(CorruptError, match=f"position {before.header.last}, but a cache reflects"):
        commits.check_reached(keys, before.header, [newer])
    commits.check_reached(keys, before.header, [{**newer, "pos": before.header.last}])
    commits.check_reached(keys, before.header, [])


def test_d4_a_missing_or_changed_payload_is_never_read_as_nothing() -> None:
    _, items, blobs, session = _conversation()
    payload = next(dict(item) for item in items.query(Query("T#acme#U#ada#S#s", "R#", "R~")).items)
    blob = blobs.names("")[0]
    whole = blobs.get(blob)
    assert whole is not None
    items.put({**payload, "b": pack(b'{"b":{"role":"user","content":"forged"}}')})
    with pytest.raises(CorruptError, match="not the one"):
        list(session.messages())
    items.put(payload)
    blobs.put(blob, whole[:-1])
    with pytest.raises(CorruptError):
        list(session.messages())
    blobs.erase(blob)
    with pytest.raises(CorruptError, match="missing"):
        list(session.messages())


def test_d4_a_newer_schema_is_refused_by_name() -> None:
    _, items, _, session = _conversation()
    item = _commits(items)[3]
    items.put({**item, "v": 99})
    with pytest.raises(NewerSchemaError, match="99"):
        session.context()


def test_d4_a_zip_bomb_is_not_inflated() -> None:
    import zlib

    bomb = bytes([1]) + b"\0\0\0\0" + zlib.compress(b"0" * (48 * 1024 * 1024))
    with pytest.raises(CorruptError, match="too large"):
        unpack(bomb, item="C#1")


def test_lost_caches_are_read_from_the_log_and_mended() -> None:
    from turnlog.ports import Key

    log, items, _ = memory()
    session = log.sessions.create("s", system="Be brief.", title="A title", metadata={"a": "x" * 2_000}, state={"n": 1})
    session.append({"role": "user", "content": "hi"}, run={"iteration": 3})
    before = (session.info(), session.context(), session.agent())
    for sort_key in ("D#META", "E#SYS", "S#STATE"):
        items.delete_many([Key("T#acme#U#ada#S#s", sort_key)])
        assert (session.info(), session.context(), session.agent()) == before
        session.append({"role": "user", "content": f"after {sort_key}"})
        before = (session.info(), session.context(), session.agent())


LONG = "".join(f"{number * 7919 % 1_000_003:06x}" for number in range(2_000))
"""No compression makes it small."""


@pytest.mark.parametrize("fields", [{}, {"title": "A title"}, {"policy": "run_loops"}, {"metadata": {"a": LONG}}])
def test_d2_the_settings_beside_the_head_are_small_however_long_they_are(fields: dict[str, Any]) -> None:
    """An append writes them: its price is that of a small item."""
    from turnlog.ports import Key, item_size_bytes

    log, items, _ = memory()
    session = log.sessions.create("s", system="Be brief. " * 500, **fields)
    session.append({"role": "user", "content": "hi"})
    (meta,) = items.get_many([Key("T#acme#U#ada#S#s", "D#META")]).values()
    assert item_size_bytes(meta) <= 1_024
    assert {name: session.info().model_dump()[name] for name in fields} == fields


@pytest.mark.parametrize("position", [1, 2, 10, 10**6, 10**11 - 1, 10**11, MAX_POSITION])
def test_a_position_is_read_back_from_its_sort_key_and_sorts_as_a_number(position: int) -> None:
    key = commit_sort_key(position)
    assert position_of(key) == position
    assert commit_sort_key(position - 1) < key


# ------------------------------------------------------------ golden


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_d5_the_golden_history_of_every_schema_version_reads_the_same(path: Path) -> None:
    golden = json.loads(path.read_text())
    log, items, blobs = memory()
    items.write_many([golden_item(item) for item in golden["items"]])
    for name, data in golden["blobs"].items():
        blobs.put(name, bytes.fromhex(data))
    session = log.sessions.get("golden")
    # Fields may be added, none changes.
    later = {"redacted": False, "origin": None, "agent_id": None, "parent": None}
    read = [message.model_dump() for message in session.messages()]
    assert read == [message | later for message in golden["messages"]]
    info = session.info().model_dump()
    stored = dict(golden["session"])
    if "inactive_after_days" in stored:  # counted in minutes since
        days = stored.pop("inactive_after_days")
        assert info["inactive_after_minutes"] == (days and days * 24 * 60)
    assert {name: info[name] for name in stored} == stored, "fields may be added, none changes"
    assert info["recall"] == "never" and session.context().tools == [], "it began without the recall tools"
    assert session.context(at=info["head"]) == session.context()
    assert session.context(at=golden["messages"][2]["position"]).head == golden["messages"][2]["position"]
    assert session.agent().model_dump() == golden["agent"]
    if "history" in golden:
        entries = [entry.model_dump() for entry in session.history()]
        for entry, stored in zip(entries, golden["history"], strict=True):
            if stored["metadata"] is not None:  # fields may be added
                entry["metadata"] = {name: entry["metadata"][name] for name in stored["metadata"]}
        assert entries == golden["history"]
        assert [message.position for message in session.messages(in_view=True)] == golden["in_view"]
        assert session.state().model_dump() == golden["state"]
        summary = session.summary()
        assert (summary.model_dump() if summary is not None else None) == golden["summary"]


def test_strangers_values_are_refused_before_anything_is_written() -> None:
    log, _, _ = memory()
    session = log.sessions.create("s")
    deep: Any = "x"
    for _ in range(40):
        deep = [deep]
    for wrong in (float("nan"), float("inf"), 2**64, deep, {1: "a"}, object(), {"a": {1, 2}}, b"bytes"):
        with pytest.raises(MalformedError):
            session.append({"role": "user", "content": "x", "extra": wrong})
    assert session.info().head == 1
