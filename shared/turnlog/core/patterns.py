"""Regular expressions that take linear time, for patterns that a model writes and text that nobody vouches for.

Python's `re` tries ways one after the other and can take exponential time; here all ways are followed at once (Thompson,
1968), so a text of n characters takes at most n steps over the pattern's states. The steps are counted and limited, and
what a caller gets is only whether a line has a match: no groups, so no backreferences, and no looking around.

Known: literals, ``.``, ``[...]``, ``\\d \\w \\s \b`` and their opposites, ``^ $``, groups, ``|``, ``* + ? {m,n}`` (lazy ones
too: they match the same lines), and ``(?i)`` at the beginning. Tested against `re`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.pattern_syntax import CLASSES, At, Choice, Node, One, Parser, PatternError, Repeated, Sequence, Test

MAX_PATTERN_CHARS = 256
MAX_STATES = 2_000
MAX_STEPS = 1_000_000
"""State by state, over one search: some seconds at most."""
_MAX_KNOWN = 400
_CHARS_PER_STEP = 16
"""Of characters whose step has been worked out before."""


@lazy_dataclass(frozen=True, slots=True)
class MatchedLines:
    """Indexes of the lines that match; ``read`` lines were searched before the steps were used up, ``steps`` were taken."""

    lines: tuple[int, ...]
    read: int
    steps: int


class Pattern:
    """A compiled pattern, or `PatternError`."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise PatternError(f"a pattern has at most {MAX_PATTERN_CHARS} characters")
        parser = Parser(pattern)
        node = parser.whole()
        self._program = _Program(parser.ignores_case)
        self._program.emit(node)
        self._program.add("match")

    def lines(self, lines: Iterable[str], *, max_steps: int = MAX_STEPS) -> MatchedLines:
        """Which lines have a match."""
        search, found, read = _Search(self._program, max_steps), list[int](), 0
        for at, line in enumerate(lines):
            matched = search.has(line)
            if matched is None:
                break
            read = at + 1
            if matched:
                found.append(at)
        return MatchedLines(tuple(found), read, search.steps)


# ---------------------------------------------------------------- the states


@dataclasses.dataclass(slots=True)
class _State:
    """``one`` consumes a character, ``split`` goes on at both ``next``, ``at`` asserts a place, ``match`` is the end."""

    kind: str
    next: tuple[int, ...]
    test: Test | None = None
    place: str = ""
    cost: int = 1


class _Program:
    """The pattern's states. The first is the beginning."""

    def __init__(self, ignores_case: bool) -> None:
        self.states: list[_State] = []
        self.ignores_case = ignores_case

    def add(self, kind: str, test: Test | None = None, place: str = "", cost: int = 1) -> int:
        if len(self.states) >= MAX_STATES:
            raise PatternError(f"the pattern is too large: over {MAX_STATES} states")
        at = len(self.states)
        self.states.append(_State(kind, (at + 1,), test, place, cost))
        return at

    def emit(self, node: Node) -> None:
        """States for the node; what follows it is added next."""
        match node:
            case One(test, cost):
                self.add("one", test, cost=cost)
            case At(place):
                self.add("at", place=place)
            case Sequence(nodes):
                for one in nodes:
                    self.emit(one)
            case Choice(nodes):
                self._choice(nodes)
            case Repeated(inner, least, most):
                self._repeated(inner, least, most)

    def _choice(self, nodes: tuple[Node, ...]) -> None:
        ends = list[int]()
        for one in nodes[:-1]:
            split = self.add("split")
            self.emit(one)
            ends.append(self.add("split"))
            self.states[split].next = (split + 1, len(self.states))
        self.emit(nodes[-1])
        for end in ends:
            self.states[end].next = (len(self.states),)

    def _repeated(self, node: Node, least: int, most: int | None) -> None:
        for _ in range(least):
            self.add("split")  # an empty node repeated costs a state too, so the limit holds
            self.emit(node)
        if most is None:
            split = self.add("split")
            self.emit(node)
            self.states[self.add("split")].next = (split,)
            self.states[split].next = (split + 1, len(self.states))
            return
        splits = list[int]()
        for _ in range(most - least):
            splits.append(self.add("split"))
            self.emit(node)
        for split in splits:
            self.states[split].next = (split + 1, len(self.states))


class _Known:
    """A set of states after a character of this kind, and where each next character leads."""

    __slots__ = ("after", "next", "states")

    def __init__(self, states: frozenset[int], after: str) -> None:
        self.states = states
        self.after = after
        self.next: dict[str, _Known | bool] = {}


class _Search:
    """One search over many lines: what has been worked out for one serves the others."""

    def __init__(self, program: _Program, max_steps: int) -> None:
        self._program = program.states
        self._max_steps = self._left = max_steps
        self._known: dict[tuple[frozenset[int], str], _Known] = {}

    @property
    def steps(self) -> int:
        return self._max_steps - self._left

    def has(self, line: str) -> bool | None:
        """Whether the line has a match; None when the steps are used up."""
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
        found = self._known.get((states, after))
        if found is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            found = self._known[states, after] = _Known(states, after)
        return found

    def _step(self, here: _Known, char: str) -> _Known | bool:
        """Over one character, or the line's end (``""``): a match begins anywhere, so the first state is always there."""
        word = bool(char) and CLASSES["w"](char)
        waiting, seen, reached = [0, *here.states], set[int](), set[int]()
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            state = self._program[at]
            self._left -= state.cost
            if state.kind == "match":
                return True
            if state.kind == "one":
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
