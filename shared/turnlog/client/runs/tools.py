"""Calling a user's functions for a model: whatever goes wrong is a result that the model reads."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from turnlog.client.runs.outcomes import Call
from turnlog.domain.values import dataclass

Handler = Callable[..., Any]
MAX_ERROR_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Result:
    """``meta`` is what is kept beside it."""

    call: Call
    text: str
    is_error: bool = False
    meta: Mapping[str, Any] | None = None


class NotExecutedError(Exception):
    """The call can't be made. Its text is for the model."""


def prepared(handler: Handler | None, call: Call, names: list[str]) -> Callable[[], Any]:
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
