"""A user's functions in a run: tools are called for the model, and what a model function returns becomes messages.

An error of a tool becomes a result that the model reads. A model function returns messages, a provider's complete answer, or
its stream.
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from pydantic import TypeAdapter, ValidationError

from turnlog.agents.graph_state.messages import to_graph_message
from turnlog.agents.streams import as_mapping, list_or_empty, mapping_or_empty, usage_of, with_stored_inputs
from turnlog.client import is_answer, is_model, python_json
from turnlog.core.errors import InvalidInputError, RunLostError
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Media
from turnlog.providers.blocks import RAW, string_of
from turnlog.sessions.context_models import WindowAnswer

if TYPE_CHECKING:
    from turnlog.agents.run_log import RunLog

Handler = Callable[..., Any]
RunStatus: TypeAlias = Literal["final", "pending", "max_iterations", "cancelled", "idle", "queued"]


@lazy_dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call of the model.

    ``arguments`` is its JSON text, ``ref`` its reference in the log. ``key`` is ``<session id>/<ref>``: the same however often the
    call is tried, and for no other call. Hand it on as the idempotency key of what the tool does. ``is_text``: ``arguments`` is
    any text, the only argument of a custom tool. ``is_cut``: the reply ended at a token limit, so arguments may be missing.
    ``is_redacted``: the arguments are gone.
    """

    ref: str
    id: str
    name: str
    arguments: str
    key: str = ""
    is_text: bool = False
    is_cut: bool = False
    is_redacted: bool = False


class Effect(Enum):
    """The finding of a tool's ``verify``, when it has no result to return.

    ``NONE``: the call had no effect, so it may be executed. ``UNKNOWN``: a person must decide.
    """

    NONE = "none"
    UNKNOWN = "unknown"


@lazy_dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model calls, and what to do about a call that had begun and has no result when its process ended.

    ``idempotent``: execute it again. ``verify``: ask this function of the `RequestedCall`; it returns the result that the call
    had, or an `Effect`. Without either a person decides: the run is ``pending``, with ``effect`` ``unknown``.
    """

    function: Callable[..., Any]
    idempotent: bool = False
    verify: Callable[[RequestedCall], Any] | None = None


@lazy_dataclass(frozen=True, slots=True)
class ExecutingCall:
    """A call that is executed, with its session, its agent and its run.

    ``children`` are child sessions in which no run of this process has worked, by id, with the function that reads the state;
    ``answered`` are session and agent of the runs within the call that are over.
    """

    call: RequestedCall
    session_id: str
    agent_id: str
    run: RunLog
    children: dict[str, Callable[[], Any]]
    answered: set[tuple[str, str]]


_CURRENT: ContextVar[ExecutingCall | None] = ContextVar("turnlog_executing_call", default=None)


def executing_call() -> ExecutingCall | None:
    """Return the call that is executed in this context, or None."""
    return _CURRENT.get()


def current_call() -> RequestedCall:
    """Return the call that the tool is executed for. Raises `InvalidInputError` outside of a tool of a run.

    A thread of the tool's own needs its context: ``contextvars.copy_context().run``.
    """
    executing = _CURRENT.get()
    if executing is None:
        raise InvalidInputError("child and current_call work in tools of a run, fork elsewhere", code="no_current_call")
    return executing.call


@contextmanager
def executing(call: ExecutingCall | None) -> Iterator[None]:
    """Let `current_call` return this call."""
    token = _CURRENT.set(call)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@lazy_dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    ``status``: ``final`` (the model has answered), ``pending`` (a call waits for a decision), ``max_iterations`` (the limit of
    model calls was reached), ``cancelled`` (by `Session.cancel_run`), ``idle`` (the run was over; the reply is its last one),
    ``queued`` (the messages wait for the run that has the session). ``messages`` are the newest reply in the run's format, and
    ``text`` is its text. ``iterations`` counts the model calls of this run, earlier processes included. ``pending`` is the
    action that waits. ``usage`` sums the token counts that the provider told, and the ``cost`` of replies, with those of runs
    within this one's calls, also where these ran in other processes.
    """

    status: RunStatus
    run_id: str
    iterations: int
    messages: tuple[JsonObject, ...] = ()
    text: str = ""
    finish_reason: str | None = None
    pending: Mapping[str, Any] | None = None
    usage: Mapping[str, float] | None = None


MAX_ERROR_CHARS = 2_000


@lazy_dataclass(frozen=True, slots=True)
class ExecutedCall:
    """The result of a tool call. ``meta`` is metadata for its message, ``media`` are images and files of the result."""

    call: RequestedCall
    text: str
    is_error: bool = False
    meta: Mapping[str, Any] | None = None
    media: tuple[Media, ...] = ()


class NotExecutedError(Exception):
    """Raised when a call can't be executed. Its text is for the model."""


def bind_call(handler: Handler | None, call: RequestedCall, names: list[str]) -> Callable[[], Any]:
    """Return the handler with the call's arguments. Raises `NotExecutedError` for an unknown tool, or arguments that do not fit."""
    if handler is None:
        known = ", ".join(names) if names else "none"
        raise NotExecutedError(f"There is no tool {call.name[:64]!r}. Tools: {known}.")
    try:
        arguments = {} if call.is_text or not call.arguments.strip() else json.loads(call.arguments)
        if isinstance(arguments, dict) and arguments.keys() == {RAW}:
            arguments = json.loads(arguments[RAW])  # what could not be stored as an object, such as a wide integer
    except (ValueError, TypeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise NotExecutedError("The arguments are not a JSON object.")
    texts = [call.arguments] if call.is_text else []
    try:
        inspect.signature(handler).bind(*texts, **arguments)
    except TypeError as error:
        raise NotExecutedError(f"The arguments do not fit: {error}.") from error
    except ValueError:
        pass  # a built-in function without a signature
    return partial(handler, *texts, **_with_models(handler, arguments))


def _with_models(handler: Handler, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, each built as the Pydantic model that the handler's annotation names, if it names one."""
    built = dict(arguments)
    try:
        parameters = inspect.signature(handler, eval_str=True).parameters
    except Exception:  # noqa: BLE001 - without a signature, or annotated with what only a type checker imports
        return built
    for name in arguments.keys() & parameters.keys():
        if _names_model(annotation := parameters[name].annotation):
            try:
                built[name] = TypeAdapter(annotation).validate_json(json.dumps(arguments[name]))
            except ValidationError as error:
                places = (".".join(map(str, (name, *fault["loc"]))) + f": {fault['msg']}" for fault in error.errors())
                text = f"The arguments do not fit: {'; '.join(places)}"
                raise NotExecutedError(text[:MAX_ERROR_CHARS]) from error
    return built


def _names_model(annotation: object) -> bool:
    return is_model(annotation) or any(map(_names_model, get_args(annotation)))


def text_of(value: object) -> str:
    """Return a result as text for the model: a text as it is, None as an empty text, other values as Pydantic's JSON.

    Bytes that are not UTF-8 are base64.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return python_json(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def error_text(error: BaseException) -> str:
    """Return an error as text for the model, cut to `MAX_ERROR_CHARS`."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the error of a tool, which may be of any class
        text = "an error without a text"
    return f"{type(error).__name__}: {text}"[:MAX_ERROR_CHARS]


class Hooks:
    """Base class for hooks of a run: override what you need; several hooks are called in order.

    An error of a hook ends the run; what was appended before stays. In an `AsyncRun` any of them may be ``async``.
    """

    def before_model(self, window: WindowAnswer) -> Any:
        """Return another window to send, or None to send this one."""

    def on_event(self, event: Any) -> Any:
        """Receive an event of a streaming model, as the provider's library gave it."""

    def after_model(self, messages: Sequence[Mapping[str, Any]]) -> Any:
        """Return another reply to append, as a list of messages, or None to append this one."""

    def before_tool(self, call: RequestedCall) -> Any:
        """Return a result for the call without calling its handler, or None to call it."""

    def after_tool(self, call: RequestedCall, result: str, is_error: bool) -> Any:
        """Return another result to append, a text, or None to append this one."""

    def on_lease_lost(self, error: RunLostError) -> Any:
        """Receive the error of a run whose session another run has taken over. It is raised next; nothing more is appended."""


@lazy_dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply: messages in the run's format, the provider's token counts, and its finish reason.

    ``usage`` has ``input_tokens`` and ``output_tokens``, or the provider's own counts. It may have a ``cost``, a number in your
    currency: a run sums it too.
    """

    messages: Sequence[Mapping[str, Any]]
    usage: Mapping[str, float] | None = None
    finish_reason: str | None = None


def is_stream(value: object) -> bool:
    """Return whether the value is a stream of events."""
    if isinstance(value, Reply | Mapping | Sequence) or hasattr(value, "model_dump"):
        return False
    return hasattr(value, "__iter__") or hasattr(value, "__aiter__")


def events_of(value: Any, format: str) -> Any:
    """Return the events of a stream. The answer of ConverseStream holds them under ``stream``."""
    if format == "bedrock_converse" and isinstance(value, Mapping) and "stream" in value:
        return value["stream"]
    return value


def reply_of(value: Any, format: str) -> Reply:
    """Convert a message, a list of messages, a `Reply`, or a provider's complete answer (its object or its JSON) to a `Reply`.

    Raises `InvalidInputError` for any other value.
    """
    if isinstance(value, Reply):
        messages = list(value.messages) if isinstance(value.messages, Iterator) else value.messages
        reply, usage = reply_of(messages, format), _counted(mapping_or_empty(value.usage), format)
        return Reply(reply.messages, usage or reply.usage, value.finish_reason or reply.finish_reason)
    values = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
    try:
        return given_messages(values, format).reply
    except InvalidInputError as error:
        if error.error_code != NOT_A_MESSAGE:
            raise
        kinds = "a message, messages, a Reply, its provider's answer or a stream (a manager's is what `with` gives)"
        detail = f"a model must return {kinds}, not {type(value).__name__}"
        raise InvalidInputError(detail, code="not_a_reply") from error


_TOO_LARGE = 2**63
"""JSON that others read has no larger integer."""


def _counted(usage: Mapping[str, Any], format: str) -> Mapping[str, float] | None:
    """Return the token counts and the cost of a reply, by Turnlog's names or the provider's; None without any."""
    counts: dict[str, float] = {**(usage_of(format, usage) or usage_of("openai_responses", usage) or {})}
    cost = usage.get("cost")
    return counts | ({"cost": cost} if isinstance(cost, int | float) and abs(cost) < _TOO_LARGE else {}) or None


def failure_of(value: Any, reply: Reply) -> str | None:
    """Return why a whole answer has failed, in its provider's words or empty; None for an answer that has not failed."""
    if isinstance(value, Reply | Sequence):
        return None
    text = string_of(mapping_or_empty(as_mapping(value).get("error")).get("message"))
    return text if reply.finish_reason == "failed" or (text and not reply.messages) else None


NOT_A_MESSAGE = "not_a_message"
NEEDS_ASYNC = "needs_async"
"""Code of the error that a run in a thread raises for an async function. No model can mend it, so no model reads it."""


@lazy_dataclass(frozen=True, slots=True)
class GivenMessages:
    """Messages as a caller gave them, converted to JSON: with their metadata, and their format if all have come from one answer."""

    reply: Reply
    metas: Sequence[Mapping[str, Any]]
    format: str | None


def given_messages(values: Sequence[object], format: str | None) -> GivenMessages:
    """Convert messages, objects of a provider's library, messages of LangChain and complete answers to messages.

    Raises `InvalidInputError`, code ``not_a_message``, for any other value.
    """
    converted = [_converted(value, index, format) for index, value in enumerate(values)]
    if len(converted) == 1:
        return converted[0]
    messages = [message for part in converted for message in part.reply.messages]
    metas = [meta for part in converted for meta in part.metas]
    usages = [part.reply.usage for part in converted if part.reply.usage is not None]
    formats = {part.format for part in converted}
    reply = Reply(messages, usages[0] if len(usages) == 1 else None)
    return GivenMessages(reply, metas, formats.pop() if len(formats) == 1 else None)


def _converted(value: object, index: int, format: str | None) -> GivenMessages:
    graph_message, problems = to_graph_message(value, "") if not isinstance(value, Mapping | Sequence) else (None, [])
    if graph_message is not None:
        return GivenMessages(Reply([graph_message.body]), [graph_message.meta], None)
    if isinstance(value, list | tuple):
        message = f"message {index} is a list: a message is an object. Pass a list's messages by append(*messages)"
        raise InvalidInputError(message, code=NOT_A_MESSAGE)
    try:
        fields = as_mapping(value)
    except TypeError as error:
        detail = f"message {index} is of type {type(value).__name__}: a message is an object with a role and content"
        raise InvalidInputError(detail, code=NOT_A_MESSAGE, problems=problems) from error
    # A gateway may add other fields to the answer of a known format, but no role.
    may_be_answer = is_answer(fields) or (format in _PARSERS and not fields.keys() & {"role", "call_id"})
    for name, parse in _PARSERS.items() if may_be_answer else ():
        reply = parse(fields) if format == name or format not in _PARSERS else None
        if reply is not None:
            meta = {"finish_reason": reply.finish_reason} if reply.finish_reason else {}
            return GivenMessages(reply, [meta] * len(reply.messages), name)
    if fields is not value:
        fields = _without_null_fields(fields)
    return GivenMessages(Reply([_plain_lists(fields)]), [{}], None)


def _without_null_fields(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message of an answer without its null fields, which a request refuses, except the content."""
    return {name: value for name, value in message.items() if value is not None or name == "content"}


def _plain_lists(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message whose lists, such as the content and the tool calls, hold JSON in place of a library's objects."""
    lists = {name: items for name, items in message.items() if isinstance(items, list) and any(map(is_model, items))}
    plain = {name: [as_mapping(item) if is_model(item) else item for item in items] for name, items in lists.items()}
    return {**message, **plain} if plain else message


def _chat(answer: Mapping[str, Any]) -> Reply | None:
    if "choices" not in answer:
        return None
    choices = list_or_empty(answer["choices"])
    if len(choices) > 1:
        detail = f"the answer has {len(choices)} choices, and a log takes one reply: append(answer.choices[0].message)"
        raise InvalidInputError(detail, code="several_choices")
    choice = mapping_or_empty(next(iter(choices), None))
    message = _without_null_fields(mapping_or_empty(choice.get("message")))
    usage = usage_of("openai_chat", answer.get("usage"))
    return Reply([message] if message else [], usage, choice.get("finish_reason"))


def _responses(answer: Mapping[str, Any]) -> Reply | None:
    if not isinstance(answer.get("output"), list) or answer.get("type") is not None:
        return None
    items = [dict(mapping_or_empty(item)) for item in answer["output"]]
    reason = mapping_or_empty(answer.get("incomplete_details")).get("reason") or answer.get("status")
    return Reply(items, usage_of("openai_responses", answer.get("usage")), reason)


def _anthropic(answer: Mapping[str, Any]) -> Reply | None:
    if answer.get("type") != "message":
        return None
    message = {"role": answer.get("role", "assistant"), "content": with_stored_inputs(answer.get("content", []))}
    return Reply([message], usage_of("anthropic", answer.get("usage")), answer.get("stop_reason"))


def _converse(answer: Mapping[str, Any]) -> Reply | None:
    if not isinstance(answer.get("output"), Mapping):
        return None
    message = cast("JsonObject", _with_base64(mapping_or_empty(answer["output"].get("message"))))
    if "content" in message:
        message = {**message, "content": cast("JsonValue", with_stored_inputs(message["content"]))}
    return Reply([message], usage_of("bedrock_converse", answer.get("usage")), answer.get("stopReason"))


def _with_base64(value: object) -> object:
    """Return a value of boto3 as JSON: bytes become base64, as in the answer that boto3 has parsed."""
    if isinstance(value, Mapping):
        return {name: _with_base64(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_base64(member) for member in value]
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


_PARSERS: Mapping[str, Callable[[Mapping[str, Any]], Reply | None]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "bedrock_converse": _converse,
}
