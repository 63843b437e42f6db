"""Every small fault that can be put into a valid list of messages, and the check that a linter sees each of them.

And what the tests of all rules share: any JSON at all, pointers that lead somewhere, work that grows with the input.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from turnlog.linter.rules import Rule
from turnlog.linter.rules import lint as violations_of

Json = dict[str, Any]
Path = tuple[str | int, ...]
Mutant = tuple[str, list[Any]]

WRONG: dict[type, tuple[object, ...]] = {
    str: (None, 7, [], {}, ""),
    bool: (None, 7, "x", []),
    int: (None, "x", []),
    list: (None, 7, "", {}, ["x"], [None]),
    dict: (None, 7, "x", []),
}
"""Type of a value -> what is put in its place."""


def mutants(
    history: list[Any], *, ids: set[str], opaque: Callable[[Path], bool] = lambda path: False
) -> Iterator[Mutant]:
    """Each mutant with a name that tells the place and the fault; ``ids`` are the keys that hold an id.

    What is below a path that is ``opaque`` is free (the arguments of a call), and so is left as it is.
    """
    known = sorted({str(value) for path, value in places(history, opaque) if path and path[-1] in ids})
    for path, value in places(history, opaque):
        where = ".".join(map(str, path))
        if path:
            if isinstance(path[-1], str):
                yield f"remove {where}", without(history, path)
            for wrong in WRONG.get(type(value), ()):
                if wrong != value:
                    yield f"set {where} {wrong!r}", replaced(history, path, wrong)
            if isinstance(value, str) and path[-1] in {"type", "role", "status", "media_type", "format"}:
                yield f"rename {where}", replaced(history, path, "renamed")
            if path[-1] in ids:
                for other in ["renamed", "no/id", "x" * 300, *known]:
                    if other != value:
                        yield f"rename {where} {other[:12]}", replaced(history, path, other)
        if isinstance(value, dict):
            yield f"add to {where}", replaced(history, (*path, "x_unknown"), 1)
        if isinstance(value, list):
            yield from of_list(history, path, value)


def of_list(history: list[Any], path: Path, items: list[Any]) -> Iterator[Mutant]:
    where = ".".join(map(str, path))
    for index, item in enumerate(items):
        place = f"{where}.{index}".strip(".")
        yield f"drop {place}", replaced(history, path, items[:index] + items[index + 1 :])
        yield f"duplicate {place}", replaced(history, path, [*items[:index], item, *items[index:]])
        if index + 1 < len(items):
            swapped = [*items[:index], items[index + 1], item, *items[index + 2 :]]
            yield f"swap {place}", replaced(history, path, swapped)


def places(value: Any, opaque: Callable[[Path], bool], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, value
    if opaque(path):
        return
    steps: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from places(inner, opaque, (*path, step))


def replaced(history: list[Any], path: Path, value: Any) -> list[Any]:
    if not path:
        return copy.deepcopy(value)
    mutant = copy.deepcopy(history)
    place: Any = mutant
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = copy.deepcopy(value)
    return mutant


def without(history: list[Any], path: Path) -> list[Any]:
    mutant = copy.deepcopy(history)
    place: Any = mutant
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return mutant


@dataclass(frozen=True)
class Cases:
    """Valid histories of one format, what is done to them, and which of the mutants are valid too.

    ``legal``: history -> pattern of a mutant's name -> reason; ``counts``: history -> number of mutants, so that none is
    forgotten.
    """

    format: str
    histories: Mapping[str, list[Any]]
    legal: Mapping[str, Mapping[str, str]]
    counts: Mapping[str, int]
    make: Callable[[list[Any]], Iterator[Mutant]]

    def mutants(self, name: str) -> list[Mutant]:
        return list(self.make(self.histories[name]))

    def judge(self, name: str, problems_of: Callable[[object], object] | None = None) -> None:
        """The mutants that pass are those that are valid. ``problems_of`` is falsy for what passes; the linter's, if not given."""
        result = self.mutants(name)
        assert unseen(result, problems_of or self.violations, self.legal[name]) == (set(), set())
        assert unused(result, self.legal[name]) == []
        assert len(dict(result)) == len(result) == self.counts[name]

    def violations(self, messages: object) -> object:
        return violations_of(messages, format=self.format)


def unseen(
    found: list[Mutant], lint: Callable[[object], object], legal: Mapping[str, str]
) -> tuple[set[str], set[str]]:
    """The mutants that pass and are not ``legal``, and the legal ones that do not pass; ``legal``: pattern -> reason."""
    pattern = re.compile("|".join(f"(?:{item})" for item in legal) if legal else r"(?!)")
    passed = {name for name, mutant in found if not lint(mutant)}
    named = {name for name, _ in found if pattern.fullmatch(name)}
    return passed - named, named - passed


def unused(found: list[Mutant], legal: Mapping[str, str]) -> list[str]:
    """The patterns of ``legal`` that no mutant has."""
    return [item for item in legal if not any(re.fullmatch(item, name) for name, _ in found)]


def steps_of(lint: Callable[[object], object], messages: object) -> int:
    """How many lines of the linter are gone through: its work, whatever the machine."""
    steps = 0

    def count(frame: Any, event: str, arg: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return count if "/turnlog/linter/" in frame.f_code.co_filename.replace("\\", "/") else None

    before = sys.gettrace()
    sys.settrace(count)
    try:
        lint(messages)
    finally:
        sys.settrace(before)
    return steps


def assert_linear(lint: Callable[[object], object], build: Callable[[int], object]) -> None:
    """Four times the input, hardly more than four times the work."""
    assert steps_of(lint, build(200)) < 4.2 * steps_of(lint, build(50))


def assert_told(rule: Rule) -> None:
    """A rule says what the provider answers, what to do, and where that is written."""
    assert rule.answer
    assert rule.fix
    assert rule.source.startswith("https://")


# ------------------------------------------------------------ strangers' input

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def near_values(words: st.SearchStrategy[str], keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """JSON of a format's own words and keys, in no order that makes sense."""
    return st.recursive(
        words | scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=10,
    )


def assert_violations(messages: object, *, format: str, rules: Collection[str]) -> None:
    """Whatever the input is, there are violations of known rules with a pointer into it, and no exception."""
    for item in violations_of(messages, format=format):
        assert item.rule in rules
        assert item.pointer == "/messages" or item.pointer.startswith("/messages/")
        assert item.message


def assert_pointers_lead(messages: list[Any], *, format: str) -> None:
    """Each pointer leads to the fault or to where something lacks."""
    for item in violations_of(messages, format=format):
        *steps, last = item.pointer.split("/")[2:]
        place: Any = messages
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        assert isinstance(place, dict) or 0 <= int(last) < len(place)
