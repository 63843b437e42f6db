"""Regular expressions with linear running time, for untrusted patterns and untrusted text.

Python's `re` backtracks and can take exponential time. This matcher follows all alternatives at once (Thompson, 1968), so a
text of n characters takes at most n steps over the pattern's states. Steps are counted and limited. The result is only
whether a line matches: there are no capture groups, backreferences or lookarounds.

Supported: literals, ``.``, ``[...]``, ``\\d \\w \\s \b`` and their opposites, ``^ $``, groups, ``|``, ``* + ? {m,n}`` (also
lazy, which match the same lines), and ``(?i)`` at the beginning. Tested against `re`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.pattern_syntax import (
    CLASSES,
    Anchor,
    Character,
    Choice,
    Node,
    Parser,
    PatternError,
    Repeated,
    Sequence,
    Test,
)

MAX_PATTERN_CHARS = 256
MAX_STATES = 2_000
MAX_STEPS = 1_000_000
"""Limit for the states visited in one search, which takes some seconds at most."""
_MAX_KNOWN = 400
_CHARS_PER_STEP = 16
"""Characters with a cached transition that count as one step."""


@lazy_dataclass(frozen=True, slots=True)
class MatchedLines:
    """The result of a search: ``lines`` are the indexes of the lines that match.

    ``read`` is the number of lines searched before the step limit, ``steps`` the number of steps taken.
    """

    lines: tuple[int, ...]
    read: int
    steps: int


class Pattern:
    """A compiled pattern. Raises `PatternError` for a pattern outside the supported syntax."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise PatternError(f"a pattern has at most {MAX_PATTERN_CHARS} characters")
        parser = Parser(pattern)
        node = parser.parse()
        self._program = _Program(parser.ignores_case)
        self._program.emit(node)
        self._program.add("match")

    def lines(self, lines: Iterable[str], *, max_steps: int = MAX_STEPS) -> MatchedLines:
        """Return the lines that have a match, until ``max_steps`` are used up."""
        search, matches, read = _Search(self._program, max_steps), list[int](), 0
        for index, line in enumerate(lines):
            matched = search.has(line)
            if matched is None:
                break
            read = index + 1
            if matched:
                matches.append(index)
        return MatchedLines(tuple(matches), read, search.steps)


# ---------------------------------------------------------------- the states


@dataclasses.dataclass(slots=True)
class _State:
    """A state of the compiled pattern.

    ``kind`` is ``character`` (consumes one), ``split`` (continues at every state of ``next``), ``anchor`` (asserts a
    place) or ``match`` (the end).
    """

    kind: str
    next: tuple[int, ...]
    test: Test | None = None
    place: str = ""
    cost: int = 1


class _Program:
    """The states of a compiled pattern; the first is the start state."""

    def __init__(self, ignores_case: bool) -> None:
        self.states: list[_State] = []
        self.ignores_case = ignores_case

    def add(self, kind: str, test: Test | None = None, place: str = "", cost: int = 1) -> int:
        if len(self.states) >= MAX_STATES:
            raise PatternError(f"the pattern is too large: over {MAX_STATES} states")
        number = len(self.states)
        self.states.append(_State(kind, (number + 1,), test, place, cost))
        return number

    def emit(self, node: Node) -> None:
        """Add states for the node. The states of the next node are added after them."""
        match node:
            case Character(test, cost):
                self.add("character", test, cost=cost)
            case Anchor(place):
                self.add("anchor", place=place)
            case Sequence(nodes):
                for child in nodes:
                    self.emit(child)
            case Choice(nodes):
                self._choice(nodes)
            case Repeated(inner, minimum, maximum):
                self._repeated(inner, minimum, maximum)

    def _choice(self, nodes: tuple[Node, ...]) -> None:
        ends = list[int]()
        for node in nodes[:-1]:
            split = self.add("split")
            self.emit(node)
            ends.append(self.add("split"))
            self.states[split].next = (split + 1, len(self.states))
        self.emit(nodes[-1])
        for end in ends:
            self.states[end].next = (len(self.states),)

    def _repeated(self, node: Node, minimum: int, maximum: int | None) -> None:
        for _ in range(minimum):
            self.add("split")  # gives an empty node a state too, so that MAX_STATES limits repeats of it
            self.emit(node)
        if maximum is None:
            split = self.add("split")
            self.emit(node)
            self.states[self.add("split")].next = (split,)
            self.states[split].next = (split + 1, len(self.states))
            return
        splits = list[int]()
        for _ in range(maximum - minimum):
            splits.append(self.add("split"))
            self.emit(node)
        for split in splits:
            self.states[split].next = (split + 1, len(self.states))


class _Known:
    """A cached set of states after a character of kind ``after``, with the transition for each next character."""

    __slots__ = ("after", "next", "states")

    def __init__(self, states: frozenset[int], after: str) -> None:
        self.states = states
        self.after = after
        self.next: dict[str, _Known | bool] = {}


class _Search:
    """A search over many lines, which share a cache of transitions."""

    def __init__(self, program: _Program, max_steps: int) -> None:
        self._program = program.states
        self._max_steps = self._left = max_steps
        self._known: dict[tuple[frozenset[int], str], _Known] = {}

    @property
    def steps(self) -> int:
        return self._max_steps - self._left

    def has(self, line: str) -> bool | None:
        """Return whether the line has a match; None when the steps are used up."""
        here = self._state(frozenset(), "start")
        self._left -= 1 + len(line) // _CHARS_PER_STEP
        for char in (*line, ""):
            if self._left <= 0:
                return None
            following = here.next.get(char)
            if following is None:
                following = here.next[char] = self._step(here, char)
            if isinstance(following, bool):
                return following
            here = following
        return False

    def _state(self, states: frozenset[int], after: str) -> _Known:
        known = self._known.get((states, after))
        if known is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            known = self._known[states, after] = _Known(states, after)
        return known

    def _step(self, here: _Known, char: str) -> _Known | bool:
        """Return the transition for a character, or for the line's end (``""``).

        The start state is always active, because a match may begin anywhere. True means that the line matches.
        """
        word = bool(char) and CLASSES["w"](char)
        waiting, seen, reached = [0, *here.states], set[int](), set[int]()
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            state = self._program[number]
            self._left -= state.cost
            if state.kind == "match":
                return True
            if state.kind == "character":
                if char and state.test is not None and state.test(char):
                    reached.update(state.next)
            elif state.kind == "split" or _holds(state.place, here.after, char, word):
                waiting.extend(state.next)
        if not char:
            return False
        return self._state(frozenset(reached), "word" if word else "other")


def _holds(place: str, after: str, char: str, word: bool) -> bool:
    if place == "start":
        return after == "start"
    if place == "end":
        return not char
    is_border = (after == "word") != word
    return is_border if place == "word" else not is_border
