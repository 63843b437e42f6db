"""The parser for the regular expressions of `turnlog.core.patterns`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from turnlog.core.lazy_dataclass import lazy_dataclass

MAX_DEPTH = 32
Test: TypeAlias = Callable[[str], bool]


class PatternError(ValueError):
    """A pattern outside the supported syntax. The message names the fault and its index, and quotes no text."""


@lazy_dataclass(frozen=True, slots=True)
class Character:
    """A character that passes a test. ``cost`` is the greatest number of comparisons in the test."""

    test: Test
    cost: int = 1


@lazy_dataclass(frozen=True, slots=True)
class Anchor:
    """An assertion about the place between two characters: ``start``, ``end``, ``word`` or ``no_word``."""

    kind: str


@lazy_dataclass(frozen=True, slots=True)
class Sequence:
    """Nodes that match one after the other."""

    nodes: tuple[Node, ...]


@lazy_dataclass(frozen=True, slots=True)
class Choice:
    """Nodes of which any may match."""

    nodes: tuple[Node, ...]


@lazy_dataclass(frozen=True, slots=True)
class Repeated:
    """A node that matches ``minimum`` to ``maximum`` times; without a limit when ``maximum`` is None."""

    node: Node
    minimum: int
    maximum: int | None


Node: TypeAlias = "Character | Anchor | Sequence | Choice | Repeated"

CLASSES: dict[str, Test] = {
    "d": str.isdecimal,
    "w": lambda c: c.isalnum() or c == "_",
    "s": str.isspace,
    "D": lambda c: not c.isdecimal(),
    "W": lambda c: not (c.isalnum() or c == "_"),
    "S": lambda c: not c.isspace(),
}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_ANCHORS = {"b": "word", "B": "no_word", "A": "start", "Z": "end"}
_BRACES = re.compile(r"\{(\d{0,4})(?:(,)(\d{0,4}))?\}")
_HEX = {"x": 2, "u": 4}


class Parser:
    """A recursive descent parser of a pattern. Raises `PatternError`."""

    def __init__(self, pattern: str) -> None:
        self.ignores_case = pattern.startswith("(?i)")
        self._text = pattern[4:] if self.ignores_case else pattern
        self._index = 0
        self._depth = 0

    def parse(self) -> Node:
        """Return the node of the whole pattern."""
        node = self._choice()
        if self._index < len(self._text):
            raise self._error("unbalanced )")
        return node

    def _error(self, message: str) -> PatternError:
        return PatternError(f"{message} at {self._index}")

    def _peek(self) -> str:
        return self._text[self._index : self._index + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise self._error("the pattern ends too early")
        self._index += 1
        return char

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error("groups are too deep")
        choices = [self._sequence()]
        while self._peek() == "|":
            self._index += 1
            choices.append(self._sequence())
        self._depth -= 1
        return choices[0] if len(choices) == 1 else Choice(tuple(choices))

    def _sequence(self) -> Node:
        nodes = list[Node]()
        while self._peek() not in ("", "|", ")"):
            nodes.append(self._repeated())
        return Sequence(tuple(nodes))

    def _repeated(self) -> Node:
        node = self._atom()
        limits = self._limits()
        if limits is None:
            return node
        if isinstance(node, Anchor):
            raise self._error("nothing to repeat")
        if self._peek() == "?":
            self._index += 1
        if self._peek() == "+" or self._limits() is not None:
            raise self._error("multiple repeat")
        return Repeated(node, *limits)

    def _limits(self) -> tuple[int, int | None] | None:
        char = self._peek()
        if char in ("*", "+", "?") and char:
            self._index += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        braces = _BRACES.match(self._text, self._index)
        if braces is None or not (braces[1] or braces[2]):
            return None
        self._index = braces.end()
        minimum = int(braces[1] or 0)
        maximum = minimum if not braces[2] else int(braces[3]) if braces[3] else None
        if maximum is not None and maximum < minimum:
            raise self._error("a repeat whose maximum is below its minimum")
        return minimum, maximum

    def _atom(self) -> Node:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._set()
        if char == ".":
            return Character(lambda c: c != "\n")
        if char in "^$":
            return Anchor("start" if char == "^" else "end")
        if char in "*+?":
            raise self._error("nothing to repeat")
        if char == "\\":
            return self._escape()
        return self._literal(char)

    def _group(self) -> Node:
        if self._peek() == "?":
            self._index += 1
            name = re.compile(r":|P<[A-Za-z_]\w*>").match(self._text, self._index)
            if name is None:
                raise self._error("only the groups (...), (?:...) and (?P<name>...) are supported")
            self._index = name.end()
        node = self._choice()
        if self._peek() != ")":
            raise self._error("a group is not closed")
        self._index += 1
        return node

    def _escape(self) -> Node:
        char = self._take()
        if char in CLASSES:
            return Character(CLASSES[char])
        if char in _ANCHORS:
            return Anchor(_ANCHORS[char])
        return self._literal(self._escaped(char))

    def _escaped(self, char: str) -> str:
        if char in _CONTROL:
            return _CONTROL[char]
        if char in _HEX:
            digits = self._text[self._index : self._index + _HEX[char]]
            if not re.fullmatch(f"[0-9a-fA-F]{{{_HEX[char]}}}", digits):
                raise self._error("hexadecimal digits are missing")
            self._index += len(digits)
            return chr(int(digits, 16))
        if char.isascii() and char.isalnum():
            raise self._error("unknown escape")
        return char

    def _literal(self, char: str) -> Node:
        return Character(self._folded(lambda c: c == char))

    def _folded(self, test: Test) -> Test:
        if not self.ignores_case:
            return test
        return lambda c: any(test(variant) for variant in {c, c.lower(), c.upper()} if len(variant) == 1)

    def _set(self) -> Node:
        negated = self._peek() == "^"
        self._index += negated
        singles, tests, first = set[str](), list[Test](), True
        while first or self._peek() != "]":
            first = False
            low = self._member()
            if not isinstance(low, str):
                tests.append(low)
                continue
            if self._peek() == "-" and self._text[self._index + 1 : self._index + 2] not in ("]", ""):
                self._index += 1
                high = self._member()
                if not isinstance(high, str) or high < low:
                    raise self._error("a bad range of characters")
                tests.append(_between(low, high))
            else:
                singles.add(low)
        self._index += 1
        inside = self._folded(lambda c: c in singles or any(test(c) for test in tests))
        return Character((lambda c: not inside(c)) if negated else inside, 1 + len(tests))

    def _member(self) -> str | Test:
        char = self._take()
        if char != "\\":
            return char
        char = self._take()
        if char == "b":
            return "\b"
        return CLASSES[char] if char in CLASSES else self._escaped(char)


def _between(low: str, high: str) -> Test:
    return lambda c: low <= c <= high
