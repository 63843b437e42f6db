"""Calling a user's functions for a model: whatever goes wrong is a result that the model reads."""

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
    """A tool call of the model. ``arguments`` is its JSON text, ``ref`` the log's name of it."""

    ref: str
    id: str
    name: str
    arguments: str


@lazy_dataclass(frozen=True, slots=True)
class RunResult:
    """``status``: ``final`` (the model has answered), ``pending`` (a call waits for a decision), ``max_iterations`` (another call
    of the model was refused), ``idle`` (there was nothing to answer).

    ``messages`` are the newest reply, in the run's format, and ``text`` what it says. ``iterations`` counts the model calls of this
    run, earlier processes included. ``pending`` is the action that waits.
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
class Result:
    """``meta`` is what is kept beside it."""

    call: RequestedCall
    text: str
    is_error: bool = False
    meta: Mapping[str, Any] | None = None


class NotExecutedError(Exception):
    """The call can't be made. Its text is for the model."""


def prepared(handler: Handler | None, call: RequestedCall, names: list[str]) -> Callable[[], Any]:
    """The function, with the call's arguments; `NotExecutedError` for one that there is not, or arguments that it does not take."""
    if handler is None:
        known = ", ".join(names) if names else "none"
        raise NotExecutedError(f"There is no tool {call.name[:64]!r}. Tools: {known}.")
    try:
        given = json.loads(call.arguments) if call.arguments.strip() else {}
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise NotExecutedError("The arguments are not a JSON object.")
    try:
        inspect.signature(handler).bind(**given)
    except TypeError as error:
        raise NotExecutedError(f"The arguments do not fit: {error}.") from error
    except ValueError:
        pass  # built in, and tells no signature
    return lambda: handler(**given)


def text_of(value: object) -> str:
    """A result as a model reads it: a text as it is, nothing as nothing, and all else as JSON."""
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
    return f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]


class Hooks:
    """Override what you need; several are asked in order. What one raises ends the run: what was appended before stays.

    In an `AsyncRun` any of them may be ``async``.
    """

    def before_model(self, window: WindowAnswer) -> Any:
        """The window to send instead; None: this one."""

    def on_event(self, event: Any) -> Any:
        """An event of a model that streams, as it was given."""

    def after_model(self, messages: Sequence[Mapping[str, Any]]) -> Any:
        """The reply to append instead, as a list of messages; None: this one."""

    def before_tool(self, call: RequestedCall) -> Any:
        """What the call answers without its handler being asked; None: ask it."""

    def after_tool(self, call: RequestedCall, result: str, is_error: bool) -> Any:
        """The result to append instead, a text; None: this one."""
