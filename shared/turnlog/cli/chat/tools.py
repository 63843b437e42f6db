"""A user's functions as tools: their schemas for the model, and their execution."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, validate_call

from turnlog.agents import Hooks, RequestedCall
from turnlog.agents.streams import accumulator, as_mapping
from turnlog.cli.screen import ChatScreen, one_line
from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject
from turnlog.providers.registry import codec_of
from turnlog.sessions.context_models import WindowAnswer

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Tools:
    """Functions as tools. ``functions`` validate their arguments; ``schemas`` are in OpenAI's chat format."""

    functions: Mapping[str, Function]
    schemas: Sequence[JsonObject]


def tools_of(places: Sequence[str]) -> Tools:
    """Load the functions at places ``module:name`` or ``file.py:name``; the name may be that of a list of functions.

    Raises `InvalidInputError` for a missing name, a value that is no function, or arguments without a JSON Schema.
    """
    functions = [function for place in places for function in _functions(place)]
    names = [function.__name__ for function in functions]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _wrong(f"two tools are called {twice!r}")
    checked = {name: validate_call(function) for name, function in zip(names, functions, strict=True)}
    return Tools(checked, [_schema(function) for function in functions])


def _functions(place: str) -> Iterator[Function]:
    where, colon, name = place.rpartition(":")
    if not colon or not name.isidentifier():
        raise _wrong(f"{place!r} is not MODULE:NAME or FILE.py:NAME")
    module = _module(where)
    value = getattr(module, name, None)
    several = list(value.values()) if isinstance(value, Mapping) else value
    for function in several if isinstance(several, list | tuple) else [several]:
        if not inspect.isfunction(function):
            raise _wrong(f"{name!r} of {where!r} is no function" if value is not None else f"{where!r} has no {name!r}")
        if inspect.iscoroutinefunction(function):
            raise _wrong(f"{function.__name__!r} is async: a chat's tools are plain functions")
        yield function


def _module(where: str) -> ModuleType:
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(f"turnlog_chat_{Path(where).stem}", where)
            if spec is None or spec.loader is None:
                raise _wrong(f"{where!r} can't be imported")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # annotations that are strings are resolved there
            spec.loader.exec_module(module)
            return module
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(where)
    except (ImportError, OSError, SyntaxError, ValueError) as error:
        raise _wrong(f"{where!r} can't be imported: {error}") from error


def _schema(function: Function) -> JsonObject:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(function)  # type: ignore[arg-type] # pydantic's reading of a signature
        parameters: JsonObject = adapter.json_schema()
    except (PydanticUserError, NameError) as error:
        raise _wrong(f"the arguments of {function.__name__!r} have no JSON Schema: {str(error)[:200]}") from error
    if parameters.get("type") != "object":
        raise _wrong(f"the arguments of {function.__name__!r} must be given by name")
    description: JsonObject = {
        "name": function.__name__,
        "description": inspect.getdoc(function) or "",
        "parameters": parameters,
    }
    return {"type": "function", "function": description}


def _wrong(detail: str) -> InvalidInputError:
    return InvalidInputError(f"--tools: {detail}", code="bad_tool")


class RunWatch(Hooks):
    """Shows a run on the screen. ``window`` is that of the newest model call."""

    def __init__(self, format: str, screen: ChatScreen) -> None:
        self.window: WindowAnswer | None = None
        self._format = format
        self._screen = screen
        self._reply = accumulator(format)
        self._shown = 0

    def before_model(self, window: WindowAnswer) -> None:
        self.window = window
        self._reply, self._shown = accumulator(self._format), 0

    def on_event(self, event: Any) -> None:
        self._reply.add(as_mapping(event))
        text = self._reply.text
        self._screen.write_reply(text[self._shown :])
        self._shown = len(text)

    def after_model(self, messages: Sequence[Mapping[str, Any]]) -> None:
        if not self._shown:
            self._screen.write_reply(
                "\n".join(codec_of(self._format).parse(dict(message)).text for message in messages)
            )
        self._screen.end_line()

    def before_tool(self, call: RequestedCall) -> None:
        self._screen.note(f"→ {call.name}({one_line(call.arguments, 300)})", "magenta")

    def after_tool(self, call: RequestedCall, result: str, is_error: bool) -> None:
        self._screen.note(f"{'✗' if is_error else '←'} {one_line(result, 300)}", "red" if is_error else "dim")
