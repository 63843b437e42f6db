"""Spans and metrics for OpenTelemetry, by its conventions for generative AI.

Off until `turn_on`: before that, nothing of OpenTelemetry is imported and `span` does nothing. The setting
``TURNLOG_TELEMETRY=opentelemetry`` turns it on for an engine, in Lambda too. Spans and metrics have ids, names, counts and error
codes, never contents of messages, arguments or results.

Conventions: https://github.com/open-telemetry/semantic-conventions-genai/tree/main/docs/gen-ai.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from turnlog.core.errors import InvalidInputError, TurnlogError

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter
    from opentelemetry.trace import Tracer

Attributes: TypeAlias = Mapping[str, Any]
Note: TypeAlias = Callable[[Attributes], None]
"""Adds attributes to a span; those that are None are left out."""
CONVERSATION, OPERATION, MODEL, PROVIDER = (
    "gen_ai.conversation.id",
    "gen_ai.operation.name",
    "gen_ai.request.model",
    "gen_ai.provider.name",
)
AGENT = "gen_ai.agent.name"
INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
PROVIDERS = {
    "openai_chat": "openai",
    "openai_responses": "openai",
    "anthropic": "anthropic",
    "bedrock_converse": "aws.bedrock",
}
"""The provider of each format, as the conventions name it."""
_OF_METRICS = frozenset(
    {OPERATION, MODEL, PROVIDER, AGENT, "gen_ai.tool.name", "gen_ai.tool.type", "turnlog.job.kind", "error.type"}
)
"""Attributes of a span that its duration has too. Ids would make a series of each session."""
_OPERATION_SECONDS = tuple(0.001 * 2**step for step in range(15))
_CALL_SECONDS = tuple(0.01 * 2**step for step in range(14))
_AGENT_SECONDS = tuple(0.1 * 2**step for step in range(13))
_TOKENS = tuple(4**step for step in range(14))
"""Bounds of the histograms' buckets: ours for operations, for all others those of the conventions."""
_active: Telemetry | None = None


def turn_on() -> None:
    """Record spans and metrics of this process with the tracer and meter providers that the program has set.

    Raises `InvalidInputError` where the extra `otel` is missing.
    """
    global _active  # noqa: PLW0603 - OpenTelemetry's providers belong to the process too
    if _active is not None:
        return
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        message = "telemetry needs OpenTelemetry's API: pip install 'turnlog[otel]'"
        raise InvalidInputError(message, code="extra_missing") from error
    from turnlog import __version__

    _active = Telemetry(trace.get_tracer("turnlog", __version__), metrics.get_meter("turnlog", __version__))


def span(name: str, attributes: Attributes) -> AbstractContextManager[Note]:
    """Return a context manager that records a span and its duration, and yields a function that adds attributes.

    An exception marks the span as failed with its code, never its text.
    """
    return _active.span(name, attributes) if _active is not None else _OFF


def traced(path: str, use_case: Any) -> Any:
    """Return a use case that records its calls, or the use case itself where telemetry is off or does not record it.

    ``path`` is the class's place below `turnlog`.
    """
    if _active is None or path not in _CALLS:
        return use_case
    return _Traced(use_case, _CALLS[path])


class Telemetry:
    """The instruments of one process."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._durations = {
            kind: meter.create_histogram(name, unit="s", explicit_bucket_boundaries_advisory=bounds)
            for kind, name, bounds in (
                ("turnlog", "turnlog.operation.duration", _OPERATION_SECONDS),
                ("chat", "gen_ai.client.operation.duration", _CALL_SECONDS),
                ("execute_tool", "gen_ai.execute_tool.duration", _CALL_SECONDS),
                ("invoke_agent", "gen_ai.invoke_agent.duration", _AGENT_SECONDS),
            )
        }
        self._usage = _tokens(meter, "gen_ai.client.token.usage", "Tokens that a provider has reported")
        self._window = _tokens(meter, "turnlog.window.tokens", "Tokens of windows")
        self._stable = _tokens(
            meter, "turnlog.window.stable_tokens", "Tokens of windows that a prompt cache may still have"
        )

    @contextmanager
    def span(self, name: str, attributes: Attributes) -> Iterator[Note]:
        """Record a span with its duration. Yields a function that adds attributes."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        recorded = _without_none(attributes)
        is_ours = name.startswith("turnlog.")
        operation = recorded.get(OPERATION, "turnlog")
        kind = SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL
        begun = time.perf_counter()
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=recorded, record_exception=False, set_status_on_exception=False
        ) as current:

            def note(more: Attributes) -> None:
                recorded.update(_without_none(more))
                current.set_attributes(_without_none(more))

            try:
                yield note
                if is_ours:  # a run's reply is counted when it is appended
                    self._count_tokens(recorded)
            except BaseException as error:
                code = error.error_code if isinstance(error, TurnlogError) else type(error).__name__
                note({"error.type": code})
                current.set_status(Status(StatusCode.ERROR))
                raise
            finally:
                named = {"turnlog.operation": name.removeprefix("turnlog.")} if is_ours else {}
                of_metrics = {key: value for key, value in recorded.items() if key in _OF_METRICS}
                duration = self._durations.get(operation, self._durations["turnlog"])
                duration.record(time.perf_counter() - begun, {**named, **of_metrics})

    def _count_tokens(self, attributes: Attributes) -> None:
        """Record the tokens among a span's attributes."""
        model, provider = (_without_none({name: attributes.get(name)}) for name in (MODEL, PROVIDER))
        for name, kind in ((INPUT, "input"), (OUTPUT, "output")):
            if attributes.get(name) is not None:
                self._usage.record(
                    attributes[name], {**model, **provider, OPERATION: "chat", "gen_ai.token.type": kind}
                )
        for name, histogram in (
            ("turnlog.window.tokens", self._window),
            ("turnlog.window.stable_tokens", self._stable),
        ):
            if attributes.get(name) is not None:
                histogram.record(attributes[name], model)


class _Traced:
    """A use case whose calls are recorded. ``spans`` are those of its methods, by name."""

    def __init__(self, use_case: Any, spans: Mapping[str, _CallSpan]) -> None:
        self._use_case = use_case
        self._spans = spans

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._recorded("__call__", arguments, options)

    def __getattr__(self, name: str) -> Any:
        if name in self._spans:
            return lambda *arguments, **options: self._recorded(name, arguments, options)
        return getattr(self._use_case, name)

    def _recorded(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        call_span = self._spans[method]
        with span(call_span.name, call_span.of_arguments(*arguments)) as note:
            answer = getattr(self._use_case, method)(*arguments, **options)
            note(call_span.of_answer(answer))
            return answer


def _tokens(meter: Meter, name: str, description: str) -> Histogram:
    return meter.create_histogram(
        name, unit="{token}", description=description, explicit_bucket_boundaries_advisory=_TOKENS
    )


def _without_none(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


class _CallSpan(NamedTuple):
    """The span of a call: its name, and what returns its attributes from the call's arguments and from its answer."""

    name: str
    of_arguments: Callable[..., Attributes]
    of_answer: Callable[[Any], Attributes]


def _append_arguments(owner: object, session_id: str, body: Any) -> Attributes:
    usage = body.usage
    return {
        CONVERSATION: session_id,
        PROVIDER: PROVIDERS.get(body.format),
        "turnlog.append.messages": len(body.messages),
        INPUT: usage.input_tokens if usage is not None else None,
        OUTPUT: usage.output_tokens if usage is not None else None,
    }


def _append_answer(answer: Any) -> Attributes:
    return {
        "turnlog.head": answer.head,
        "turnlog.loop": answer.loop,
        "turnlog.append.tokens": answer.tokens,
        "turnlog.append.warnings": sorted({warning.code for warning in answer.warnings}) or None,
    }


def _context_arguments(owner: object, session_id: str, body: Any) -> Attributes:
    return {CONVERSATION: session_id, **_window_arguments(body)}


def _window_arguments(body: Any) -> Attributes:
    policy = body.policy if isinstance(body.policy, str) else None
    return {MODEL: body.model, "turnlog.window.format": body.format, "turnlog.window.policy": policy}


def _window_answer(answer: Any) -> Attributes:
    return {
        "turnlog.head": answer.head,
        "turnlog.window.tokens": answer.tokens,
        "turnlog.window.budget": answer.manifest.budget.tokens,
        "turnlog.window.messages": len(answer.messages),
        "turnlog.window.stable_tokens": answer.prefix.stable_tokens,
        "turnlog.window.break_reason": answer.prefix.reason,
    }


def _summary_answer(answer: Any) -> Attributes:
    """Return the attributes of a summary's answer, of the job that was started for it, or of a part of that job."""
    fields = answer if isinstance(answer, Mapping) else answer.model_dump() if hasattr(answer, "model_dump") else {}
    summary = fields.get("summary") or {}
    names = ("tokens", "source_tokens", "messages", "summariser")
    return {
        "turnlog.summary.status": fields.get("status"),
        **{f"turnlog.summary.{name}": summary.get(name) for name in names},
    }


def _job_outcome(outcome: Any) -> Attributes:
    return {
        "turnlog.job.id": outcome.job_id,
        "turnlog.job.kind": outcome.kind,
        "turnlog.job.status": outcome.status,
        "error.type": outcome.code or None,
    }


_SUMMARY = _CallSpan("turnlog.summary", lambda _owner, session_id, *_: {CONVERSATION: session_id}, _summary_answer)
_JOB = _CallSpan("turnlog.job", lambda *_: {}, _job_outcome)  # its outcome says which job it was
_CALLS: Mapping[str, Mapping[str, _CallSpan]] = {
    "sessions.append.AppendToSession": {"__call__": _CallSpan("turnlog.append", _append_arguments, _append_answer)},
    "sessions.context.BuildContexts": {"__call__": _CallSpan("turnlog.window", _context_arguments, _window_answer)},
    "sessions.context.BuildWindows": {"__call__": _CallSpan("turnlog.window", _window_arguments, _window_answer)},
    "summaries.compress.CompressSessions": {"__call__": _SUMMARY, "run": _SUMMARY},
    "jobs.worker.RunJob": {"__call__": _JOB, "run_now": _JOB},
}
"""The spans of use cases, by class and method."""


_OFF: AbstractContextManager[Note] = nullcontext(lambda attributes: None)
