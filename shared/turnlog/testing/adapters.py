"""The contract of adapters for agent frameworks: twelve programs that each of them runs with a real agent and a scripted model.

Subclass `AdapterContract` in a test file and give it the fixtures ``desk``, a `Desk` over an engine, and ``killed``, which runs
`run_killed` in a process, `run_continued` in the next one, and returns what the latter does:

    class TestMyAdapter(AdapterContract):
        @pytest.fixture
        def desk(self, log: Turnlog) -> Desk:
            return Desk(log, MyAgent)

An agent sells articles: it has the one tool `Shop.price`, and its model is `ScriptedModel`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar, Protocol

from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import NotFoundError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.engines.token_counters import TiktokenCounter
from turnlog.sessions.message_models import StoredMessage

BUDGET = 4_000
LARGE_CHARS = 1_200_000
_OVERHEAD = 12
"""Tokens that a message may cost beside its text."""
QUESTION = "What is the price of SKU-stop?"


@lazy_dataclass(frozen=True, slots=True)
class Call:
    """A call of the tool in a reply of the model, or in a request."""

    id: str
    sku: str


@lazy_dataclass(frozen=True, slots=True)
class Said:
    """A message of a model request as every framework has it: a text, calls, and results by call id."""

    role: str
    text: str = ""
    calls: Sequence[Call] = ()
    results: Sequence[tuple[str, str]] = ()


class ScriptedModel:
    """Calls the tool for each article that a question names, then says what the results are; echoes other questions.

    ``requests`` are what the model was sent.
    """

    def __init__(self) -> None:
        self.requests = list[list[Said]]()

    def reply(self, request: Sequence[Said]) -> Said:
        """Return the reply to a request."""
        self.requests.append(list(request))
        last = request[-1]
        if last.results or last.role == "tool":
            answers = list[str]()
            for said in reversed(request):
                if not said.results:
                    break
                answers[:0] = [text for _, text in said.results]
            return Said(
                "assistant", "; ".join(text if len(text) < 1_000 else f"{len(text)} characters" for text in answers)
            )
        articles = [word for word in last.text.rstrip("?").split() if word.startswith("SKU-")]
        number = sum(len(said.calls) for said in request)
        calls = tuple(Call(f"call-{len(request)}-{number + index}", sku) for index, sku in enumerate(articles))
        return Said("assistant", "" if calls else f"You said: {last.text}", calls)


class Shop:
    """The tool of the agents. ``stop`` is called for the article ``SKU-stop``."""

    def __init__(self, stop: Callable[[], None] = lambda: None) -> None:
        self.stop = stop
        self.asked = list[str]()

    def price(self, sku: str) -> str:
        """Return the price of an article."""
        self.asked.append(sku)
        if sku == "SKU-stop":
            self.stop()
        if sku == "SKU-none":
            raise ValueError("there is no such article")
        return "x" * LARGE_CHARS if sku == "SKU-large" else f"{sku} costs 12.50"


class Agent(Protocol):
    """An agent of a framework on one session.

    ``can_continue``: without a question it goes on with what a process that ended has left; otherwise it is asked again.
    ``has_windows``: the model is sent the session's window. ``conflicts`` are errors by which the framework asks to try again.
    """

    can_continue: ClassVar[bool]
    has_windows: ClassVar[bool]
    conflicts: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, log: Turnlog, session_id: str, model: ScriptedModel, shop: Shop) -> None: ...

    def ask(self, question: str | None) -> str:
        """Run a turn in the framework, and return the answer."""

    def session(self) -> Session:
        """Return the session of the log."""

    def texts(self) -> list[str]:
        """Return the texts of users and assistants as the framework reads them back."""

    def delete(self) -> None:
        """Delete the conversation by the framework's own call."""

    def forked(self, session_id: str) -> Agent:
        """Return the agent of a new session that begins as this one is: by the framework's own call, or by Turnlog's."""


@lazy_dataclass(frozen=True, slots=True)
class KilledRun:
    """A question whose process was killed: the log's texts after it, the answer and texts of the next process."""

    question: str
    texts_after_kill: Sequence[str]
    answer: str
    texts: Sequence[str]


class Stopped(BaseException):
    """Ends a run from within its tool."""


@lazy_dataclass(frozen=True, slots=True)
class Desk:
    """Makes agents of one framework over one engine."""

    log: Turnlog
    kind: type[Agent]

    def agent(
        self, session_id: str = "desk", *, stop: Callable[[], None] = lambda: None
    ) -> tuple[Agent, ScriptedModel]:
        """Return an agent and its model, as a new process makes them."""
        model = ScriptedModel()
        return self.kind(self.log, session_id, model, Shop(stop)), model


def said_in(session: Session) -> list[StoredMessage]:
    """Return the messages in view that say something."""
    messages, names = session.messages(in_view=True, format="openai_chat"), ("content", "tool_calls", "tool_call_id")
    return [message for message in messages if any(map(message.body.get, names))]


def text_of(message: StoredMessage) -> str:
    """Return the text of a message."""
    content = message.body.get("content") or ""
    return content if isinstance(content, str) else "".join(str(block.get("text", "")) for block in content)


def check_pairs(request: Sequence[Said]) -> None:
    """Check that each result follows its call, once, and that no call before the end is without one."""
    open_calls = set[str]()
    for said in request:
        assert not (said.calls and open_calls), f"calls {open_calls} have no result"
        open_calls |= {call.id for call in said.calls}
        for call_id, _ in said.results:
            assert call_id in open_calls, f"result {call_id} is without its call, or comes twice"
            open_calls.discard(call_id)
    assert not open_calls, f"calls {open_calls} have no result"


def check_log(log: Turnlog, session: Session) -> None:
    """Check that the session's window is what providers take."""
    window = session.context(format="openai_chat", budget=8_000)
    assert log.lint(window.messages, format="openai_chat").problems == []


class AdapterContract:
    """The twelve programs. ``turns`` is the number of turns of the last one."""

    turns: ClassVar[int] = 200

    def test_01_a_turn_with_a_tool_is_in_the_log(self, desk: Desk) -> None:
        agent, model = desk.agent()
        assert "SKU-1 costs 12.50" in agent.ask("What is the price of SKU-1?")
        said = said_in(agent.session())
        assert [message.body["role"] for message in said] == ["user", "assistant", "tool", "assistant"]
        assert said[1].body["tool_calls"][0]["id"] == said[2].body["tool_call_id"]
        assert text_of(said[0]) == "What is the price of SKU-1?" and "SKU-1 costs 12.50" in text_of(said[3])
        assert len(model.requests) == 2
        check_log(desk.log, agent.session())

    def test_02_parallel_calls_have_their_results(self, desk: Desk) -> None:
        agent, model = desk.agent()
        answer = agent.ask("What are the prices of SKU-1 SKU-2 SKU-3?")
        assert all(f"SKU-{number} costs 12.50" in answer for number in (1, 2, 3))
        check_pairs(model.requests[-1])
        said = said_in(agent.session())
        calls = [call["id"] for message in said for call in message.body.get("tool_calls") or ()]
        assert len(calls) == 3 and sorted(calls) == sorted(
            message.body["tool_call_id"] for message in said if message.body["role"] == "tool"
        )

    def test_03_a_tool_that_fails_is_answered(self, desk: Desk) -> None:
        agent, model = desk.agent()
        agent.ask("What is the price of SKU-none?")
        results = [text for said in model.requests[-1] for _, text in said.results]
        assert results, "the model is told of the failure"
        assert any(message.body["role"] == "tool" for message in said_in(agent.session()))
        assert "SKU-1 costs 12.50" in agent.ask("What is the price of SKU-1?")
        check_pairs(model.requests[-1])

    def test_04_a_run_that_was_interrupted_goes_on(self, desk: Desk) -> None:
        def stop() -> None:
            raise Stopped

        stopped, _ = desk.agent(stop=stop)
        stopped.ask("Hello")
        if not _fails(lambda: stopped.ask(QUESTION)):
            return  # the framework tells the model of everything that a tool raises
        assert QUESTION in [text_of(message) for message in said_in(stopped.session())], "the question is in the log"
        agent, model = desk.agent()
        answer = agent.ask(None if agent.can_continue else QUESTION)
        assert "SKU-stop costs 12.50" in answer
        check_pairs(model.requests[-1])
        check_log(desk.log, agent.session())

    def test_05_a_process_that_is_killed_is_continued_by_another(
        self, desk: Desk, killed: Callable[[], KilledRun]
    ) -> None:
        run = killed()
        assert run.question in run.texts_after_kill, "what was said before the kill is in the log"
        assert "SKU-stop costs 12.50" in run.answer and "Hello" in run.texts

    def test_06_two_writers_lose_nothing(self, desk: Desk) -> None:
        desk.agent()[0].ask("Hello")
        failures = list[BaseException]()

        def write(name: str) -> None:
            try:
                for number in range(3):
                    self._ask(desk, f"{name} says {number}")
            except BaseException as error:  # noqa: BLE001 - told in the test's thread
                failures.append(error)

        writers = [threading.Thread(target=write, args=(name,)) for name in ("Ada", "Bob")]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(120)
        assert not failures, failures
        agent, _ = desk.agent()
        log = [text_of(message) for message in agent.session().messages(format="openai_chat")]
        assert all(f"{name} says {number}" in log for name in ("Ada", "Bob") for number in range(3))
        check_log(desk.log, agent.session())

    def _ask(self, desk: Desk, question: str) -> None:
        for _ in range(50):
            agent, _ = desk.agent()
            try:
                agent.ask(question)
            except desk.kind.conflicts:
                continue
            return
        raise AssertionError(f"{question!r} was refused 50 times")

    def test_07_a_result_of_more_than_a_megabyte_is_kept(self, desk: Desk) -> None:
        agent, _ = desk.agent()
        assert f"{LARGE_CHARS} characters" in agent.ask("What is the price of SKU-large?") or agent.has_windows
        results = [text_of(message) for message in said_in(agent.session()) if message.body["role"] == "tool"]
        assert any("x" * LARGE_CHARS in result for result in results), "whole, also within JSON of the framework"
        assert "SKU-1 costs" in desk.agent()[0].ask("What is the price of SKU-1?")

    def test_08_chinese_comes_back_equal(self, desk: Desk) -> None:
        question = "你好，我的订单在哪里？😀 \u2028 𠮷"
        desk.agent()[0].ask(question)
        assert desk.agent()[0].texts() == [question, f"You said: {question}"]

    def test_09_a_fork_goes_its_own_way(self, desk: Desk) -> None:
        agent, _ = desk.agent()
        agent.ask("What is the price of SKU-1?")
        before = agent.texts()
        fork = agent.forked("desk-fork")
        fork.ask("What is the price of SKU-2?")
        agent.ask("Goodbye")
        assert fork.texts()[: len(before)] == before
        assert "Goodbye" in agent.texts() and "Goodbye" not in fork.texts()
        assert not any("SKU-2" in text for text in agent.texts())

    def test_10_what_is_deleted_is_gone(self, desk: Desk) -> None:
        agent, _ = desk.agent()
        agent.ask("My secret is 4711")
        agent.delete()
        assert desk.agent()[0].texts() == []
        with suppress(NotFoundError):
            assert said_in(agent.session()) == []

    def test_11_windows_reach_the_model(self, desk: Desk) -> None:
        if not desk.kind.has_windows:
            return  # this adapter stores the history; the framework itself builds what the model is sent
        agent, model = desk.agent()
        for number in range(12):
            agent.ask(f"{number}: " + "where is my order and when will it be here? " * 40)
        assert "SKU-1 costs 12.50" in agent.ask("What is the price of SKU-1?")
        for request in model.requests:
            check_pairs(request)
            assert sum(map(_tokens, request)) < BUDGET
        assert sum(1 for said in model.requests[-1] if "where is my order" in said.text) < 20
        assert len(agent.texts()) >= 26, "the history stays whole"

    def test_12_many_turns_are_all_there(self, desk: Desk) -> None:
        agent, model = desk.agent()
        for number in range(self.turns):
            agent.ask(f"turn {number}")
        assert [text for text in desk.agent()[0].texts() if text.startswith("turn ")] == [
            f"turn {number}" for number in range(self.turns)
        ]
        check_log(desk.log, agent.session())
        assert model.requests[-1][-1].text == f"turn {self.turns - 1}"


def _fails(run: Callable[[], object]) -> bool:
    """Return whether a run was ended. Frameworks raise what the tool raised, or an error of their own."""
    try:
        run()
    except BaseException:  # noqa: BLE001
        return True
    return False


def _tokens(said: Said) -> int:
    calls = json.dumps([[call.id, call.sku] for call in said.calls]) if said.calls else ""
    return TiktokenCounter().count(said.text + calls + "".join(text for _, text in said.results)) + _OVERHEAD


def run_killed(kind: type[Agent], url: str, kill: Callable[[], None]) -> None:
    """Run an agent that ``kill`` ends in its tool, as the first of the processes of `test_05`."""
    with Turnlog.open(url) as log:
        Desk(log, kind).agent()[0].ask("Hello")
        Desk(log, kind).agent(stop=kill)[0].ask(QUESTION)


def run_continued(kind: type[Agent], url: str) -> KilledRun:
    """Go on with what `run_killed` has left, as the second of the processes of `test_05`."""
    with Turnlog.open(url) as log:
        agent, model = Desk(log, kind).agent()
        left = [text_of(message) for message in said_in(agent.session())]
        answer = agent.ask(None if agent.can_continue else QUESTION)
        check_pairs(model.requests[-1])
        check_log(log, agent.session())
        return KilledRun(QUESTION, left, answer, agent.texts())
