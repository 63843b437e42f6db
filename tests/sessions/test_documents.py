"""Documents beside the log, on every engine: what was written last is read, a condition has one winner, all go with the session."""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.conftest import Harness, moto_harness
from tests.effort import examples
from tests.log.everything import held
from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.client.model import Session
from turnlog.core.errors import (
    CorruptError,
    DocumentChangedError,
    InvalidInputError,
    NewerSchemaError,
    NotFoundError,
    SessionEndedError,
    TooLargeError,
    UnavailableError,
)
from turnlog.engines import SystemClock
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.server.local_server import LocalServer
from turnlog.sessions import document_models
from turnlog.sessions.document_models import MAX_DOCUMENT_BYTES, MAX_WRITTEN
from turnlog.sessions.documents import READING_MS
from turnlog.settings import Settings

KEYS = ["a", "a/1", "a/10", "a/2", "a~", "b", "é", "ﬀ", "🙂", "a/é"]
NOISE = "".join(f"{at * 7919:09x}" for at in range(60_000)).encode()


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    with moto_harness(monkeypatch) as made:
        yield made


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Turnlog]:
    app = make_application(
        Settings(engine=f"sqlite:///{tmp_path}/turnlog.db", identity="jwt", token_counter="estimate")
    )
    server = LocalServer(app, SystemClock(), port=0).start()
    with Turnlog.open(server.url) as log:
        yield log
    server.stop()
    app.close()


@pytest.fixture
def session(harness: Harness) -> Session:
    return harness.log().sessions.create("s")


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KEYS), st.binary(max_size=20)),
        st.tuples(st.just("if_absent"), st.sampled_from(KEYS), st.binary(max_size=20)),
        st.tuples(st.just("if_revision"), st.sampled_from(KEYS), st.booleans()),
        st.tuples(st.just("delete"), st.lists(st.sampled_from(KEYS), min_size=1, unique=True), st.none()),
        st.tuples(st.just("many"), st.dictionaries(st.sampled_from(KEYS), st.binary(max_size=20)), st.none()),
    ),
    max_size=12,
)


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(
    steps=_STEPS,
    prefix=st.sampled_from(["", "a", "a/", "é", "none"]),
    after=st.none() | st.sampled_from(KEYS),
    until=st.none() | st.sampled_from(KEYS),
    limit=st.none() | st.integers(1, 4),
    order=st.sampled_from(["asc", "desc"]),
)
def test_documents_are_a_sorted_dictionary(
    harness: Harness, steps: Any, prefix: str, after: str | None, until: str | None, limit: int | None, order: Any
) -> None:
    session = harness.log().sessions.create()
    documents, expected = session.documents, dict[str, bytes]()
    for name, what, value in steps:
        if name == "put":
            documents.put(what, value)
            expected[what] = value
        elif name == "if_absent" and what in expected:
            with pytest.raises(DocumentChangedError, match="already exists"):
                documents.put(what, value, if_absent=True)
        elif name == "if_absent":
            documents.put(what, value, if_absent=True)
            expected[what] = value
        elif name == "if_revision":
            now = documents.get(what)
            if now is not None and value:
                expected[what] = b"changed"
                documents.put(what, b"changed", if_revision=now.revision)
            else:
                with pytest.raises(DocumentChangedError, match="has another revision"):
                    documents.put(what, b"never", if_revision="0123456789abcdef")
        elif name == "delete":
            documents.delete(what)
            expected = {key: data for key, data in expected.items() if key not in what}
        else:
            documents.put_many(what)
            expected |= what
    assert {key: item.data for key, item in documents.get_many(KEYS).items()} == expected
    keys = sorted((key for key in expected if key.startswith(prefix)), key=str.encode, reverse=order == "desc")
    if after is not None:
        keys = [key for key in keys if (key < after if order == "desc" else key > after)]
    if until is not None:
        keys = [key for key in keys if (key >= until if order == "desc" else key <= until)]
    items = list(documents.list(prefix, after=after, until=until, order=order, limit=limit))
    assert [(item.key, item.data) for item in items] == [(key, expected[key]) for key in keys[:limit]]


def test_a_page_downwards_has_no_more_than_was_asked_for(harness: Harness, session: Session) -> None:
    """Also where it goes on behind a key that is no document."""
    session.documents.put_many({"a": b"1", "b": b"2", "d": b"3"})
    for after in ("c", "d"):
        assert [item.key for item in session.documents.list(after=after, order="desc", limit=1)] == ["b"]
        body = {"prefix": "", "after": after, "order": "desc", "limit": 1}
        page = session.backend.call("get_documents", path={"session_id": session.id}, body=body)
        assert ([document.key for document in page.documents], page.next) == (["b"], "b")
        rest = session.backend.call(
            "get_documents", path={"session_id": session.id}, body={**body, "after": "b", "limit": 5}
        )
        assert ([document.key for document in rest.documents], rest.next) == (["a"], None)


def test_a_list_of_none_asks_for_none_and_what_follows_must_fit_one_request(session: Session) -> None:
    session.documents.put_many({f"k{at:02}": b"1" for at in range(26)}, then={"z": b"2"})
    assert list(session.documents.list(limit=0)) == []
    assert [item.key for item in session.documents.list("z")] == ["z"]
    for many in (
        {f"t{at:02}": b"3" for at in range(MAX_WRITTEN + 1)},
        {"t1": b"3" * 2_000_000, "t2": b"3" * 2_000_000},
    ):
        with pytest.raises(InvalidInputError, match="then has more than one request takes"):
            session.documents.put_many({"k00": b"3"}, then=many)
    assert session.documents.get("k00").data == b"1" and list(session.documents.list("t")) == []
    full = {f"t{at:02}": b"3" for at in range(MAX_WRITTEN)}
    session.documents.put_many({"k00": b"4"}, then=full)
    assert [item.key for item in session.documents.list("t")] == sorted(full)
    assert session.documents.get("k00").data == b"4"


def test_one_of_many_writers_wins_a_condition(harness: Harness, session: Session) -> None:
    start = threading.Barrier(6)

    def tries(at: int, **condition: Any) -> int | None:
        start.wait()
        try:
            session.documents.put("one", bytes([at]), **condition)
        except DocumentChangedError:
            return None
        return at

    with ThreadPoolExecutor(6) as pool:
        won = [at for at in pool.map(lambda at: tries(at, if_absent=True), range(6)) if at is not None]
        first = session.documents.get("one")
        assert first is not None and [first.data] == [bytes([at]) for at in won]
        won = [at for at in pool.map(lambda at: tries(at, if_revision=first.revision), range(6)) if at is not None]
    second = session.documents.get("one")
    assert second is not None and [second.data] == [bytes([at]) for at in won]
    assert second.revision != first.revision


@pytest.mark.every_engine
def test_a_document_that_has_changed_is_not_deleted_and_the_others_are(session: Session) -> None:
    documents = session.documents
    first = {key: documents.put(key, b"1").revision for key in ("a", "b", "c")}
    documents.put("b", b"2")
    for _ in range(2):
        with pytest.raises(DocumentChangedError, match="'b' has another revision") as caught:
            documents.delete(["a", "b", "c", "d"], if_revisions=first)
        assert caught.value.details["key"] == "b"
        assert {item.key: item.data for item in documents.list()} == {"b": b"2"}
    documents.delete(["a", "b"], if_revisions={**first, "b": documents.get_many(["b"])["b"].revision})
    assert list(documents.list()) == []
    documents.put("a", b"3", if_absent=True)
    documents.delete(["a"])
    assert documents.get("a") is None


def test_large_documents_and_many_of_them_come_back_equal(session: Session) -> None:
    documents = session.documents
    large = {f"large/{at}": bytes([at]) * 1_500_000 + NOISE for at in range(4)}
    documents.put_many(large)
    whole = (NOISE * 6)[:MAX_DOCUMENT_BYTES]
    documents.put("whole", whole)
    small = {f"small/{at:03}": b"%d" % at for at in range(60)}
    documents.put_many(small, then={"last": b""})
    assert {key: item.data for key, item in documents.get_many([*small, *large, "whole", "none"]).items()} == {
        **small,
        **large,
        "whole": whole,
    }
    assert {item.key: item.data for item in documents.list()} == {**small, **large, "whole": whole, "last": b""}
    assert [item.key for item in documents.list("large/", order="desc")] == sorted(large, reverse=True)
    documents.put("large/0", b"small now")
    assert documents.get_many(["large/0"])["large/0"].data == b"small now"
    with pytest.raises(TooLargeError):
        documents.put("more", whole + b"x")
    assert documents.get("more") is None


@pytest.mark.parametrize("data", ["text", 5, None, [1]])
def test_a_document_is_bytes(session: Session, data: Any) -> None:
    for write in (session.documents.put, lambda name, data: session.documents.put_many({name: data})):
        with pytest.raises(InvalidInputError, match="'k' must be bytes"):
            write("k", data)
    assert session.documents.put("k", bytearray(b"x")).data == b"x"


def test_what_is_written_then_is_never_there_without_what_comes_before(harness: Harness, session: Session) -> None:
    for at in range(1, 5):
        name = f"{at}"
        harness.faults.fail(at, "before")
        with pytest.raises(UnavailableError):
            session.documents.put_many({f"part/{name}/a": b"a", f"part/{name}/b": b"b"}, then={f"head/{name}": b"ab"})
        harness.faults.clear()
        assert session.documents.get(f"head/{name}") is None
        session.documents.put_many({f"part/{name}/a": b"a", f"part/{name}/b": b"b"}, then={f"head/{name}": b"ab"})
        assert [item.data for item in session.documents.list(f"part/{name}/")] == [b"a", b"b"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_repeated_conditional_writing_is_one(harness: Harness, session: Session, when: str) -> None:
    for at in (1, 2):
        harness.faults.fail(at, when)
        with pytest.raises(UnavailableError):
            session.documents.put(f"d{at}", b"1", if_absent=True, idempotency_key=f"k{at}")
        harness.faults.clear()
        document = session.documents.put(f"d{at}", b"1", if_absent=True, idempotency_key=f"k{at}")
        time.sleep(0.002)
        assert session.documents.put(f"d{at}", b"1", if_absent=True, idempotency_key=f"k{at}") == document
        assert session.documents.get(f"d{at}") == document
        with pytest.raises(DocumentChangedError):
            session.documents.put(f"d{at}", b"1", if_absent=True, idempotency_key="other")


def test_a_repeated_writing_has_the_same_revision_in_every_version(session: Session) -> None:
    """It is computed again, not stored: a repetition behind a deployment would else name a revision that is not there."""
    assert session.documents.put("plan", b"pack", idempotency_key="k").revision == "a14eb9911576fa03"


def test_documents_go_with_their_session(harness: Harness, session: Session) -> None:
    documents = session.documents
    reading = documents.reading()
    documents.put_many({"small": b"NEEDLE", "large": b"NEEDLE" + NOISE})
    documents.put("large", b"NEEDLE again" + NOISE)
    documents.put("gone", b"NEEDLE")
    documents.delete(["gone"])
    assert held("NEEDLE", harness) and reading.get("small") is not None
    session.erase()
    for call in (lambda: documents.get("small"), lambda: list(documents.list()), lambda: documents.put("x", b"")):
        with pytest.raises(NotFoundError):
            call()
    harness.clock.advance(READING_MS / 1000)
    with pytest.raises(NotFoundError):
        reading.get("small")
    harness.log().run_jobs()
    harness.clock.advance(SECOND_PASS_SECONDS + 1)
    harness.log().run_jobs()
    assert held("NEEDLE", harness) == []


def test_an_ended_session_keeps_its_documents_and_takes_none(session: Session) -> None:
    session.documents.put("a", b"1")
    session.end()
    assert [item.data for item in session.documents.list()] == [b"1"]
    for call in (lambda: session.documents.put("b", b""), lambda: session.documents.delete(["a"])):
        with pytest.raises(SessionEndedError):
            call()


def test_an_expired_session_has_no_documents(harness: Harness) -> None:
    session = harness.log().sessions.create("s", ttl_days=1)
    session.documents.put("a", b"1")
    harness.clock.advance(24 * 3600 + 1)
    with pytest.raises(NotFoundError):
        session.documents.get("a")


@pytest.mark.every_engine
def test_documents_that_are_written_keep_their_session_from_expiring(harness: Harness) -> None:
    session = harness.log().sessions.create("short", ttl_days=2)

    def write() -> int:
        calls = harness.faults.calls
        session.documents.put("a", b"1")
        return harness.faults.calls - calls

    usual = write()
    for _ in range(12):
        harness.clock.advance(0.4 * 86_400)
        write()
        assert write() == usual, "once in a quarter of its days"
    entries = [entry.action for entry in session.history()]
    assert entries == ["documents_written"] * 6 + ["create"]
    assert session.info().expires_at == "2025-11-27T19:12:00.000Z", "two days after the newest entry"
    harness.clock.advance(2 * 86_400)
    with pytest.raises(NotFoundError):
        session.documents.put("a", b"1")
    lasting = harness.log().sessions.create("lasting")
    harness.clock.advance(1_000 * 86_400)
    lasting.documents.put("a", b"1")
    assert lasting.info().head == 1


def test_a_fork_has_documents_of_its_own(session: Session) -> None:
    session.append({"role": "user", "content": "hi"})
    session.documents.put("a", b"1")
    fork = session.fork("other")
    assert fork.documents.get("a") is None
    fork.documents.put("a", b"2")
    assert [item.data for item in session.documents.list()] == [b"1"]


@pytest.mark.parametrize("key", ["", "x" * 513, "é" * 257, "a\n", "\x00", "\ud800", "a\u2028b"])
def test_a_key_that_is_none_is_refused(session: Session, key: str) -> None:
    documents = session.documents
    calls: list[Any] = [
        lambda: documents.put(key, b""),
        lambda: documents.get(key),
        lambda: documents.delete([key]),
        lambda: list(documents.list("a", after=key)),
    ]
    if key:
        calls.append(lambda: list(documents.list(key)))
    for call in calls:
        with pytest.raises(InvalidInputError):
            call()
    assert list(documents.list()) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"put": [{"key": "a", "data": "é"}]},
        {"put": [{"key": "a", "data": "AA"}]},
        {"put": [{"key": "a", "data": ""}], "then": [{"key": "a", "data": ""}]},
        {"put": [{"key": "a", "data": "", "if_absent": True, "if_revision": "0"}]},
        {"put": [{"key": "b", "data": ""}, {"key": "a", "data": "", "more": 1}]},
        {"put": [{"key": str(at), "data": ""} for at in range(26)]},
        {"put": [{"key": "a", "data": ""}], "delete": [{"key": "a", "if_revision": "0"}]},
        {"put": [{"key": "a", "data": ""}], "delete": [{"key": "b", "if_absent": True}]},
    ],
)
def test_a_writing_that_is_not_whole_writes_nothing(session: Session, body: Any) -> None:
    with pytest.raises(InvalidInputError):
        session.backend.call("put_documents", path={"session_id": "s"}, body=body)
    assert list(session.documents.list()) == []


@pytest.mark.parametrize("body", [{"keys": ["a"], "prefix": ""}, {"keys": []}, {"keys": ["a"], "order": "desc"}])
def test_a_reading_is_of_keys_or_of_a_range(session: Session, body: Any) -> None:
    with pytest.raises(InvalidInputError):
        session.backend.call("get_documents", path={"session_id": "s"}, body=body)


def test_an_invented_reading_is_none_nor_is_that_of_another_session(harness: Harness, session: Session) -> None:
    other = harness.log().sessions.create("other")
    own, others = (
        session.backend.call("get_documents", path={"session_id": name}, body={"prefix": ""}).reading
        for name in ("s", "other")
    )
    session.erase()
    for reading in ("invented", "é", own[:-2] + "AA", others):
        with pytest.raises(NotFoundError):
            session.backend.call("get_documents", path={"session_id": "s"}, body={"prefix": "", "reading": reading})
    assert list(other.documents.list()) == []


def test_damage_is_told_by_its_item(harness: Harness, session: Session) -> None:
    session.documents.put("a", b"content")
    session.documents.put("b", b"content")
    items = harness.app.engine.items
    from turnlog.core.identity import Owner
    from turnlog.log.keys import SessionKeys

    keys = SessionKeys(Owner.of("acme", "ada"), "s")
    result = items.get_many([keys.document("a"), keys.document("b")])
    damaged = dict(result[keys.document("a")])
    items.put(damaged | {"b": bytes(damaged["b"])[:-1] + b"?"})  # type: ignore[arg-type]
    with pytest.raises(CorruptError, match="K#a"):
        session.documents.get("a")
    assert session.documents.get("b") is not None
    items.put(damaged | {"sk": "K#b"})
    with pytest.raises(CorruptError, match="K#b"):
        session.documents.get("b")
    items.write_many([damaged | {"v": 99}, result[keys.document("b")]])
    with pytest.raises(NewerSchemaError):
        list(session.documents.list())


def test_a_reading_asks_once_whether_the_session_is_there(moto: Harness) -> None:
    session = moto.log().sessions.create("s")
    with moto.meter.measure() as spent:
        session.documents.put("a", b"1", if_absent=True)
    assert dict(spent.requests) == {"Query": 1, "PutItem": 1} and spent.write_units == 1
    session.documents.put_many({f"b/{at:03}": NOISE[:500] for at in range(50)}, then={"c": b"2"})
    with moto.meter.measure() as spent:
        reading = session.documents.reading()
        assert len(list(reading.list("b/"))) == 50
        assert len(reading.get_many(["a", "c"])) == 2
        assert reading.get("a") is not None
    assert dict(spent.requests) == {"Query": 2, "BatchGetItem": 1, "GetItem": 1}


def test_in_process_bytes_stay_bytes_and_noise_is_not_deflated(
    harness: Harness, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise, deflate, deflated = random.Random(1).randbytes(1_000_000), zlib.compress, list[int]()

    def counted(data: bytes, level: int) -> bytes:
        deflated.append(len(data))
        return deflate(data, level)

    monkeypatch.setattr(document_models, "base64", None)
    monkeypatch.setattr("zlib.compress", counted)
    session.documents.put("noise", noise)
    session.documents.put_many({"text": b"text " * 200_000}, then={"end": noise})
    result = session.documents.get_many(["noise", "text", "end"])
    assert [item.data for item in result.values()] == [noise, b"text " * 200_000, noise]
    assert sum(deflated) < 1_100_000, "the text, and samples of the noise"


def test_documents_that_refer_to_no_others_may_be_written_last_alone(session: Session) -> None:
    session.documents.put_many({}, then={"end": b"x"})
    assert {item.key: item.data for item in session.documents.list("")} == {"end": b"x"}


@pytest.mark.parametrize("data", ["eA", "eA==\n", "e A==", "eA-_", "é"])
def test_only_plain_base64_is_data(data: str) -> None:
    assert document_models.NewDocument.model_validate({"key": "a", "data": "eA=="}).data == b"x"
    with pytest.raises(ValidationError, match="data is not base64"):
        document_models.NewDocument.model_validate({"key": "a", "data": data})


@pytest.mark.network
def test_over_http_it_is_the_same(served: Turnlog) -> None:
    session = served.sessions.create("s")
    made = session.documents.put("é/🙂", NOISE)
    session.documents.put_many({f"{at:03}": b"x" for at in range(30)}, then={"zz": b"end"})
    large = {f"large/{at}": (NOISE * 6)[:MAX_DOCUMENT_BYTES] for at in range(3)} | {"large/x": NOISE, "large/y": NOISE}
    session.documents.put_many(large, then={"zz": b"end"})
    assert {item.key: item.data for item in session.documents.list("large/")} == large
    assert {key: item.data for key, item in session.documents.get_many(large).items()} == large
    value = session.documents.get("é/🙂")
    assert value is not None and (value.data, value.revision) == (NOISE, made.revision)
    assert [item.key for item in session.documents.list(limit=3, order="desc")] == ["é/🙂", "zz", "large/y"]
    with pytest.raises(DocumentChangedError) as caught:
        session.documents.put("zz", b"", if_absent=True)
    assert caught.value.details["key"] == "zz"


def test_a_text_is_no_list_of_names(log: Turnlog) -> None:
    documents = log.sessions.create("s").documents
    documents.put_many({"a": b"1", "b": b"2", "ab": b"3"})
    for call in (documents.delete, documents.get_many):
        with pytest.raises(InvalidInputError, match="'ab' is one name; give the names in a list"):
            call("ab")
    assert [document.key for document in documents.list()] == ["a", "ab", "b"]
