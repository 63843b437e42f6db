"""Search over an owner's sessions: titles, summaries and messages; what is gone is not found, and no log is read whole for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.search_sessions import costs
from tests.log.everything import held
from tests.support.recalls import calls, result, user
from turnlog.client.finding import sessions_search_text
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.core.identity import Owner
from turnlog.engines import sqlite_tables
from turnlog.log.keys import SessionKeys
from turnlog.ports import Key
from turnlog.search import over_sessions as search_sessions
from turnlog.search import session_words
from turnlog.search.over_sessions import LOOKED_INTO
from turnlog.search.session_words import JOB_MS, Words, word_hash

QUICK = pytest.mark.parametrize("harness", ["sqlite", pytest.param("moto", marks=pytest.mark.full)], indirect=True)
"""The long form is on both engines."""
OWNER = Owner.of("acme", "ada")
TOPICS = ("boats", "parcels", "trains", "weather", "invoices", "photographs", "gardens")


def said(log: Turnlog, session_id: str, *texts: str, title: str | None = None, **settings: Any) -> Session:
    session = log.sessions.create(session_id, title=title, **settings)
    for text in texts:
        session.append(user(text), {"role": "assistant", "content": "I see."})
    return session


def found(log: Turnlog, q: str, **options: Any) -> list[tuple[str, str]]:
    return [(result.session_id, result.where) for result in log.search(q, **options).results]


def settled(harness: Any) -> None:
    """The five minutes of all sessions are over."""
    harness.clock.advance(6 * 60)


@pytest.fixture
def only_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are found by their words alone."""
    monkeypatch.setattr(search_sessions, "SCANNED", 0)


# ------------------------------------------------------------ what is found


def test_titles_summaries_and_messages_are_found_best_first(log: Turnlog) -> None:
    said(log, "s0", "Which colours were the painted boats?", "and the sails?", title="Harbour")
    long = said(log, "s1", *(f"tell me of trains, part {at} " + "and so on " * 30 for at in range(12)), title="Rails")
    long.compress(keep_loops=2)
    session = said(log, "s2", "hello", title="About a boat: painting it")
    session.append(calls("c", name="get_parcel", arguments='{"order": "A-17"}'), result("c", "a boat on its way"))
    answer = log.search("painted boat")
    assert [result.score for result in answer.results] == sorted(
        (result.score for result in answer.results), reverse=True
    )
    assert (answer.sessions, answer.unindexed, answer.is_complete) == (3, 0, True)
    assert len(sessions_search_text(answer).splitlines()) == len(answer.results)
    by_where = {(result.session_id, result.where): result for result in answer.results}
    title = by_where["s2", "title"]
    assert title.snippet == "About a ⟦boat⟧: ⟦painting⟧ it"
    assert (title.title, title.position, title.ref) == ("About a boat: painting it", None, None)
    message = next(result for result in answer.results if result.session_id == "s0")
    assert (message.position, message.loop, message.role, message.title) == (2, 1, "user", "Harbour")
    assert message.snippet == "Which colours were the ⟦painted⟧ ⟦boats⟧?"
    tool = next(result for result in log.search("boat", role="tool").results)
    assert (tool.session_id, tool.ref, log.sessions.of("s2").recall(tool.ref).content) == (
        "s2",
        "4.0",
        "a boat on its way",
    )
    summary = next(result for result in log.search("trains", limit=50).results if result.where == "summary")
    stored = long.summary()
    assert stored is not None and (summary.session_id, summary.position) == ("s1", stored.position)
    assert "⟦trains⟧" in summary.snippet


@QUICK
def test_filters_leave_messages_only(log: Turnlog) -> None:
    for at in range(3):
        session = said(log, f"s{at}", title="about boats")
        session.append(user("boats and more"), meta=[{"created_at": f"2024-0{at + 1}-01T00:00:00Z"}])
        session.append(calls("c", name="sail", arguments='{"to": "boats"}'), result("c", "done"))
    assert {where for _, where in found(log, "boats", limit=50)} == {"title", "message"}
    for options, sessions in (
        ({"role": "user"}, {"s0", "s1", "s2"}),
        ({"tool": "sail"}, {"s0", "s1", "s2"}),
        ({"after": "2024-01-15T00:00:00Z", "role": "user"}, {"s1", "s2"}),
        ({"before": "2024-01-15T00:00:00Z"}, {"s0"}),
        ({"tool": "none"}, set()),
    ):
        hits = found(log, "boats", limit=50, **options)  # type: ignore[arg-type]
        assert {where for _, where in hits} <= {"message"} and {item for item, _ in hits} == sessions, options
    assert len(found(log, "boats", limit=2)) == 2


@QUICK
def test_what_is_no_question_is_refused(log: Turnlog) -> None:
    for options in ({"q": ""}, {"q": "x" * 1_001}, {"q": "x", "limit": 51}, {"q": "x", "role": "bot"}):
        with pytest.raises(InvalidInputError):
            log.search(**options)  # type: ignore[arg-type]
    for query in ({"q": "x", "after": "12"}, {"q": "x", "before": "soon"}, {"q": "x", "loop": "1"}):
        with pytest.raises(InvalidInputError):
            log.backend.call("search_sessions", query=query)
    assert log.search("anything").results == []
    assert log.search("anything").is_complete


@QUICK
def test_t1_nobody_finds_another_s_sessions(harness: Any) -> None:
    said(harness.log(), "s", "the secret zebra", title="zebra")
    settled(harness)
    harness.log().run_jobs()
    for owner in (("acme", "bob"), ("other", "ada"), ("acme", "ada#S#s")):
        answer = harness.log(*owner).search("zebra")
        assert answer.results == [] and answer.sessions == 0
    assert set(found(harness.log(), "zebra")) == {("s", "message"), ("s", "title")}


# ------------------------------------------------------------ the same with and without what is known of words


def filled(harness: Any, count: int = 12) -> Turnlog:
    log = harness.log()
    for at in range(count):
        topic = TOPICS[at % len(TOPICS)]
        harness.clock.advance(1)
        said(log, f"s{at}", f"Tell me about {topic}, number {at}", f"And of the rare{at} ones?", title=f"Case {at}")
    return log


def test_an_older_session_is_found_once_the_job_was_there(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_sessions, "SCANNED", 3)
    monkeypatch.setattr(search_sessions, "LOOKED_INTO", 2)
    log = filled(harness)
    settled(harness)
    answer = log.search("rare0")
    assert (answer.results, answer.sessions, answer.unindexed, answer.is_complete) == ([], 12, 9, False)
    nothing, later = sessions_search_text(answer).splitlines()
    assert nothing and later == "(not all words are known yet of 9 of 12 sessions: ask again later)"
    assert found(log, "rare11") == [("s11", "message")] * 2, "the newest are looked into"
    assert ("s0", "title") in found(log, "case 0"), "titles are known of all"
    (job,) = [job for job in log.jobs() if job.kind == "index"]
    assert harness.log().run_jobs() >= 1
    assert log.job(job.job_id).result == {"sessions": 12}
    answer = log.search("rare0")
    assert [result.position for result in answer.results] == [4, 5] and answer.is_complete
    assert answer.results[0].session_id == "s0"
    assert len([job for job in log.jobs() if job.kind == "index"]) == 1, "nothing is asked for that is there"
    log.sessions.of("s0").append(user("something of a zebra"))
    assert found(log, "zebra")[0] == ("s0", "message"), "found before it is indexed"
    settled(harness)
    assert found(log, "zebra")[0] == ("s0", "message")


@QUICK
def test_the_same_is_found_by_words_as_by_looking_everywhere(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(harness)
    log.sessions.of("s3").append(
        calls("c", name="weigh", arguments='{"of": "北京火车票"}'), result("c", "火车票 is 12 kg")
    )
    settled(harness)
    questions = ("rare3", "rare7 ones", "火车票", "weigh", "case 4")
    expected = [found(log, q, limit=4) for q in questions]
    assert all(expected)
    monkeypatch.setattr(search_sessions, "SCANNED", 0)
    assert log.search("rare3").unindexed == 12
    assert log.run_jobs() >= 1
    for q, hits in zip(questions, expected, strict=True):
        assert found(log, q, limit=4)[0] == hits[0], q
    assert log.search("rare3").unindexed == 0


@QUICK
@pytest.mark.usefixtures("only_words")
def test_what_is_said_after_the_job_is_found_after_a_job_of_the_next_minute(harness: Any) -> None:
    """Also within the five minutes in which the list of sessions says nothing of it; none that is indexed counts as unindexed."""
    log = filled(harness, 6)
    assert log.search("zebra").unindexed == 6
    assert log.run_jobs() >= 1
    answer = log.search("zebra")
    assert (answer.unindexed, answer.is_complete) == (0, True), "the job is done: waiting was enough"
    log.sessions.of("s0").append(user("something of a zebra"))
    answer = log.search("zebra")
    assert (answer.results, answer.unindexed, answer.is_complete) == ([], 1, False)
    assert len([job for job in log.jobs() if job.kind == "index"]) == 1, "none that would find nothing due"
    harness.clock.advance(JOB_MS / 1000)
    log.search("zebra")
    assert log.run_jobs() >= 1
    answer = log.search("zebra")
    assert [result.session_id for result in answer.results] == ["s0"] and answer.is_complete


@pytest.mark.parametrize("harness", ["moto"], indirect=True)
def test_whether_words_are_complete_costs_one_request_for_all_sessions(harness: Any) -> None:
    log = filled(harness, 30)
    log.search("rare3")
    assert log.run_jobs() >= 1
    with harness.meter.measure() as spent:
        assert log.search("nothing of it").is_complete
    assert spent.requests["BatchGetItem"] == 2 and spent.read_units <= 2 * 30 / 2 + 2


@QUICK
@pytest.mark.usefixtures("only_words")
def test_a_job_goes_on_where_its_time_was_over(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_words, "MAX_MS", 0)
    log = filled(harness, 4)
    settled(harness)
    log.search("rare1")
    runs = 0
    while log.run_jobs():
        runs += 1
    assert runs >= 1
    (job,) = [job for job in log.jobs() if job.kind == "index"]
    assert (job.status, job.result) == ("done", {"sessions": 4})
    assert found(log, "rare1")[0] == ("s1", "message")


@QUICK
@pytest.mark.usefixtures("only_words")
def test_one_job_is_started_for_the_same_sessions(harness: Any) -> None:
    log = filled(harness, 3)
    settled(harness)
    for _ in range(3):
        log.search("boats")
    assert len([job for job in log.jobs() if job.kind == "index"]) == 1
    harness.clock.advance(JOB_MS / 1000)
    log.search("boats")
    assert len([job for job in log.jobs() if job.kind == "index"]) == 2


@QUICK
def test_the_oldest_of_very_many_are_left_out_and_it_is_said(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_words, "MAX_SESSIONS", 5)
    log = filled(harness, 8)
    answer = log.search("case")
    assert answer.sessions == 5 and not answer.is_complete
    assert {result.session_id for result in answer.results} == {f"s{at}" for at in range(3, 8)}


@QUICK
def test_words_that_another_engine_cut_or_that_are_damaged_are_as_if_they_were_not_there(harness: Any) -> None:
    log = filled(harness, 2)
    settled(harness)
    harness.app.index_sessions.run(OWNER, "", {})
    keys = [SessionKeys(OWNER, f"s{at}") for at in range(2)]
    items = harness.app.engine.items
    stored = items.get_many([key.words for key in keys])
    items.put({**stored[keys[0].words], "e": "another"})
    items.put({**stored[keys[1].words], "n": "damaged"})
    assert harness.app.session_words.read(keys) == {}
    assert found(log, "rare1")[0] == ("s1", "message")


def test_words_come_back_as_they_were(harness: Any) -> None:
    counts = {f"word{at}": 1 + at % 9 for at in range(400)}
    words = Words.from_counts(counts, position=7, read_ms=5)
    keys = SessionKeys(OWNER, "s")
    harness.app.session_words.write(keys, words)
    assert harness.app.session_words.read([keys]) == {"s": words}
    for word, count in counts.items():
        least = words.count(word_hash(word))
        assert 1 <= least <= count < 2 * least + (least == 8) * 100
    absent = sum(bool(words.count(word_hash(f"absent{at}"))) for at in range(400))
    assert absent <= 1, "three bytes of a hash"
    harness.app.session_words.write(keys, Words.from_counts({}, position=9, read_ms=4))
    assert harness.app.session_words.read([keys]) == {"s": words}, "an older one does not replace it"


@pytest.mark.parametrize(("occurrences", "least"), [(1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (9, 8), (999, 8)])
def test_a_word_is_counted_by_its_class(occurrences: int, least: int) -> None:
    words = Words.from_counts({"boat": occurrences, "other": 1}, position=1, read_ms=1)
    assert words.count(word_hash("boat")) == least
    assert words.length == occurrences + 1


def test_a_hash_is_found_where_a_hash_begins_and_nowhere_between() -> None:
    words = Words(1, 1, 4, (b"", b"", b"", b"abcbcdbcabca"))
    counts = {hashed: words.count(hashed) for hashed in (b"abc", b"bcd", b"bca", b"cbc", b"cdb", b"dbc", b"zzz")}
    assert counts == {b"abc": 1, b"bcd": 1, b"bca": 1, b"cbc": 0, b"cdb": 0, b"dbc": 0, b"zzz": 0}


def test_the_most_frequent_words_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_words, "MAX_WORDS", 2)
    words = Words.from_counts({"a": 1, "b": 3, "c": 1, "d": 2}, position=1, read_ms=1)
    assert [words.count(word_hash(word)) for word in "abcd"] == [0, 2, 0, 2]
    assert words.length == 7, "of all"


@QUICK
@pytest.mark.parametrize("page_bytes", [600, 10**6])
def test_the_list_is_read_page_by_page(harness: Any, monkeypatch: pytest.MonkeyPatch, page_bytes: int) -> None:
    log = filled(harness, 7)
    monkeypatch.setattr(sqlite_tables, "MAX_PAGE_BYTES", page_bytes)
    for most, is_more in ((7, False), (6, True), (8, False), (1, True)):
        monkeypatch.setattr(session_words, "MAX_SESSIONS", most)
        sessions, more = harness.app.owner_sessions.newest(OWNER)
        assert [session.session_id for session in sessions] == [f"s{at}" for at in range(6, -1, -1)][:most]
        assert more is is_more
    assert log.search("case").sessions == 1


# ------------------------------------------------------------ what is gone is not found


def indexed(harness: Any) -> None:
    settled(harness)
    harness.app.index_sessions.run(OWNER, "", {})


@pytest.mark.parametrize("by_words", [False, True])
def test_what_is_rewound_redacted_or_erased_is_not_found(
    harness: Any, monkeypatch: pytest.MonkeyPatch, by_words: bool
) -> None:
    if by_words:
        monkeypatch.setattr(search_sessions, "SCANNED", 0)
    log = harness.log()
    rewound, redacted = said(log, "rewound", "keep"), said(log, "redacted", "the zebrafish")
    head = rewound.info().head
    rewound.append(user("a zebrafish too"))
    erased = said(log, "erased", "zebrafish again", title="zebrafish")
    indexed(harness)
    assert {item for item, _ in found(log, "zebrafish")} == {"rewound", "redacted", "erased"}
    rewound.rewind(head)
    redacted.redact(2)
    erased.erase()
    assert found(log, "zebrafish") == []
    while log.run_jobs():
        pass
    harness.clock.advance(16 * 60)
    while log.run_jobs():
        pass
    indexed(harness)
    assert found(log, "zebrafish") == []
    assert found(log, "keep") == [("rewound", "message")] * 2
    for session_id in ("redacted", "erased"):
        words = harness.app.session_words.read([SessionKeys(OWNER, session_id)])
        assert not words or not words[session_id].count(word_hash("zebrafish"))
    assert held("zebrafish", harness) == [key for key in held("zebrafish", harness) if key.startswith("C#")]


@QUICK
def test_a_session_that_is_gone_and_still_listed_is_not_counted(harness: Any) -> None:
    log, keys = harness.log(), SessionKeys(OWNER, "gone")
    gone, _ = said(log, "gone", "a zebrafish"), said(log, "there", "a zebrafish")
    entry = harness.app.items.get_many([keys.directory])[keys.directory]
    gone.erase()
    harness.app.items.put(entry)
    answer = log.search("zebrafish")
    assert ({result.session_id for result in answer.results}, answer.sessions) == ({"there"}, 1)


@QUICK
def test_words_go_with_their_session_and_with_their_person(harness: Any) -> None:
    log = harness.log()
    for at in range(2):
        said(log, f"s{at}", "zebra")
    indexed(harness)
    items = harness.app.engine.items
    keys = [SessionKeys(OWNER, f"s{at}").words for at in range(2)]
    assert len(items.get_many(keys)) == 2
    log.sessions.of("s0").erase()
    while log.run_jobs():
        pass
    assert Key(keys[0].pk, keys[0].sk) not in items.get_many(keys)
    log.erase_me()
    while log.run_jobs():
        pass
    assert items.get_many(keys) == {}


@QUICK
def test_what_has_expired_is_not_found(harness: Any) -> None:
    log = harness.log()
    said(log, "gone", "zebra", title="zebra", ttl_days=1)
    said(log, "here", "zebra", title="zebra")
    indexed(harness)
    assert {item for item, _ in found(log, "zebra")} == {"gone", "here"}
    harness.clock.advance(25 * 3600)
    assert {item for item, _ in found(log, "zebra")} == {"here"}


@QUICK
def test_a_fork_is_a_session_of_its_own(harness: Any) -> None:
    log = harness.log()
    session = said(log, "s", "shared zebra")
    session.fork("f")
    session.append(user("parent's walrus"))
    indexed(harness)
    assert {item for item, _ in found(log, "zebra")} == {"s", "f"}
    assert {item for item, _ in found(log, "walrus")} == {"s"}


# ------------------------------------------------------------ what it costs


@pytest.mark.parametrize("harness", ["moto"], indirect=True)
def test_requests_are_the_list_the_words_and_the_few_that_are_looked_into(harness: Any) -> None:
    log = filled(harness, 30)
    indexed(harness)
    with harness.meter.measure() as spent:
        answer = log.search("rare3")
    assert answer.results[0].session_id == "s3" and answer.is_complete
    looked_into = len({result.session_id for result in answer.results})
    assert spent.requests["BatchGetItem"] == 1 and spent.write_units == 0
    assert spent.read_units <= 30 / 2 + 2, "half a unit for the words of a session"
    assert looked_into == 1 and spent.requests["Query"] == 1 + looked_into, "the job has read it in this process"
    other = harness.other_process().log()
    with harness.meter.measure() as spent:
        assert other.search("rare3") == answer
    assert spent.requests["Query"] == 1 + 2 * looked_into, "its segments and its log"


@QUICK
def test_every_answer_is_json(log: Turnlog) -> None:
    said(log, "s", "a \ud800 boat", title="a boat")
    for item in log.search("boat").results:
        assert json.dumps(item.model_dump())


@pytest.mark.full
def test_the_benchmark_counts_what_a_search_over_sessions_takes() -> None:
    (row,) = costs([20])
    assert row.unindexed == 4 and row.first["BatchGetItem"] == 1
    assert row.then["Query"] == 1 + LOOKED_INTO and row.then_units < row.first_units
