"""Spans and metrics of OpenTelemetry, by the SDK's own in-memory exporters: what is recorded, what never is, what off costs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.conftest import Harness
from turnlog import Turnlog, telemetry
from turnlog.agents import Run
from turnlog.app import make_application
from turnlog.client.in_process import InProcessBackend
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.identity import Owner
from turnlog.sessions.context_models import BuildContext
from turnlog.settings import Settings

SECRET = "pg9XSECRET"


class Recorded:
    """What the exporters have got."""

    def __init__(self, spans: InMemorySpanExporter, reader: InMemoryMetricReader) -> None:
        self._spans, self._reader = spans, reader

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [
            get_finished_span
            for get_finished_span in self._spans.get_finished_spans()
            if get_finished_span.name.startswith(name)
        ]

    def points(self, name: str) -> list[Any]:
        data = json.loads(self._reader.get_metrics_data().to_json())
        scopes = [scope for resource in data["resource_metrics"] for scope in resource["scope_metrics"]]
        return [
            point
            for scope in scopes
            for metric in scope["metrics"]
            if metric["name"] == name
            for point in metric["data"]["data_points"]
        ]

    def everything(self) -> str:
        data = self._reader.get_metrics_data()
        return " ".join(span.to_json() for span in self.spans()) + (data.to_json() if data is not None else "")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider(metric_readers=[reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", lambda *arguments: tracers.get_tracer(*arguments))
    monkeypatch.setattr(metrics, "get_meter", lambda *arguments: meters.get_meter(*arguments))
    monkeypatch.setattr(telemetry, "_active", None)
    telemetry.turn_on()
    yield Recorded(exporter, reader)
    meters.shutdown()


def model(window: Any) -> Any:
    has_result = any(message.get("role") == "tool" for message in window.messages)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": json.dumps({"q": SECRET})}}
    usage = {"prompt_tokens": 40, "completion_tokens": 7}
    message = (
        {"role": "assistant", "content": SECRET}
        if has_result
        else {"role": "assistant", "content": None, "tool_calls": [call]}
    )
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


def look(q: str) -> str:
    return f"{q} is here"


def test_a_run_is_a_tree_of_spans_without_contents(recorded: Recorded, harness: Harness) -> None:
    session = harness.log().sessions.create("talk", title=SECRET, system=SECRET)
    result = session.run(model=model, tools={"look": look}).send(f"find {SECRET}")
    assert result.status == "final"
    (run,) = recorded.spans("invoke_agent")
    attributes = dict(run.attributes or {})
    assert run.name == "invoke_agent main"
    assert attributes["gen_ai.operation.name"] == "invoke_agent" and attributes["gen_ai.conversation.id"] == "talk"
    assert (attributes["turnlog.run.status"], attributes["turnlog.run.iterations"]) == ("final", 2)
    below = [
        span for span in recorded.spans() if span.parent is not None and span.parent.span_id == run.context.span_id
    ]
    names = [item.name for item in below]
    assert names.count("chat") == 2 and names.count("execute_tool look") == 1
    assert names.count("turnlog.window") == 2 and names.count("turnlog.append") == 4
    (tool,) = recorded.spans("execute_tool")
    of_tool = {name: value for name, value in (tool.attributes or {}).items() if "tool." in name or "agent." in name}
    assert of_tool == {
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.agent.name": "main",
    }
    used = recorded.points("gen_ai.client.token.usage")
    assert {point["attributes"]["gen_ai.provider.name"] for point in used} == {"openai"}
    assert sum(point["sum"] for point in used) == 2 * 47
    chat = recorded.spans("chat")[0]
    assert (chat.attributes or {})["gen_ai.usage.input_tokens"] == 40 and chat.kind == trace.SpanKind.CLIENT
    assert SECRET not in recorded.everything()


def test_a_span_has_what_its_reply_tells_and_whether_its_tool_has_failed(recorded: Recorded, harness: Harness) -> None:
    session, other = (harness.log().sessions.create(name) for name in ("talk", "other"))
    session.run(model=model, tools={"look": lambda q: 1 // 0}).send("find")
    session.run(model=lambda window: {"role": "assistant", "content": "x"}).send("more")
    other.run(model=model, tools={"look": look}).send("find")
    names = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.response.finish_reasons", "error.type")
    values = [tuple((span.attributes or {}).get(name) for name in names) for span in recorded.spans("chat")]
    whole = (40, 7, ("stop",), None)
    assert values == [whole, whole, (None,) * 4, whole, whole]
    failed = [(span.attributes or {}).get("error.type") for span in recorded.spans("execute_tool")]
    assert failed == ["tool_error", None]


def test_an_asyncio_run_is_the_same_tree(recorded: Recorded, harness: Harness) -> None:
    async def answer(window: Any) -> Any:
        await asyncio.sleep(0)
        return model(window)

    session = harness.log().sessions.create("talk")
    assert asyncio.run(session.run_async(model=answer, tools={"look": look}).send("find")).status == "final"
    (run,) = recorded.spans("invoke_agent")
    assert {span.parent.span_id for span in recorded.spans("chat") if span.parent} == {run.context.span_id}


def test_windows_and_appends_have_their_tokens(recorded: Recorded, harness: Harness) -> None:
    session = harness.log().sessions.create("talk")
    session.append({"role": "user", "content": SECRET})
    window = session.context(policy="run_loops", budget=4_000, model="gpt-4o")
    session.append(
        {"role": "assistant", "content": "hi"}, window=window, usage={"input_tokens": 30, "output_tokens": 5}
    )
    (built,) = recorded.spans("turnlog.window")
    attributes = dict(built.attributes or {})
    assert attributes["turnlog.window.tokens"] == window.tokens and attributes["turnlog.window.budget"] == 4_000
    assert attributes["gen_ai.request.model"] == "gpt-4o" and attributes["turnlog.window.policy"] == "run_loops"
    usage = {
        point["attributes"]["gen_ai.token.type"]: point["sum"] for point in recorded.points("gen_ai.client.token.usage")
    }
    assert usage == {"input": 30, "output": 5}
    assert [point["sum"] for point in recorded.points("turnlog.window.tokens")] == [window.tokens]
    durations = {
        point["attributes"]["turnlog.operation"]: point["count"]
        for point in recorded.points("turnlog.operation.duration")
    }
    assert durations == {"append": 2, "window": 1}
    assert all("talk" not in json.dumps(point["attributes"]) for point in recorded.points("turnlog.operation.duration"))


def test_histograms_have_the_bounds_that_the_conventions_name(recorded: Recorded, harness: Harness) -> None:
    harness.log().sessions.create("talk").run(model=model, tools={"look": look}).send("find")
    for name, least, most in (
        ("gen_ai.client.token.usage", 1, 67_108_864),
        ("gen_ai.client.operation.duration", 0.01, 81.92),
        ("gen_ai.execute_tool.duration", 0.01, 81.92),
        ("gen_ai.invoke_agent.duration", 0.1, 409.6),
    ):
        bounds = recorded.points(name)[0]["explicit_bounds"]
        assert (bounds[0], bounds[-1]) == pytest.approx((least, most)), name


def test_summaries_and_jobs_are_recorded(recorded: Recorded, harness: Harness) -> None:
    session = harness.log().sessions.create("talk")
    for index in range(12):
        session.append(
            {"role": "user", "content": f"order {index} " * 60}, {"role": "assistant", "content": "noted " * 60}
        )
    session.compress(mode="sync")
    job = session.compress(mode="async", keep_loops=2)
    harness.app.run_job.run_now(Owner.of("acme", "ada"), job.job_id)
    summary, *_ = recorded.spans("turnlog.summary")
    attributes = dict(summary.attributes or {})
    assert attributes["turnlog.summary.status"] == "published" and attributes["turnlog.summary.tokens"] > 0
    (done,) = recorded.spans("turnlog.job")
    assert dict(done.attributes or {})["turnlog.job.kind"] == "compress"
    assert "error.type" not in (done.attributes or {}), "its presence says that the job failed"
    assert [
        span.name
        for span in recorded.spans("turnlog.summary")
        if span.parent and span.parent.span_id == done.context.span_id
    ] == ["turnlog.summary"]


def test_a_failure_has_its_code_and_never_its_text(recorded: Recorded, harness: Harness) -> None:
    session = harness.log().sessions.create("talk")
    with pytest.raises(NotFoundError):
        harness.app.build_context(Owner.of("acme", "ada"), "none", BuildContext())

    def broken(window: Any) -> Any:
        raise ValueError(SECRET)

    with pytest.raises(ValueError, match=SECRET):
        session.run(model=broken).send("go")
    failed = {
        span.name: dict(span.attributes or {})["error.type"] for span in recorded.spans() if not span.status.is_ok
    }
    assert failed == {"turnlog.window": "not_found", "chat": "ValueError", "invoke_agent main": "ValueError"}
    assert all(not span.events and span.status.description is None for span in recorded.spans())
    assert SECRET not in recorded.everything()


def test_a_setting_turns_it_on(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_active", None)
    app = make_application(Settings(engine="memory://", telemetry="opentelemetry"))
    Turnlog(InProcessBackend(app, Owner.of("acme", "ada"))).sessions.create("s").context()
    app.close()
    assert [span.name for span in recorded.spans()] == ["turnlog.window"]


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(InvalidInputError, match=r"turnlog\[otel\]"):
        telemetry.turn_on()


def test_off_imports_nothing_of_it_and_calls_go_straight(harness: Harness) -> None:
    code = (
        "import sys; from turnlog import Turnlog; log = Turnlog.open('memory://'); s = log.sessions.create('a'); "
        "s.append({'role': 'user', 'content': 'x'}); s.context(); "
        "print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
    from turnlog.sessions.append import AppendToSession

    assert type(harness.app.append_messages) is AppendToSession
    assert isinstance(Run, type)


def test_a_use_case_is_made_while_another_thread_imports_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "turnlog.telemetry", ModuleType("turnlog.telemetry")
    )  # nothing in it is defined yet
    with Turnlog.open("memory://") as log:
        assert log.sessions.create("s").info().head == 1
