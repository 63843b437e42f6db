"""A client from open to close, in threads and in forked processes: the same over each engine."""

from __future__ import annotations

import asyncio
import enum
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.client.service import Gate, gated, status
from tests.conftest import ROOT
from tests.effort import is_full
from turnlog import AsyncTurnlog, Turnlog, correlated
from turnlog.client.over_http import HttpBackend
from turnlog.core.errors import InvalidInputError, NotFoundError, SessionExistsError, UnavailableError
from turnlog.testing.fixed import FixedClock

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "find"}}


@pytest.fixture
def gate() -> Iterator[Gate]:
    with gated() as (_, made):
        yield made


@pytest.fixture(params=["memory", "sqlite", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param != "http":
        yield "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'agent.db'}"
        return
    with gated() as (_, made):
        yield made.url


CALLS: dict[str, Callable[[Turnlog], object]] = {
    "health": lambda log: log.health(),
    "lint": lambda log: log.lint([USER]),
    "window of a list": lambda log: log.build_window([USER]),
    "create": lambda log: log.sessions.create("b"),
    "exists": lambda log: log.sessions.exists("a"),
    "list": lambda log: list(log.sessions.list()),
    "append": lambda log: log.sessions.of("a").append(USER),
    "messages": lambda log: list(log.sessions.of("a").messages()),
    "export": lambda log: log.sessions.of("a").export(os.devnull),
}


@pytest.mark.network
def test_an_answer_that_is_a_list_is_iterated_and_counted_as_one(url: str) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("a")
        session.append({"role": "user", "content": "green tea"}, {"role": "assistant", "content": "Tea it is."})
        hits, page, memories = session.search("tea"), session.page(), log.memory_page()
        assert [hit.position for hit in hits] == [3, 2] and len(hits) == 2
        assert [message.position for message in page] == [2, 3] and len(page) == 2 and page["next"] is None
        assert list(log.search("tea")) == log.search("tea").results and list(memories) == []


def test_sessions_snapshots_and_jobs_are_listed_beyond_the_first_page() -> None:
    with Turnlog.open("memory://", worker=False) as log:
        sessions = [log.sessions.create(f"{number:03}") for number in range(101)]
        snapshots = [sessions[0].create_snapshot().snapshot_id for _ in range(101)]
        assert {info.session_id for info in log.sessions.list()} == {session.id for session in sessions}
        assert {snapshot.snapshot_id for snapshot in sessions[0].snapshots()} == set(snapshots)
        jobs = {session.erase().job_id for session in sessions}
        assert {job.job_id for job in log.jobs()} == jobs


@pytest.mark.network
@pytest.mark.parametrize("question", [[], ["tea"], {"q": "tea"}, b"tea"])
def test_a_question_that_is_no_text_is_refused(url: str, question: Any) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("a")
        for search in (session.search, log.search):
            with pytest.raises(InvalidInputError, match="q must be a text or a number, not "):
                search(question)


@pytest.mark.network
@pytest.mark.parametrize("value", [None, 5])
def test_an_id_that_is_no_text_is_refused(url: str, value: Any) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("a")
        for call in (log.job, log.forget, session.delete_snapshot):
            with pytest.raises(InvalidInputError, match=f"must be a text, not {value}"):
                call(value)


def test_a_file_that_cannot_be_used_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("no database, " * 20)
    with pytest.raises(UnavailableError, match="is not a SQLite database"):
        Turnlog.open(tmp_path / "notes.db")


@pytest.mark.parametrize("options", [{"tenant": ""}, {"user": ""}, {"summariser": "gpt"}])
def test_options_that_are_refused_create_no_file(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Turnlog.open(tmp_path / "new" / "agent.db", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.network
@pytest.mark.parametrize("name", CALLS)
def test_after_close_every_call_is_unavailable(url: str, name: str) -> None:
    with Turnlog.open(url) as log:
        log.sessions.create("a").append(USER)
    for _ in range(2):
        with pytest.raises(UnavailableError) as caught:
            CALLS[name](log)
        assert caught.value.error_code == "closed"
        log.close()


@pytest.mark.network
def test_an_error_inside_with_closes_and_goes_on(url: str) -> None:
    with pytest.raises(ZeroDivisionError), Turnlog.open(url) as log:
        raise ZeroDivisionError
    with pytest.raises(UnavailableError, match="closed"):
        log.health()


@pytest.mark.network
def test_get_or_create_gives_one_session_to_all_who_ask_at_once(url: str) -> None:
    made: list[int] = []
    with Turnlog.open(url) as log:

        def ask(number: int) -> None:
            session = log.sessions.get_or_create("a", title=f"of {number}")
            made.append(session.append({"role": "user", "content": str(number)}).first)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session = log.sessions.get("a")
        title = session.info().title
        assert sorted(made) == list(range(2, 10)) and session.info().messages == 8
        assert log.sessions.get_or_create("a", title="another").info().title == title, (
            "the settings are the first one's"
        )
        with pytest.raises(SessionExistsError):
            log.sessions.create("a")


def test_an_engine_whose_extra_is_missing_says_what_to_install() -> None:
    """In a process of its own, which has not imported the engine yet."""
    program = (
        "import sys; sys.modules['botocore'] = None; from turnlog import Turnlog; Turnlog.open('dynamodb://t?bucket=b')"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert "InvalidInputError: dynamodb:// needs boto3: pip install 'turnlog[aws]'" in result.stderr


@pytest.mark.network
def test_objects_of_one_session_are_equal_within_a_log(url: str) -> None:
    with Turnlog.open(url) as log, Turnlog.open(url) as other:
        session = log.sessions.create("a")
        same, further, elsewhere = (*map(log.sessions.of, "ab"), other.sessions.of("a"))
        assert (session == same, session == further, session == elsewhere, session == "a") == (
            True,
            False,
            False,
            False,
        )
        assert {session: 1}[same] == 1

    async def main() -> None:
        async with AsyncTurnlog.open(url) as log:
            session = log.sessions.of("a")
            assert session == log.sessions.of("a") != log.sessions.of("b")
            assert hash(session) == hash(log.sessions.of("a"))

    asyncio.run(main())


@pytest.mark.network
def test_exists_says_no_of_what_is_not_there_and_of_nothing_else(url: str) -> None:
    with Turnlog.open(url) as log:
        assert not log.sessions.exists("a")
        session = log.sessions.create("a")
        assert log.sessions.exists("a")
        session.end()
        assert log.sessions.exists("a"), "an ended one can be read"
        session.erase()
        assert not log.sessions.exists("a")
        with pytest.raises(NotFoundError):
            log.sessions.get("a")
        with pytest.raises(InvalidInputError):
            log.sessions.exists("no id")


@pytest.mark.network
@pytest.mark.parametrize("value", [None, "", 5, ".."])
def test_what_is_no_id_makes_and_reads_no_session(url: str, value: Any) -> None:
    with Turnlog.open(url) as log:
        for call in (log.sessions.get_or_create, log.sessions.get, log.sessions.of, log.sessions.exists):
            with pytest.raises(InvalidInputError, match="session id"):
                call(value)
        assert list(log.sessions.list()) == []


@pytest.mark.parametrize("owner", [{"user": 5}, {"tenant": 5}])
def test_an_owner_whose_name_is_no_text_is_refused(owner: Any) -> None:
    with pytest.raises(InvalidInputError, match="must be text, not int"):
        Turnlog.open("memory://", **owner)


@pytest.mark.network
def test_a_service_that_does_not_answer_is_no_session_that_is_not_there(gate: Gate) -> None:
    with Turnlog(HttpBackend(gate.url, clock=FixedClock())) as log:
        gate.plan = [status(503)] * 5
        with pytest.raises(UnavailableError):
            log.sessions.exists("a")


@pytest.mark.network
def test_a_call_under_way_has_its_answer_though_the_client_is_closed(gate: Gate) -> None:
    arrived, go, result = threading.Event(), threading.Event(), list[Any]()

    def held(handler: Any) -> bool:
        arrived.set()
        return go.wait(10)

    log = Turnlog.open(gate.url)
    session = log.sessions.create("a")
    gate.plan = [held]
    thread = threading.Thread(target=lambda: result.append(session.append(USER)))
    thread.start()
    assert arrived.wait(10)
    log.close()
    go.set()
    thread.join()
    assert result[0].first == 2


FORKED = """
import asyncio, os, sys, threading
from turnlog import AsyncTurnlog, Turnlog

log = Turnlog.open(sys.argv[1])
session = log.sessions.get_or_create("a")
session.append({"role": "user", "content": "before"})
twin = AsyncTurnlog(log, max_calls=2)
asyncio.run(twin.sessions.of("a").info())      # its threads are the parent's
held, go = threading.Event(), threading.Event()

def hold():
    connections = getattr(log.backend, "_connections", None)
    if connections is None:
        return held.set()
    with connections._lock:                    # at the very moment of the fork
        held.set()
        go.wait(10)

thread = threading.Thread(target=hold)
thread.start()
held.wait(10)
child = os.fork()
if not child:
    for number in range(20):
        session.append({"role": "user", "content": f"child {number}"})
    assert asyncio.run(twin.sessions.of("a").info()).messages >= 21
    os._exit(0)
go.set()
thread.join()
for number in range(20):
    session.append({"role": "user", "content": f"parent {number}"})
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
found = [one.body["content"] for one in session.messages()]
assert len(found) == 41 and [one for one in found if one[0] == "c"] == [f"child {n}" for n in range(20)], found
assert [one for one in found if one[0] == "p"] == [f"parent {n}" for n in range(20)], found
log.close()
"""


@pytest.mark.network
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("engine", ["sqlite", "http"])
def test_a_forked_child_has_connections_and_threads_of_its_own(engine: str, tmp_path: Path, gate: Gate) -> None:
    where = gate.url if engine == "http" else f"sqlite:///{tmp_path / 'agent.db'}"
    command = [sys.executable, "-W", "ignore", "-c", FORKED, where]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr


USED_AND_CLOSED = """
import sys, threading
from turnlog import Turnlog
from turnlog.core.errors import UnavailableError

for number in range(int(sys.argv[2])):
    log = Turnlog.open(sys.argv[1])
    session = log.sessions.get_or_create(f"s{number}")
    acknowledged, warm, told = list(), threading.Barrier(7), list()

    def use(of):
        ready = False
        try:
            while True:
                if of % 2:
                    acknowledged.append(session.append({"role": "user", "content": "x" * 300}).first)
                else:
                    session.context(budget=10_000)
                if not ready:
                    ready = True
                    warm.wait(30)
        except UnavailableError as error:
            told.append(error.error_code)

    threads = [threading.Thread(target=use, args=(of,)) for of in range(6)]
    for thread in threads:
        thread.start()
    warm.wait(30)
    log.close()
    for thread in threads:
        thread.join()
    assert told == ["closed"] * 6, told
    if "sqlite" in sys.argv[1]:
        with Turnlog.open(sys.argv[1]) as again:
            stored = [one.position for one in again.sessions.get(f"s{number}").messages()]
        assert set(acknowledged) <= set(stored), (acknowledged, stored)
"""


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("memory", marks=pytest.mark.full)])
def test_close_while_other_threads_use_it_tells_them_so(engine: str, tmp_path: Path) -> None:
    """In a process of its own: to close a connection of SQLite under a thread that uses it would end the process."""
    url = f"sqlite:///{tmp_path / 'agent.db'}" if engine == "sqlite" else "memory://"
    command = [sys.executable, "-c", USED_AND_CLOSED, url, "100" if is_full() else "12"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_package_of_the_wheel_is_typed() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] and all((ROOT / package / "py.typed").is_file() for package in wheel["packages"])
    assert "exclude" not in wheel and "only-include" not in wheel


@pytest.mark.network
def test_calls_and_their_jobs_have_the_correlation_id_of_the_block(url: str) -> None:
    with Turnlog.open(url) as log:
        for number, correlation in enumerate(("order-17", "order-18")):
            session = log.sessions.create(f"s{number}")
            session.append(USER)
            with correlated(correlation):
                job = session.erase()
            assert job.correlation_id == log.job(job.job_id).correlation_id == correlation


@pytest.mark.network
@pytest.mark.parametrize("tools", [{}, {"find": TOOL}, "find", b"", 5, True])
def test_tools_that_are_no_list_are_refused_in_words(url: str, tools: Any) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("s", tools=(TOOL,))
        session.append(USER)
        assert session.context().tools == session.context(tools=(TOOL,)).tools == [TOOL]
        calls = (log.sessions.create, session.update, session.context, partial(log.build_window, [USER]))
        for call in calls:
            with pytest.raises(InvalidInputError, match="tools"):
                call(tools=tools)


@pytest.mark.network
def test_an_answer_is_a_copy_that_a_program_may_change(url: str) -> None:
    settings: dict[str, Any] = {
        "metadata": {"plan": "free"},
        "policy": {"steps": [{"step": "turns", "n": 3}]},
        "snapshots": {"every_loops": 5, "keep": 3, "keep_named": 2, "named_days": 1},
    }
    with Turnlog.open(url) as log, Turnlog.open(url, user="bob") as bobs:
        session, other = log.sessions.create("a", **settings), bobs.sessions.create("b", **settings)
        for answer in (session.info(), *log.sessions.page().sessions):
            answer.metadata["plan"], answer.policy["steps"], answer.snapshots["every_loops"] = "pro", [], 1
        for reread in (session.info(), other.info(), *log.sessions.page().sessions):
            assert {name: getattr(reread, name) for name in settings} == settings
        text = {"role": "user", "content": "x " * 4_000}
        session.append(text)
        for _ in range(2):
            (form, *_) = [place.form for place in session.context(format="anthropic").manifest.breakpoints]
            assert form == {"cache_control": {"type": "ephemeral"}}
            form["cache_control"]["ttl"] = "1h"


@pytest.mark.network
def test_a_role_may_be_an_enum_and_is_stored_as_its_text(url: str) -> None:
    class Role(enum.StrEnum):
        USER = "user"

    with Turnlog.open(url) as log:
        session = log.sessions.create("s", state={"role": Role.USER})
        session.append({"role": Role.USER, "content": "hi", "metadata": {Role.USER: Role.USER}})
        assert type(next(iter(session.messages())).body["role"]) is str
        assert type(session.state().state["role"]) is str
        with pytest.raises(InvalidInputError, match="a message needs a role"):
            session.append({"role": "\ud800", "content": "x"}, lenient=True)


@pytest.mark.network
@pytest.mark.parametrize("value", [5, "x", [1]])
def test_what_is_no_object_or_list_is_refused_in_words(url: str, value: Any) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("s")
        calls: list[Callable[[], object]] = [
            lambda: session.put_state(value),
            lambda: session.patch_state(value),
            lambda: session.patch_agent(value),
            lambda: session.append(USER, meta=value),
            lambda: session.append(USER, lease=value),
            lambda: session.context(parent=value),
        ]
        for call in calls:
            with pytest.raises(InvalidInputError):
                call()
        assert session.info().head == 1


@pytest.mark.network
def test_objects_say_in_a_line_what_they_are_and_in_a_notebook_with_a_picture(url: str) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("s", title="<script>", system="x")
        assert "no" in session._repr_html_() or "0 messages" in session._repr_html_()
        for number in range(12):
            question = {"role": "user", "content": f"q{number} " + "word " * 100}
            session.append(question, {"role": "assistant", "content": "a " * 100})
        window = session.context(budget=1_500, policy="run_loops")
        assert repr(session) == "Session('s')"
        assert repr(session.messages()) == "<Paged: iterate over it once, or take list() of it>"
        messages = AsyncTurnlog(log).sessions.of("s").messages()
        assert repr(messages) == "<AsyncPaged: iterate over it once, with async for>"
        assert repr(window) == str(window)
        assert repr(window).startswith(f"<Window: {len(window.messages)} messages, ")
        for text in (repr(window), repr(window.manifest)):
            assert "\n" not in text and len(text) < 120 and f"{window.tokens:,} of 1,500 tokens" in text
        for picture in (window._repr_html_(), window.manifest._repr_html_(), session._repr_html_()):
            assert "<table>" in picture and "background:#" in picture and "loop 12" in picture
            assert "<script>" not in picture
        assert window.model_validate_json(window.model_dump_json()) == window


def test_a_client_is_shown_as_its_place_and_its_owner(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/agent.db"
    with Turnlog.open(tmp_path / "agent.db") as log:
        assert repr(log) == f"Turnlog({place}, tenant='local', user='me')"
        assert repr(AsyncTurnlog(log)) == f"AsyncTurnlog({place}, tenant='local', user='me')"
        assert repr(log.sessions) == f"Sessions({place}, tenant='local', user='me')"
        session, twin = log.sessions.create("s"), AsyncTurnlog(log).sessions.of("s")
        assert [repr(session.documents), repr(twin.documents)] == ["Documents('s')", "AsyncDocuments('s')"]
        assert repr(session.info()).startswith("SessionInfo(session_id='s', ")
    assert (
        repr(Turnlog.open("http://127.0.0.1:1", user="ada", token="secret"))
        == "Turnlog(http://127.0.0.1:1, user='ada')"
    )
    assert repr(Turnlog.open("http://127.0.0.1:1")) == "Turnlog(http://127.0.0.1:1)"


@pytest.mark.parametrize("location", ["A" * 10_000, "sqlite:////tmp/" + "A" * 10_000])
def test_a_path_that_is_too_long_is_refused_in_short(location: str) -> None:
    with pytest.raises((InvalidInputError, UnavailableError)) as refused:
        Turnlog.open(location)
    assert len(str(refused.value)) < 400
