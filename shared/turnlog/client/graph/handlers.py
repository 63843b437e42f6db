"""What of a graph's state can be stored, and what can't: callbacks, handlers and other objects of the process.

Those are taken out, by the place where they stand, and put back when the state comes out of the log again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from turnlog.domain.errors import Problem

MAX_LEVELS = 24
"""Of JSON in a value: what stands around it in a session's state is within its limit then."""
Place: TypeAlias = tuple[str | int, ...]
Handlers: TypeAlias = dict[Place, Any]
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_OUT = object()


def storable(values: Mapping[str, Any]) -> tuple[dict[str, Any], Handlers, list[Problem]]:
    """The JSON of the values, what was taken out of them, and what of that is data that a restart loses."""
    handlers, problems = Handlers(), list[Problem]()
    found = {}
    for name, value in values.items():
        made = _taken(value, (name,), handlers, problems)
        if made is not _OUT:
            found[name] = made
    return found, handlers, problems


def put_back(values: dict[str, Any], handlers: Mapping[Place, Any]) -> dict[str, Any]:
    """The values with what was taken out, where the place is still there. Changes ``values``."""
    for place, value in handlers.items():
        holder: Any = values
        for step in place[:-1]:
            holder = _step(holder, step)
        last = place[-1]
        if isinstance(holder, dict):
            holder.setdefault(str(last), value)
        elif isinstance(holder, list) and isinstance(last, int) and last < len(holder) and holder[last] is None:
            holder[last] = value
    return values


def pointer_of(place: Place) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in place)


def _step(holder: Any, step: str | int) -> Any:
    if isinstance(holder, dict):
        return holder.get(str(step))
    return holder[step] if isinstance(holder, list) and isinstance(step, int) and step < len(holder) else None


def _taken(value: Any, place: Place, handlers: Handlers, problems: list[Problem]) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int) and _MIN_INT <= value <= _MAX_INT:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping | list | tuple) and len(place) <= MAX_LEVELS:
        if isinstance(value, Mapping):
            if all(isinstance(name, str) for name in value):
                inner = {name: _taken(one, (*place, name), handlers, problems) for name, one in value.items()}
                return {name: one for name, one in inner.items() if one is not _OUT}
        else:
            made = [_taken(one, (*place, at), handlers, problems) for at, one in enumerate(value)]
            return [None if one is _OUT else one for one in made]
    handlers[place] = value
    if not callable(value):
        message = f"a {type(value).__name__} is not JSON that we keep: it is put back, but a restart loses it"
        problems.append(Problem("not_stored", pointer_of(place), message))
    return _OUT
