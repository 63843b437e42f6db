"""`TurnlogSessionService` beside ADK's own service in memory, and what is left of an append that was cut off."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.conftest import Harness
from turnlog.log import commit, read_lines

adk = pytest.importorskip("google.adk.sessions", reason="has an environment of its own: make frameworks")
APP = {"app_name": "desk", "user_id": "ada"}
STATE = {"tone": "kind", "app:shop": "tea", "user:name": "Ada", "temp:seen": 1}
DELTAS = [{"step": 1}, {"app:shop": "coffee", "temp:seen": 2}, {"user:name": "A.", "step": 2, "user:age": 36}]


def service_of(harness: Harness) -> Any:
    from turnlog.integrations.google_adk import TurnlogSessionService

    return TurnlogSessionService(harness.log())


def event_of(number: int, delta: dict[str, Any]) -> Any:
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions

    return Event(author="ada", id=f"e{number}", timestamp=float(number), actions=EventActions(state_delta=dict(delta)))


async def told(service: Any) -> list[Any]:
    """What a service tells after a session, and after another one of another user."""
    from google.adk.sessions.base_session_service import GetSessionConfig

    session = await service.create_session(**APP, session_id=" one ", state=dict(STATE))
    answers: list[Any] = [session.id, session.state]
    for number, delta in enumerate(DELTAS, 1):
        await service.append_event(session, event_of(number, delta))
    answers += [session.state, session.last_update_time, await service.get_user_state(**APP)]
    other = await service.create_session(app_name="desk", user_id="bob", session_id="two")
    answers += [other.state, await service.get_session(**APP, session_id="none")]
    for limits in ({}, {"num_recent_events": 2}, {"num_recent_events": 0}, {"after_timestamp": 2.0}):
        read = await service.get_session(**APP, session_id="one", config=GetSessionConfig(**limits))
        answers += [[event.id for event in read.events], read.state, read.last_update_time]
    for user in ("ada", "bob", None):
        listed = await service.list_sessions(app_name="desk", user_id=user)
        answers.append([(session.id, session.user_id, session.state, session.events) for session in listed.sessions])
    await service.delete_session(**APP, session_id="one")
    answers.append([session.id for session in (await service.list_sessions(app_name="desk")).sessions])
    return [*answers, await service.get_session(**APP, session_id="one"), await service.get_user_state(**APP)]


@pytest.mark.every_engine
def test_it_tells_what_the_service_in_memory_tells(harness: Harness) -> None:
    assert asyncio.run(told(service_of(harness))) == asyncio.run(told(adk.InMemorySessionService()))


class Order(BaseModel):
    number: int = 7


@dataclass
class Place:
    shelf: str = "B"


class Size(Enum):
    LARGE = "l"


def test_python_values_of_a_state_are_what_the_service_on_sqlite_makes_of_them(
    harness: Harness, tmp_path: Path
) -> None:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    values = {
        "order": Order(),
        "place": Place(),
        "size": Size.LARGE,
        "set": {1},
        "day": date(2026, 1, 31),
        "data": b"ab",
    }
    state = values | {"app:order": Order(), "user:list": [Order()]}

    async def read(service: Any) -> list[Any]:
        session = await service.create_session(**APP, session_id="one", state=dict(state))
        await service.append_event(session, event_of(1, {f"{name}_later": value for name, value in state.items()}))
        return [(await service.get_session(**APP, session_id="one")).state, await service.get_user_state(**APP)]

    stored = asyncio.run(read(service_of(harness)))
    assert stored == asyncio.run(read(SqliteSessionService(str(tmp_path / "adk.db"))))
    assert stored[0]["order"] == {"number": 7}


def test_the_newest_events_are_read_without_the_older_ones(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.adk.sessions.base_session_service import GetSessionConfig

    from turnlog.integrations.google_adk import EVENTS

    async def read() -> list[str]:
        service = service_of(harness)
        await service.create_session(**APP, session_id="one")
        log = service.log_of(*APP.values(), "one")
        EVENTS.append(log, [EVENTS.body(event_of(number, {"step": number})) for number in range(300)])
        session = await service.get_session(**APP, session_id="one")
        assert (len(session.events), session.state) == (300, {"step": 299})
        await service.append_event(session, event_of(300, {}))
        decoded.clear()
        newest = await service.get_session(**APP, session_id="one", config=GetSessionConfig(num_recent_events=2))
        assert newest.state == {"step": 299}
        return [event.id for event in newest.events]

    decoded, read_event = list[int](), read_lines.read_event

    def counted(line: dict[str, Any], **place: Any) -> Any:
        decoded.append(place["position"])
        return read_event(line, **place)

    monkeypatch.setattr(commit, "read_event", counted)
    assert asyncio.run(read()) == ["e299", "e300"]
    assert len(decoded) < 200


def test_a_session_that_was_read_before_is_stale_and_an_id_is_taken_once(harness: Harness) -> None:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError

    async def run() -> None:
        service = service_of(harness)
        session = await service.create_session(**APP, session_id="one")
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**APP, session_id="one", state={"app:shop": "none"})
        before = await service.get_session(**APP, session_id="one")
        await service.append_event(session, event_of(1, {}))
        with pytest.raises(StaleSessionError):
            await service.append_event(before, event_of(2, {}))
        made_elsewhere = adk.Session(id="one", app_name="desk", user_id="ada")
        with pytest.raises(StaleSessionError):
            await service.append_event(made_elsewhere, event_of(2, {}))
        await service.delete_session(**APP, session_id="one")
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, event_of(2, {}))
        assert "app:shop" not in (await service.create_session(**APP, session_id="two")).state

    asyncio.run(run())


@pytest.mark.every_engine
def test_events_for_one_session_object_are_appended_side_by_side_and_each_is_stored_once(harness: Harness) -> None:
    async def run() -> list[str]:
        service = service_of(harness)
        session = await service.create_session(**APP, session_id="one")
        before = await service.get_session(**APP, session_id="one")
        events = [event_of(number, {"step": number}) for number in range(8)]
        assert await service.append_event(session, events[0]) == await service.append_event(before, events[0])
        assert before.state == {"step": 0}, "an append whose answer was lost"
        await asyncio.gather(*(service.append_event(session, event) for event in events[1:]))
        for holder in (session, await service.get_session(**APP, session_id="one")):
            await service.append_event(holder, event_of(7, {"step": 7}))
        assert session.state == {"step": 7}
        read = await service.get_session(**APP, session_id="one")
        assert [event.id for event in read.events] == [event.id for event in session.events]
        return [event.id for event in read.events]

    assert asyncio.run(run()) == [f"e{number}" for number in range(8)]


def test_the_ids_of_a_fork_are_those_of_other_sessions(harness: Harness) -> None:
    from google.adk.errors.already_exists_error import AlreadyExistsError

    async def run() -> None:
        service = service_of(harness)
        session = await service.create_session(**APP, session_id="one", state={"tone": "kind"})
        await service.append_event(session, event_of(1, {"step": 1}))
        fork = await service.fork_session(*APP.values(), " one ", " two ")
        read = await service.get_session(**APP, session_id=fork.id)
        assert (fork.id, read.state, [event.id for event in read.events]) == (
            "two",
            {"tone": "kind", "step": 1},
            ["e1"],
        )
        assert (await service.fork_session(*APP.values(), "one", " ")).id.strip()
        with pytest.raises(AlreadyExistsError):
            await service.fork_session(*APP.values(), "one", "two")

    asyncio.run(run())


def test_the_state_of_an_append_that_was_cut_off_is_brought_up_to_date(harness: Harness) -> None:
    async def run(at: int) -> bool:
        app = {**APP, "app_name": f"desk-{at}"}
        session = await service_of(harness).create_session(**app, session_id="one", state=dict(STATE))
        harness.faults.fail(at, "before")
        for number, delta in enumerate(DELTAS, 1):
            try:
                await service_of(harness).append_event(session, event_of(number, delta))
            except Exception:
                session = await service_of(harness).get_session(**app, session_id="one")
                if len(session.events) < number:
                    await service_of(harness).append_event(session, event_of(number, delta))
        is_past_the_end = harness.faults.is_pending
        harness.faults.clear()
        read = await service_of(harness).get_session(**app, session_id="one")
        shared = {"app:shop": "coffee", "user:name": "A.", "user:age": 36}
        assert [event.id for event in read.events] == ["e1", "e2", "e3"]
        assert read.state == {"tone": "kind", "step": 2, **shared}
        await service_of(harness).append_event(read, event_of(4, {}))
        (listed,) = (await service_of(harness).list_sessions(app_name=app["app_name"])).sessions
        assert listed.state == read.state, "an append brings what is stored up to date"
        return is_past_the_end

    calls = next(at for at in itertools.count(1) if asyncio.run(run(at)))
    assert calls > len(DELTAS), "each append was cut off somewhere"


def test_a_rewind_takes_events_out_of_view_and_of_windows(harness: Harness) -> None:
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.genai import types

    from turnlog.integrations.google_adk import EVENTS
    from turnlog.integrations.originals import Limits

    def event_said(text: str, invocation_id: str) -> Event:
        content = types.Content(role="user", parts=[types.Part(text=text)])
        return Event(author="user", invocation_id=invocation_id, content=content)

    async def run() -> None:
        service = service_of(harness)
        session = await service.create_session(**APP, session_id="one")
        for text, invocation_id in (("stays", "i1"), ("goes", "i2"), ("goes too", "i2"), ("and this", "i3")):
            await service.append_event(session, event_said(text, invocation_id))
        actions = EventActions(rewind_before_invocation_id="i2", state_delta={"step": 0})
        await service.append_event(session, Event(author="user", invocation_id="i4", actions=actions))
        await service.append_event(session, event_said("after", "i5"))
        read = await service.get_session(**APP, session_id="one")
        assert [event.invocation_id for event in read.events] == ["i1", "i4", "i5"] and read.state == {"step": 0}
        window = EVENTS.window(service.log_of(*APP.values(), "one"), Limits(budget=2_000))
        texts = [event.content.parts[0].text for event in window.messages if event.content and event.content.parts]
        assert texts == ["stays", "after"]

    asyncio.run(run())


def test_a_rewind_that_was_cut_off_anywhere_is_whole_or_not_there(harness: Harness) -> None:
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions

    def event_of_run(run: str, **actions: Any) -> Event:
        return Event(author="ada", invocation_id=run, actions=EventActions(**actions))

    async def run(at: int) -> bool:
        app = {**APP, "app_name": f"desk-{at}"}
        session = await service_of(harness).create_session(**app, session_id="one")
        for number in (1, 2, 3):
            await service_of(harness).append_event(session, event_of_run(f"i{number}", state_delta={"step": number}))
        harness.faults.fail(at, "before")
        is_cut, rewind = False, event_of_run("i4", rewind_before_invocation_id="i2", state_delta={"step": 1})
        try:
            await service_of(harness).append_event(session, rewind)
        except Exception:
            is_cut = True
        is_past_the_end = harness.faults.is_pending
        harness.faults.clear()
        for _ in range(2):  # the second read finds what the first one has made whole
            read = await service_of(harness).get_session(**app, session_id="one")
            state = [event.invocation_id for event in read.events], read.state["step"]
            assert state in [(["i1", "i4"], 1), *([(["i1", "i2", "i3"], 3)] if is_cut else [])]
        await service_of(harness).append_event(read, event_of_run("i5"))
        read = await service_of(harness).get_session(**app, session_id="one")
        assert ([event.invocation_id for event in read.events], read.state["step"]) == ([*state[0], "i5"], state[1])
        return is_past_the_end

    calls = next(at for at in itertools.count(1) if asyncio.run(run(at)))
    assert calls > 3, "the rewind was cut off between its commits"


def test_what_is_no_event_makes_no_session_stale(harness: Harness) -> None:
    """Settings, notes, state of the log and summaries move the log's head, and nothing that an app has read has changed."""

    async def run() -> None:
        service = service_of(harness)
        session = await service.create_session(**APP, session_id="one")
        await service.append_event(session, event_of(1, {"step": 1}))
        log = service.log_of(*APP.values(), "one")
        log.update(title="Order 7")
        await service.append_event(session, event_of(2, {"step": 2}))
        log.record("reviewed")
        log.put_state({"stage": "open"})
        session = await service.get_session(**APP, session_id="one")
        await service.append_event(session, event_of(3, {}))
        read = await service.get_session(**APP, session_id="one")
        assert [event.id for event in read.events] == ["e1", "e2", "e3"] and read.state == {"step": 2}

    asyncio.run(run())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_plugin_sends_each_agent_what_adk_sends_it(harness: Harness) -> None:
    """What fits into the budget is sent as ADK does it: replies of other agents as context, and no history where none is wished."""
    from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
    from google.adk.apps import App
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.genai import types

    from turnlog.integrations.google_adk import TurnlogWindowPlugin

    sent = dict[str, list[Any]]()

    class Scripted(BaseLlm):
        async def generate_content_async(self, request: Any, stream: bool = False) -> Any:
            sent.setdefault(self.model, []).append([content.model_dump() for content in request.contents])
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=f"I am {self.model}")]))

    def agent(name: str, **options: Any) -> LlmAgent:
        return LlmAgent(name=name, model=Scripted(model=name), **options)

    async def run(session_id: str, *, has_plugin: bool) -> dict[str, list[Any]]:
        sent.clear()
        service = service_of(harness)
        both = ParallelAgent(name="both", sub_agents=[agent("left"), agent("right")])
        desk = SequentialAgent(
            name="desk", sub_agents=[both, agent("writer"), agent("checker", include_contents="none")]
        )
        plugins = [TurnlogWindowPlugin(service, budget=8_000)] if has_plugin else []
        runner = Runner(app=App(name="desk", root_agent=desk, plugins=plugins), session_service=service)
        await service.create_session(**APP, session_id=session_id)
        for question in ("Where is it?", "And now?"):
            message = types.Content(role="user", parts=[types.Part(text=question)])
            async for _ in runner.run_async(user_id="ada", session_id=session_id, new_message=message):
                pass
        # The agents that run at once answer in any order, and the others see their replies in that order.
        return {name: [sorted(map(str, request)) for request in requests] for name, requests in sent.items()}

    with_plugin = asyncio.run(run("one", has_plugin=True))
    assert with_plugin.keys() == {"left", "right", "writer", "checker"}
    assert with_plugin == asyncio.run(run("two", has_plugin=False))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("kind", ["long", "confirmed", "agent"])
def test_the_plugin_sends_late_results_and_confirmed_calls_as_adk_does(harness: Harness, kind: str) -> None:
    """A long-running tool's result that comes later, a call that the user must confirm, and an agent that is a tool."""
    from google.adk.agents import LlmAgent
    from google.adk.apps import App
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool
    from google.genai import types

    from turnlog.integrations.google_adk import TurnlogWindowPlugin

    sent = list[Any]()

    class Scripted(BaseLlm):
        async def generate_content_async(self, request: Any, stream: bool = False) -> Any:
            sent.append([content.model_dump(exclude={"id"}) for content in request.contents])
            is_first = len(sent) == 1 and self.model == "desk"
            call = types.FunctionCall(id="c1", name="refund", args={"request" if kind == "agent" else "order": "7"})
            part = types.Part(function_call=call) if is_first else types.Part(text=f"{self.model} {len(sent)}")
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    def refund(order: str) -> dict[str, str]:
        return {"status": "pending" if kind == "long" else f"refunded {order}"}

    def answer(events: list[Any]) -> types.Part:
        """The part that the user sends after the first turn."""
        calls = [call for event in events for call in event.get_function_calls()]
        response: dict[str, Any] = {"status": "approved"} if kind == "long" else {"confirmed": True}
        answered = types.FunctionResponse(id=calls[-1].id, name=calls[-1].name, response=response)
        return types.Part(text="thanks") if kind == "agent" else types.Part(function_response=answered)

    async def run(session_id: str, *, has_plugin: bool) -> list[Any]:
        sent.clear()
        service = service_of(harness)
        tool: Any = AgentTool(LlmAgent(name="refund", description="refunds", model=Scripted(model="refund")))
        if kind != "agent":
            long, confirmed = LongRunningFunctionTool(refund), FunctionTool(refund, require_confirmation=True)
            tool = long if kind == "long" else confirmed
        plugins = [TurnlogWindowPlugin(service, budget=8_000)] if has_plugin else []
        desk = LlmAgent(name="desk", model=Scripted(model="desk"), tools=[tool])
        runner = Runner(app=App(name="desk", root_agent=desk, plugins=plugins), session_service=service)
        await service.create_session(**APP, session_id=session_id)
        events = list[Any]()
        for text in ("refund 7", None, "And now?"):
            message = types.Content(role="user", parts=[types.Part(text=text) if text else answer(events)])
            events = [
                event async for event in runner.run_async(user_id="ada", session_id=session_id, new_message=message)
            ]
        return list(sent)

    with_plugin = asyncio.run(run("one", has_plugin=True))
    assert len(with_plugin) == {"long": 4, "confirmed": 3, "agent": 5}[kind]
    assert with_plugin == asyncio.run(run("two", has_plugin=False))


async def requests_of(
    harness: Harness, agent_of: Any, reply: Any, budget: int | None, *before: Any, **options: Any
) -> list[tuple[str, list[Any]]]:
    """Run two turns, and return each request as the model's name and contents; without a budget there are no plugins.

    ``agent_of`` makes the agent from a function that makes a model by its name; ``reply`` the parts that a model says to its n-th
    request.
    """
    from google.adk.apps import App
    from google.adk.artifacts import InMemoryArtifactService
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.genai import types

    from turnlog.integrations.google_adk import TurnlogWindowPlugin

    requests = list[tuple[str, list[Any]]]()

    class Scripted(BaseLlm):
        async def generate_content_async(self, request: Any, stream: bool = False) -> Any:
            requests.append((self.model, [content.model_dump(exclude_none=True) for content in request.contents]))
            number = sum(1 for name, _ in requests if name == self.model)
            yield LlmResponse(content=types.Content(role="model", parts=reply(self.model, number)))

    service, artifacts, session_id = service_of(harness), InMemoryArtifactService(), f"of-{budget}"
    plugins = [*before, TurnlogWindowPlugin(service, budget=budget)] if budget else []
    app = App(name="desk", root_agent=agent_of(lambda name: Scripted(model=name)), plugins=plugins)
    runner = Runner(app=app, session_service=service, artifact_service=artifacts)
    await service.create_session(**APP, session_id=session_id, state={"tone": "kind"})
    report = types.Part.from_text(text="the report's text")
    await artifacts.save_artifact(**APP, session_id=session_id, filename="report", artifact=report)
    for question in ("the first question", "the second question"):
        message = types.Content(role="user", parts=[types.Part(text=question)])
        async for _ in runner.run_async(user_id="ada", session_id=session_id, new_message=message, **options):
            pass
    return requests


def part_of(call: str, **args: Any) -> Any:
    from google.genai import types

    return types.Part(function_call=types.FunctionCall(name=call, args=args))


def look(page: int) -> dict[str, str]:
    return {"words": f"word{page} " * 800}


def desk_of(kind: str, model_of: Any) -> Any:
    """An agent whose requests have more than its session's events, or calls of tools that it does not have."""
    from google.adk.agents import LlmAgent, SequentialAgent
    from google.adk.code_executors.unsafe_local_code_executor import UnsafeLocalCodeExecutor
    from google.adk.planners import PlanReActPlanner
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.load_artifacts_tool import LoadArtifactsTool
    from google.genai import types

    class Adding(BaseTool):
        async def process_llm_request(self, *, tool_context: Any, llm_request: Any) -> None:
            llm_request.contents.append(types.Content(role="user", parts=[types.Part(text="a tool's own text")]))

    picture = types.Part.from_bytes(data=b"picture", mime_type="image/png")
    options: dict[str, dict[str, Any]] = {
        "instruction": {"static_instruction": "the rules", "instruction": "be {tone}"},
        "picture": {"static_instruction": types.Content(parts=[picture]), "instruction": "be {tone}"},
        "added": {"tools": [look, Adding(name="adding", description="adds")]},
        "artifacts": {"tools": [look, LoadArtifactsTool()]},
        "code": {"code_executor": UnsafeLocalCodeExecutor()},
        "planner": {"planner": PlanReActPlanner()},
    }
    desk = LlmAgent(name="desk", model=model_of("desk"), **{"tools": [look], **options.get(kind, {})})
    writer = LlmAgent(name="writer", model=model_of("writer"))
    return SequentialAgent(name="both", sub_agents=[desk, writer]) if kind == "pipeline" else desk


def desk_says(kind: str, name: str, number: int) -> Any:
    from google.genai import types

    if number % 4 == 0 or name == "writer":
        return [types.Part(text="/*FINAL_ANSWER*/ done")]
    if kind == "code":
        return [types.Part(text="let me\n```python\nprint('word ' * 800)\n```\n")]
    if kind == "artifacts" and number % 4 == 3:
        return [part_of("load_artifacts", artifact_names=["report"])]
    return [types.Part(text="/*PLANNING*/ look"), part_of("look", page=number)]


ADDED = {"instruction": "be kind", "picture": "be kind", "added": "a tool's own text", "artifacts": "the report's text"}
"""Text of what requests have beyond the session's events."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("kind", ["instruction", "picture", "added", "artifacts", "code", "planner", "pipeline"])
def test_the_plugin_sends_what_instructions_and_tools_add_to_a_request(harness: Harness, kind: str) -> None:
    def run(budget: int | None) -> list[Any]:
        return asyncio.run(requests_of(harness, partial(desk_of, kind), partial(desk_says, kind), budget))

    def added(contents: list[Any]) -> list[Any]:
        return [content for content in contents if kind in ADDED and ADDED[kind] in str(content)]

    plain = run(None)
    assert run(100_000) == plain, "what fits is sent as ADK sends it"
    windows = run(5_000)
    assert len(windows) == len(plain) >= 8 and len(str(windows[-1])) < len(str(plain[-1])) * 0.6
    for (_, window), (_, contents) in zip(windows, plain, strict=True):
        assert window[-1] == contents[-1] and added(window) == added(contents)
        assert window[0] == contents[0], "a picture in the instruction, or the first question"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("kind", ["parallel", "none", "single_turn", "task", "node"])
def test_an_agent_that_does_not_see_all_events_is_sent_what_adk_sends_it(harness: Harness, kind: str) -> None:
    """A window's notes would tell it of what it does not see."""
    from google.adk.agents import LlmAgent, ParallelAgent
    from google.adk.workflow import Workflow
    from google.genai import types

    def agent_of(model_of: Any) -> Any:
        def agent(name: str, **options: Any) -> Any:
            return LlmAgent(name=name, description="looks", model=model_of(name), tools=[look], **options)

        if kind == "parallel":
            return ParallelAgent(name="both", sub_agents=[agent("left"), agent("right")])
        if kind == "none":
            return agent("left", include_contents="none")
        if kind == "node":
            return Workflow(
                name="flow", edges=[("START", agent("left", mode="single_turn", include_contents="default"))]
            )
        return LlmAgent(name="desk", model=model_of("desk"), sub_agents=[agent("left", mode=kind)])

    def reply(name: str, number: int) -> Any:
        if name == "desk":
            return [part_of("left", request="look") if number == 1 else types.Part(text="done")]
        last = part_of("finish_task", result="done") if kind == "task" else types.Part(text="done")
        return [part_of("look", page=number) if number <= 6 else last]

    plain, sent = (asyncio.run(requests_of(harness, agent_of, reply, budget)) for budget in (None, 5_000))
    # Replies of agents that run at once come in any order.
    assert sorted(map(str, sent)) == sorted(map(str, plain)) and len(str(plain)) > 20_000


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("mode", ["single_turn", "task"])
def test_an_agent_that_another_one_has_worked_for_is_still_sent_windows(harness: Harness, mode: str) -> None:
    from google.adk.agents import LlmAgent
    from google.genai import types

    def agent_of(model_of: Any) -> Any:
        left = LlmAgent(name="left", description="looks", model=model_of("left"), mode=mode)
        return LlmAgent(name="desk", model=model_of("desk"), tools=[look], sub_agents=[left])

    def reply(name: str, number: int) -> Any:
        if name == "left":
            return [part_of("finish_task", result="done")] if mode == "task" else [types.Part(text="done")]
        return (
            [part_of("left", request="a")] if number == 1 else [part_of("look", page=number) if number < 16 else "ok"]
        )

    def requests(budget: int | None) -> list[Any]:
        sent = asyncio.run(requests_of(harness, agent_of, lambda *asked: parts(reply(*asked)), budget))
        return [contents for name, contents in sent if name == "desk"]

    def parts(said: list[Any]) -> list[Any]:
        return [types.Part(text=part) if isinstance(part, str) else part for part in said]

    plain, windows = requests(None), requests(5_000)
    assert len(windows) == len(plain) and windows[:3] == plain[:3], "what fits is sent as ADK sends it"
    assert len(str(windows[-2])) < len(str(plain[-2])) * 0.6


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_request_that_another_plugin_has_cut_is_still_within_the_budget(harness: Harness) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai import types

    class Cutting(BasePlugin):
        async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
            if len(llm_request.contents) > 20:
                del llm_request.contents[1:3]

    def agent_of(model_of: Any) -> Any:
        return LlmAgent(name="desk", model=model_of("desk"), tools=[look])

    def reply(name: str, number: int) -> Any:
        return [part_of("look", page=number) if number < 16 else types.Part(text="ok")]

    plain, windows = (
        asyncio.run(requests_of(harness, agent_of, reply, None)),
        asyncio.run(requests_of(harness, agent_of, reply, 5_000, Cutting(name="cutting"))),
    )
    assert len(windows) == len(plain) and len(str(windows[-1])) < len(str(plain[-1])) * 0.6


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_code_that_reads_files_does_not_end_the_windows(harness: Harness) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.code_executors.base_code_executor import BaseCodeExecutor
    from google.adk.code_executors.code_execution_utils import CodeExecutionResult

    class Executor(BaseCodeExecutor):
        def execute_code(self, invocation_context: Any, code_execution_input: Any) -> Any:
            return CodeExecutionResult(stdout="word " * 800)

    executor = Executor(optimize_data_file=True)

    def agent_of(model_of: Any) -> Any:
        return LlmAgent(name="desk", model=model_of("desk"), tools=[look], code_executor=executor)

    def run(budget: int | None) -> list[Any]:
        return asyncio.run(requests_of(harness, agent_of, partial(desk_says, "code"), budget))

    assert len(str(run(5_000)[-1])) < len(str(run(None)[-1])) * 0.6


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_run_that_loads_the_newest_events_alone_is_sent_the_window(harness: Harness) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig
    from google.adk.sessions.base_session_service import GetSessionConfig
    from google.genai import types

    def agent_of(model_of: Any) -> Any:
        return LlmAgent(name="desk", model=model_of("desk"))

    config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=1))
    reply = lambda name, number: [types.Part(text="ok")]  # noqa: E731
    (_, first), (_, second) = asyncio.run(requests_of(harness, agent_of, reply, 100_000, run_config=config))
    texts = [content["parts"][0]["text"] for content in second]
    assert texts == ["the first question", "ok", "the second question"] and len(first) == 1
