"""The log of a graph's thread: what the graph's newest checkpoint has is in view, whatever way the graph went."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.messages.content import KNOWN_BLOCK_TYPES
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from tests.conftest import Harness
from tests.effort import boundaries, is_full
from tests.integrations.checkpoints import Branch
from tests.support.pictures import png
from turnlog import Turnlog
from turnlog.agents.graph_state.messages import original_message
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.integrations.langgraph import TurnlogSaver

THREAD: Any = {"configurable": {"thread_id": "t"}}


class Graph:
    """A graph whose model echoes the last message that it was sent. ``sent`` is what each call was sent."""

    def __init__(self, log: Turnlog, *, budget: int = 8_000, **options: Any) -> None:
        self.saver, self.sent = TurnlogSaver(log, **options), list[list[Any]]()
        self.session: Session = log.sessions.of("t")

        def answer(state: MessagesState) -> Any:
            return self._said(self.saver.window(state, budget=budget, system="Be brief."))

        async def answer_async(state: MessagesState) -> Any:
            return self._said(await self.saver.awindow(state, budget=budget))

        self.graph, self.async_graph = (self._compiled(node) for node in (answer, answer_async))

    def _compiled(self, node: Any) -> Any:
        builder = StateGraph(MessagesState)
        builder.add_node("answer", node)
        builder.add_node("check", lambda state: {"messages": [AIMessage(f"checked {len(state['messages'])}")]})
        builder.add_edge(START, "answer")
        builder.add_edge("answer", "check")
        return builder.compile(checkpointer=self.saver)

    def _said(self, window: list[Any]) -> Any:
        self.sent.append(window)
        return {"messages": [AIMessage(f"You said: {window[-1].text}")]}

    def ask(self, *texts: str, at: Any = THREAD) -> list[Any]:
        result = {"messages": [HumanMessage(text) for text in texts]} if texts else None
        messages: list[Any] = self.graph.invoke(result, at)["messages"]
        return messages

    def state(self) -> list[Any]:
        messages: list[Any] = self.graph.get_state(THREAD).values["messages"]
        return messages

    def history(self) -> list[Any]:
        return list(self.graph.get_state_history(THREAD))

    def check(self, removed: Collection[str] = ()) -> None:
        """Check that the log shows what the newest checkpoint has, as it has it; and what was removed before the last message."""
        messages = [(message.id, message.body["content"]) for message in self.session.messages(in_view=True)]
        shown = [message for message in messages if message[0] not in removed]
        assert shown == [(item.id, item.text) for item in self.state()]


PINNED = {"step": "pin", "first_user": True}


def test_messages_are_in_the_log_and_the_model_is_sent_the_window(harness: Harness) -> None:
    log = harness.log()
    graph = Graph(log, budget=700, title="Desk")
    for number in range(10):
        said = graph.ask(f"{number}: where is order W-{number}? " + "It was due last week. " * 12)
    graph.check()
    assert len(said) == 30 and len(graph.sent[-1]) < 28, "the state keeps everything, the model is sent a window"
    assert graph.sent[-1][0].text == "Be brief." and graph.sent[-1][-1] == said[-3]
    assert graph.session.context(format="openai_chat").messages[-1]["content"] == said[-1].text
    assert any(result.position for result in graph.session.search("order W-3").results)
    assert graph.session.info().title == "Desk"
    asyncio.run(graph.async_graph.ainvoke({"messages": [HumanMessage("And now?")]}, THREAD))
    graph.check()


def test_an_edited_first_message_is_in_view_as_the_graph_has_it(harness: Harness) -> None:
    graph = Graph(harness.log())
    graph.ask("question 0")
    begun = next(item for item in graph.history() if len(item.values.get("messages", [])) == 1)
    edited = begun.values["messages"][0].model_copy(update={"content": "edited"})
    graph.graph.update_state(begun.config, {"messages": [edited]})
    graph.check()
    assert [message.body["content"] for message in graph.session.messages(in_view=True)] == ["edited"]


@pytest.mark.parametrize("seed", range(40 if is_full() else 4))
def test_time_travel_of_the_graph_and_of_the_log_agree(seed: int) -> None:
    choose = random.Random(seed)
    with Turnlog.open("memory://") as log:
        graph, said, removed = Graph(log), set[str](), set[str]()
        for number in range(14):
            history = [item for item in graph.history() if item.values.get("messages")] if number else []
            way = (
                choose.choice(
                    ("ask", "replay", "branch", "edit", "edit any", "remove", "shorten", "sum up", "back", "new saver")
                )
                if history
                else "ask"
            )
            then = choose.choice(history) if history else None
            last = history[0].values["messages"][-1] if history else None
            any_message = choose.choice(history[0].values["messages"]) if history else None
            match way:
                case "ask":
                    graph.ask(f"question {number}")
                case "replay" if then is not None and then.next:
                    graph.ask(at=then.config)
                case "branch" if then is not None:
                    graph.ask(f"instead {number}", at=then.config)
                case "edit" if last is not None:
                    changed = last.model_copy(update={"content": f"edited {number}"})
                    graph.graph.update_state(THREAD, {"messages": [changed]})
                case "edit any" if any_message is not None:
                    changed = any_message.model_copy(update={"content": f"edited {number}"})
                    graph.graph.update_state(THREAD, {"messages": [changed]})
                case "shorten" if any_message is not None and any_message is not last:
                    graph.graph.update_state(THREAD, {"messages": [RemoveMessage(id=any_message.id)]})
                    removed.add(any_message.id)
                case "sum up":
                    removed |= {*(item.id for item in graph.state()[:-1]), f"sum {number}"}
                    summed = [RemoveMessage(id=REMOVE_ALL_MESSAGES), SystemMessage(f"sum {number}", id=f"sum {number}")]
                    graph.graph.update_state(THREAD, {"messages": [*summed, last]})
                case "remove" if last is not None and len(history[0].values["messages"]) > 1:
                    graph.graph.update_state(THREAD, {"messages": [RemoveMessage(id=last.id)]})
                case "back" if then is not None:
                    graph.graph.update_state(then.config, None)
                case "new saver":
                    graph = Graph(log)
            graph.check(removed - {item.id for item in graph.state()})
            said |= {item.text for item in graph.state()}
        assert said <= {message.body["content"] for message in graph.session.messages()}, (
            "nothing that was said is lost"
        )


@pytest.mark.parametrize("is_new", [False, True])
def test_an_edited_message_is_in_view_as_the_graph_has_it_however_old_it_is(harness: Harness, is_new: bool) -> None:
    log = harness.log()
    graph = Graph(log)
    graph.graph.update_state(
        THREAD, {"messages": [HumanMessage(f"text {number}", id=f"{number}") for number in range(130)]}
    )
    graph = Graph(log) if is_new else graph
    graph.graph.update_state(THREAD, {"messages": [HumanMessage("my card is ****", id="3")]})
    graph.check()
    assert [message.body["content"] for message in graph.session.messages(in_view=True)][3] == "my card is ****"


def test_a_message_that_a_node_has_edited_is_in_view_in_a_process_that_does_not_know_the_thread(
    harness: Harness,
) -> None:
    log = harness.log()
    messages = [HumanMessage(f"text {number}", id=f"{number}") for number in range(3)]
    Branch(TurnlogSaver(log)).put("1", messages=messages)
    edited = [HumanMessage("****", id="0"), *messages[1:], AIMessage("yes", id="3")]
    Branch(TurnlogSaver(log)).put("2", messages=edited)
    shown = [message.body["content"] for message in log.sessions.of("t").messages(in_view=True)]
    assert shown == ["****", "text 1", "text 2", "yes"]


def test_a_graph_that_removes_all_messages_shows_none(harness: Harness) -> None:
    graph = Graph(harness.log())
    graph.ask("question 0")
    graph.graph.update_state(THREAD, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
    assert list(graph.session.messages(in_view=True)) == [] and len(list(graph.session.messages())) == 3
    graph.ask("question 1")
    graph.check()


def test_a_replay_is_sent_what_was_there_then(harness: Harness) -> None:
    graph = Graph(harness.log())
    for text in ("first", "second", "third"):
        graph.ask(text)
    then = next(item for item in graph.history() if item.next == ("answer",) and len(item.values["messages"]) == 4)
    graph.ask(at=then.config)
    assert [item.text for item in graph.sent[-1]][-1] == "second"
    graph.check()


def test_a_checkpoint_that_comes_late_changes_nothing_of_what_is_in_view(harness: Harness) -> None:
    log = harness.log()
    branch = Branch(TurnlogSaver(log))
    first, second, third = (HumanMessage(text, id=text) for text in ("first", "second", "third"))
    branch.put("1", messages=[first])
    branch.put("3", messages=[first, second])
    branch.at = "1"
    branch.put("2", messages=[first, third])
    session = log.sessions.of("t")
    assert [message.id for message in session.messages(in_view=True)] == ["first", "second"]
    assert {message.id for message in session.messages()} == {"first", "second", "third"}
    branch.put("4", messages=[first, second, HumanMessage("fourth", id="fourth")])
    assert [message.id for message in session.messages(in_view=True)] == ["first", "second", "fourth"]


def test_runs_side_by_side_lose_nothing_and_the_log_shows_the_newest_checkpoint(harness: Harness) -> None:
    log = harness.log()
    graphs = [Graph(log) for _ in range(3)]
    graphs[0].ask("hello")
    ready = threading.Barrier(3)

    def run(at: int) -> None:
        ready.wait()
        graphs[at].ask(f"question of {at}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
    said = {message.body["content"] for message in graphs[0].session.messages()}
    assert {f"question of {at}" for at in range(3)} <= said
    graphs[0].ask("and now?")
    Graph(log).check()


def test_what_others_say_stays_and_what_is_redacted_is_not_said_again(harness: Harness) -> None:
    log = harness.log()
    graph = Graph(log)
    graph.ask("my number is 4711")
    graph.session.append({"role": "user", "content": "a colleague: please be quick"}, loop="new")
    position = next(iter(graph.session.messages())).position
    graph.session.redact(position)
    Graph(log).ask("and now?")
    graph.graph.update_state(THREAD, {"messages": [AIMessage("noted")]})
    texts = [str(message.body["content"]) for message in graph.session.messages(in_view=True)]
    assert not any(text == "my number is 4711" for text in texts) and "a colleague: please be quick" in texts
    assert len(texts) == 8 and "and now?" in texts and texts[-1] == "noted"


@pytest.mark.parametrize("edited", [0, 2])
def test_a_redacted_message_is_not_said_again_behind_an_edited_one(harness: Harness, edited: int) -> None:
    graph = Graph(harness.log())
    for text in ("first", "secret", "third"):
        graph.ask(text)
    graph.session.redact(
        next(message.position for message in graph.session.messages() if message.body["content"] == "secret")
    )
    message = graph.state()[edited].model_copy(update={"content": "****"})
    graph.graph.update_state(THREAD, {"messages": [message]})
    graph.ask("fourth")
    shown = [message.body["content"] for message in graph.session.messages(in_view=True)]
    assert shown == [item.text for item in graph.state() if item.text != "secret"]
    assert shown[edited] == "****" and "secret" not in [message.body["content"] for message in graph.session.messages()]


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_redacted_newest_message_is_not_said_again_with_the_next_one(harness: Harness, is_removed: bool) -> None:
    graph = Graph(harness.log())
    graph.ask("first")
    graph.graph.update_state(THREAD, {"messages": [HumanMessage("secret", id="secret")]}, as_node="check")
    graph.session.redact(next(iter(graph.session.messages(order="desc"))).position)
    if is_removed:
        graph.graph.update_state(THREAD, {"messages": [RemoveMessage("secret")]}, as_node="check")
    graph.ask("second")
    shown = [message.body["content"] for message in graph.session.messages(in_view=True)]
    assert shown[0] == "first" and shown[3:5] == ["[redacted]", "second"] and len(shown) == 7
    assert "secret" not in [message.body["content"] for message in graph.session.messages()]


@pytest.mark.parametrize("questions", [["secret"], ["first", "secret"]])
def test_redacted_messages_at_the_end_of_a_thread_are_not_said_again_by_a_new_process(
    harness: Harness, questions: list[str]
) -> None:
    log = harness.log()
    graph = Graph(log)
    for text in questions:
        graph.ask(text)
    for message in list(graph.session.messages())[-3:]:
        graph.session.redact(message.position)
    if len(questions) > 1:  # the list's last message is redacted, and nothing comes behind it
        Graph(log).graph.update_state(THREAD, {}, as_node="check")
    Graph(log).ask("second")
    shown = [message.body["content"] for message in graph.session.messages()]
    assert shown[-6:] == ["[redacted]"] * 3 + ["second", "You said: second", f"checked {len(shown) - 1}"]
    assert not any("secret" in text for text in shown)


def test_runs_without_a_thread_id_share_no_session(harness: Harness) -> None:
    log = harness.log()
    with pytest.raises(InvalidInputError, match="thread_id is None"):
        Graph(log).ask("my number is 4711", at={"configurable": {"thread_id": None}})
    assert not list(log.sessions.list())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_anywhere_and_a_repeated_put_append_once(harness: Harness, when: Any) -> None:
    first, second = HumanMessage("first", id="1"), AIMessage("second", id="2")

    def put(user: str) -> None:
        branch = Branch(TurnlogSaver(harness.log(user=user)))
        branch.put("1", messages=[first])
        branch.put("2", messages=[first, second])

    put("clean")
    count = harness.faults.calls
    put("counted")
    for at in boundaries(harness.faults.calls - count, harness.name, sqlite=3, emulated=6):
        harness.faults.fail(at, when)
        for _ in range(2):
            try:
                put(f"u{when}{at}")
            except UnavailableError:
                harness.faults.clear()
        harness.faults.clear()
        put(f"u{when}{at}")
        session = harness.log(user=f"u{when}{at}").sessions.of("t")
        assert [message.id for message in session.messages(in_view=True)] == ["1", "2"]


def test_a_checkpoint_with_messages_is_three_requests_more_than_one_without(harness: Harness) -> None:
    """The append: its head, the commit with its key, and what the handler reads of the session."""
    branch = Branch(TurnlogSaver(harness.log()))
    messages = [HumanMessage("first", id="1")]
    branch.put("1", messages=messages)
    before = harness.faults.calls
    branch.put("2", x=1)
    without = harness.faults.calls - before
    branch.put("3", messages=[*messages, AIMessage("second", id="2")])
    assert harness.faults.calls - before - 2 * without <= 3


def test_what_no_log_takes_is_named_and_the_graph_goes_on() -> None:
    with Turnlog.open("memory://") as log:
        branch = Branch(TurnlogSaver(log))
        odd = ChatMessage("x", role="", id="odd")
        branch.put("1", messages=[HumanMessage("hi", id="1"), odd])
        Branch(TurnlogSaver(log)).put("2", messages=[HumanMessage("hi", id="1"), odd])
        session = log.sessions.of("t")
        assert [message.id for message in session.messages()] == ["1"]
        (entry,) = session.history(action="message_not_kept")
        assert entry.metadata["message_id"] == "odd"
        assert branch.get() is not None


@pytest.mark.parametrize("replies", [1, 2])
def test_the_history_has_the_usage_of_a_checkpoints_only_reply(replies: int) -> None:
    usage: Any = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    messages = [AIMessage(f"{number}", id=f"{number}", usage_metadata=usage) for number in range(replies)]
    with Turnlog.open("memory://") as log:
        Branch(TurnlogSaver(log)).put("1", messages=[HumanMessage("hi", id="q"), *messages])
        entries = [entry.metadata or {} for entry in log.sessions.of("t").history()]
    stored = [metadata["usage"] for metadata in entries if "usage" in metadata]
    assert stored == ([{"input_tokens": 7, "output_tokens": 2}] if replies == 1 else [])


def test_threads_without_messages_and_other_channels(harness: Harness) -> None:
    log = harness.log()
    Branch(TurnlogSaver(log, messages=None)).put("1", messages=[HumanMessage("hi", id="1")])
    assert list(log.sessions.of("t").messages()) == []
    Branch(TurnlogSaver(log, messages="talk"), "u").put(
        "1", talk=[HumanMessage("hi", id="1")], messages=["no messages"]
    )
    assert [message.id for message in log.sessions.of("u").messages()] == ["1"]
    Branch(TurnlogSaver(log), "v", "sub|graph:1").put("1", messages=[HumanMessage("hi", id="1")])
    assert list(log.sessions.of("v").messages()) == [], "a subgraph's messages are in its parent's when it is done"


def test_a_deleted_thread_says_nothing_to_the_next_run_of_its_name(harness: Harness) -> None:
    graph = Graph(harness.log())
    graph.ask("my secret is 4711")
    graph.saver.delete_thread("t")
    assert list(graph.session.messages(in_view=True)) == []
    graph.ask("hello")
    graph.check()
    assert [item.text for item in graph.sent[-1]] == ["Be brief.", "hello"]


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_behind_a_summary_only_what_the_window_shows_is_read(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    log = harness.log()
    session = log.sessions.create("t", policy={"steps": [{"step": "summary"}, {"step": "turns", "n": 1}, PINNED]})
    graph = Graph(log)
    for number in range(90):
        graph.ask(f"question {number}")
    assert session.compress(mode="sync").status == "published"
    call, positions = log.backend.call, list[int]()

    def reading(operation: str, **options: Any) -> Any:
        answer = call(operation, **options)
        if operation == "read_messages" and options["query"]["order"] == "asc":  # newest first, the log is compared
            positions.extend(message.position for message in answer.messages)
        return answer

    graph = Graph(log)  # as another process, which knows no message
    monkeypatch.setattr(log.backend, "call", reading)
    graph.ask("and now?")
    assert any("question 0" in message.text for message in graph.sent[-1]), "the pinned message is in the window"
    assert 0 < len(positions) < 120, "a page from the pinned message on, and the newest loops"


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_node_of_a_subgraph_is_sent_the_window_of_its_thread(harness: Harness) -> None:
    log, sent = harness.log(), list[list[str]]()
    saver = TurnlogSaver(log)

    def answer(state: MessagesState) -> Any:
        sent.append([message.text for message in saver.window(state, budget=8_000)])
        return {"messages": [AIMessage("yes", id=f"a{len(sent)}")]}

    inner, outer = StateGraph(MessagesState), StateGraph(MessagesState)
    inner.add_node("answer", answer)
    inner.add_edge(START, "answer")
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    for number in (1, 2):
        graph.invoke({"messages": [HumanMessage("hi", id=f"q{number}")]}, THREAD)
    assert sent == [["hi"], ["hi", "yes", "hi"]]
    assert [message.id for message in log.sessions.of("t").messages(in_view=True)] == ["q1", "a1", "q2", "a2"]


WORDS = " ".join(f"word {number}" for number in range(300))
BLOCKS: dict[str, tuple[type[BaseMessage], dict[str, Any], int]] = {
    "text": (HumanMessage, {"text": WORDS}, 900),
    "text-plain": (HumanMessage, {"text": WORDS, "mime_type": "text/plain"}, 900),
    "text-plain of a file": (HumanMessage, {"url": "https://example.com/a.txt"}, 3_000),
    "image": (HumanMessage, {"base64": png(1_000, 1_000), "mime_type": "image/png"}, 765),
    "image of a file": (HumanMessage, {"file_id": "file-1"}, 765),
    "audio": (HumanMessage, {"base64": "A" * 480_000, "mime_type": "audio/mp3"}, 225),
    "audio of a file": (HumanMessage, {"url": "https://example.com/a.mp3"}, 600),
    "file": (HumanMessage, {"base64": "A" * 40_000, "mime_type": "application/pdf", "filename": "a.pdf"}, 3_000),
    "file of a file": (HumanMessage, {"url": "https://example.com/a.pdf"}, 3_000),
    "video": (HumanMessage, {"base64": "A" * 40_000, "mime_type": "video/mp4"}, 3_000),
    "video of a file": (HumanMessage, {"url": "https://example.com/a.mp4"}, 3_000),
    "reasoning": (AIMessage, {"reasoning": WORDS}, 900),
    "server_tool_call": (AIMessage, {"id": "s", "name": "search", "args": {"q": WORDS}}, 900),
    "server_tool_result": (AIMessage, {"tool_call_id": "s", "status": "success", "output": [{"a": WORDS}]}, 900),
    "non_standard": (AIMessage, {"value": {"a": WORDS}}, 900),
    "refusal": (AIMessage, {"refusal": WORDS}, 900),  # since langchain-core 1.7.5
}
OF_CALLS = {"tool_call", "tool_call_chunk", "invalid_tool_call", "server_tool_call_chunk"}
"""Blocks that say what the message's calls say, or a part of them."""


@pytest.mark.parametrize("kind", BLOCKS)
def test_each_block_of_langchain_is_kept_and_counted(kind: str) -> None:
    assert {name.partition(" ")[0] for name in BLOCKS} >= KNOWN_BLOCK_TYPES - OF_CALLS
    message_type, fields, tokens = BLOCKS[kind]
    message = message_type([{"type": kind.partition(" ")[0], **fields}], id="m")
    with Turnlog.open("memory://") as log:
        Branch(TurnlogSaver(log)).put("1", messages=[message])
        (stored,) = log.sessions.of("t").messages()
        assert original_message(stored) == message
        assert log.sessions.of("t").info().tokens >= tokens


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_messages_that_only_a_subgraph_has_are_in_its_windows_alone(harness: Harness, durability: Any) -> None:
    log, sent = harness.log(), dict[str, list[list[str]]](inner=[], outer=[])
    log.sessions.create("t", policy="full", model="gpt-4o")
    saver = TurnlogSaver(log)

    def node(name: str) -> Any:
        def answer(state: MessagesState) -> Any:
            sent[name].append([message.text for message in saver.window(state, budget=8_000)])
            return {"messages": [AIMessage(name)]}

        return answer

    inner, outer = StateGraph(MessagesState), StateGraph(MessagesState)
    inner.add_node("answer", node("inner"))
    inner.add_edge(START, "answer")
    subgraph = inner.compile()

    def call(state: MessagesState) -> Any:
        for private in ([HumanMessage("private")], [state["messages"][-1], HumanMessage("private")]):
            subgraph.invoke({"messages": private})
        return {"messages": [AIMessage("called")]}

    outer.add_node("answer", node("outer"))
    outer.add_node("call", call)
    outer.add_edge(START, "answer")
    outer.add_edge("answer", "call")
    graph = outer.compile(checkpointer=saver)
    for number in (1, 2):
        graph.invoke({"messages": [HumanMessage(f"q{number}")]}, THREAD, durability=durability)
    assert sent["inner"] == [["private"], ["outer", "private"]] * 2
    assert sent["outer"] == [["q1"], ["q1", "outer", "called", "q2"]]
    assert not any("private" in str(message.body) for message in log.sessions.of("t").messages())


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_subgraph_of_a_thread_without_messages_has_windows(harness: Harness) -> None:
    log, sent = harness.log(), list[list[str]]()
    saver = TurnlogSaver(log)

    def answer(state: MessagesState) -> Any:
        sent.append([message.text for message in saver.window(state, budget=8_000)])
        return {"messages": [AIMessage("yes")]}

    inner, outer = StateGraph(MessagesState), StateGraph(dict)
    inner.add_node("answer", answer)
    inner.add_edge(START, "answer")
    subgraph = inner.compile()
    outer.add_node("call", lambda state: {"said": len(subgraph.invoke({"messages": [HumanMessage("hi")]})["messages"])})
    outer.add_edge(START, "call")
    outer.compile(checkpointer=saver).invoke({"said": 0}, THREAD, durability="exit")
    assert sent == [["hi"]]


def test_a_window_of_a_saver_that_keeps_no_messages_says_what_to_do() -> None:
    with Turnlog.open("memory://") as log, pytest.raises(InvalidInputError, match="keeps no messages"):
        Graph(log, messages=None).ask("hi")


def test_a_window_outside_of_a_node_says_what_to_do() -> None:
    with Turnlog.open("memory://") as log, pytest.raises(InvalidInputError, match="in a node"):
        TurnlogSaver(log).window({"messages": []})
