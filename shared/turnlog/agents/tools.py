"""Call a user's functions for a model. An error becomes a result that the model reads."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.sessions.context_models import WindowAnswer


@lazy_dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call of the model. ``arguments`` is its JSON text, ``ref`` its reference in the log."""

    ref: str
    id: str
    name: str
    arguments: str


@lazy_dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    ``status``: ``final`` (the model has answered), ``pending`` (a call waits for a decision), ``max_iterations`` (the limit of
    model calls was reached), ``idle`` (there was nothing to answer). ``messages`` are the newest reply in the run's format, and
    ``text`` is its text. ``iterations`` counts the model calls of this run, earlier processes included. ``pending`` is the
    action that waits.
    """

    status: Literal["final", "pending", "max_iterations", "idle"]
    run_id: str
    iterations: int
    messages: tuple[JsonObject, ...] = ()
    text: str = ""
    finish_reason: str | None = None
    pending: Mapping[str, Any] | None = None


Handler = Callable[..., Any]
MAX_ERROR_CHARS = 2_000


@lazy_dataclass(frozen=True, slots=True)
class ExecutedCall:
    """The result of a tool call. ``meta`` is metadata for its message."""

    call: RequestedCall
    text: str
    is_error: bool = False
    meta: Mapping[str, Any] | None = None


class NotExecutedError(Exception):
    """Raised when a call can't be executed. Its text is for the model."""


def prepared(handler: Handler | None, call: RequestedCall, names: list[str]) -> Callable[[], Any]:
    """Return the handler with the call's arguments bound. Raises `NotExecutedError` for an unknown tool or arguments that do
    not fit.
    """
    if handler is None:
        known = ", ".join(names) if names else "none"
        raise NotExecutedError(f"There is no tool {call.name[:64]!r}. Tools: {known}.")
    try:
        arguments = json.loads(call.arguments) if call.arguments.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise NotExecutedError("The arguments are not a JSON object.")
    try:
        inspect.signature(handler).bind(**arguments)
    except TypeError as error:
        raise NotExecutedError(f"The arguments do not fit: {error}.") from error
    except ValueError:
        pass  # a built-in function without a signature
    return lambda: handler(**arguments)


def text_of(value: object) -> str:
    """Return a result as text for the model: a text as it is, None as an empty text, other values as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    dump = getattr(value, "model_dump", None)
    try:
        return json.dumps(dump(mode="json") if callable(dump) else value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def error_text(error: BaseException) -> str:
    """Return an error as text for the model, cut to `MAX_ERROR_CHARS`."""
    return f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]


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
