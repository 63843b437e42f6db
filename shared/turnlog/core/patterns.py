r"""Regular expressions with linear running time, for untrusted patterns and untrusted text: their parser, and the matcher.

Python's `re` backtracks and can take exponential time. This matcher follows all alternatives at once (Thompson, 1968), so a
text of n characters takes at most n steps over the pattern's states. Steps are counted and limited. The result is only
whether a line matches: there are no capture groups, backreferences or lookarounds.

Supported: literals, ``.``, ``[...]``, ``\d \w \s `` and their opposites, ``^ $``, groups, ``|``, ``* + ? {m,n}`` (also
lazy, which match the same lines), and ``(?i)`` at the beginning. `re` is asked about one character at a time, in bounded time.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from turnlog.core.lazy_dataclass import lazy_dataclass

MAX_DEPTH = 32
_Test: TypeAlias = Callable[[str], object]


class PatternError(ValueError):
    """A pattern outside the supported syntax. The message names the fault and its index, and quotes no text."""


_Emit: TypeAlias = "Callable[[_Program], object]"
"""Adds the states of a part of a pattern. A part that is repeated is added several times."""

_ANCHORS = {r"\b": "word", r"\B": "no_word", r"\A": "start", r"\Z": "end"}
_BRACES = re.compile(r"\{(\d{0,4})(?:(,)(\d{0,4}))?\}")
_ESCAPED = r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[dwsDWStnrfvabBAZ]|[^0-9A-Za-z])"
_ESCAPE = re.compile(_ESCAPED)
_MEMBER = rf"{_ESCAPED}|[^\\]"
_SET = re.compile(rf"\[(\^?)(\]?(?:(?!\])(?:{_MEMBER}))*)\]")
_RANGE = re.compile(rf"(?:(\\[dwsDWS])|({_MEMBER}))(?(2)(?:(-)({_MEMBER}))?)")
_is_word = re.compile(r"\w").match


class _Parser:
    """A recursive descent parser of a pattern. Raises `PatternError`."""

    def __init__(self, pattern: str) -> None:
        self._ignores_case = pattern.startswith("(?i)")
        self._text = pattern[4:] if self._ignores_case else pattern
        self._index = 0
        self._depth = 0

    def parse(self) -> _Emit:
        """Return what adds the states of the whole pattern."""
        emit = self._choice()
        if self._index < len(self._text):
            raise self._error("unbalanced )")
        return emit

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

    def _choice(self) -> _Emit:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error("groups are too deep")
        choices = [self._sequence()]
        while self._peek() == "|":
            self._index += 1
            choices.append(self._sequence())
        self._depth -= 1
        return choices[0] if len(choices) == 1 else lambda program: program.add_choice(choices)

    def _sequence(self) -> _Emit:
        parts = list[_Emit]()
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated())
        return lambda program: [emit(program) for emit in parts]

    def _repeated(self) -> _Emit:
        emit = self._atom()
        limits = self._limits()
        if limits is None:
            return emit
        if self._peek() == "?":
            self._index += 1
        if self._peek() == "+" or self._limits() is not None:
            raise self._error("multiple repeat")
        return lambda program: program.add_repeated(emit, *limits)

    def _limits(self) -> tuple[int, int | None] | None:
        char = self._peek()
        if char in ("*", "+", "?"):
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

    def _atom(self) -> _Emit:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._set()
        if char in "^$":
            return self._anchor("start" if char == "^" else "end")
        if char in "*+?":
            raise self._error("nothing to repeat")
        if char == "\\":
            return self._escape()
        return self._character("." if char == "." else re.escape(char))

    def _group(self) -> _Emit:
        if self._peek() == "?":
            self._index += 1
            name = re.compile(r":|P<[A-Za-z_]\w*>").match(self._text, self._index)
            if name is None:
                raise self._error("only the groups (...), (?:...) and (?P<name>...) are supported")
            self._index = name.end()
        emit = self._choice()
        if self._peek() != ")":
            raise self._error("a group is not closed")
        self._index += 1
        return emit

    def _escape(self) -> _Emit:
        escape = _ESCAPE.match(self._text, self._index - 1)
        if escape is None:
            raise self._error("unknown escape")
        self._index = escape.end()
        return self._anchor(_ANCHORS[escape[0]]) if escape[0] in _ANCHORS else self._character(escape[0])

    def _anchor(self, place: str) -> _Emit:
        if self._limits() is not None:
            raise self._error("nothing to repeat")
        return lambda program: program.add("anchor", place=place)

    def _set(self) -> _Emit:
        whole = _SET.match(self._text, self._index - 1)
        if whole is None:
            raise self._error("a set of characters is not closed, or has an unknown escape")
        self._index = whole.end()
        members = _RANGE.findall(whole[2])
        inside = "".join(kind + _member(low) + dash + _member(high) for kind, low, dash, high in members)
        return self._character(f"[{whole[1]}{inside}]", 1 + sum(bool(kind or dash) for kind, _, dash, _ in members))

    def _character(self, expression: str, cost: int = 1) -> _Emit:
        """Return what adds a state that asks `re` about one character, which takes at most ``cost`` comparisons."""
        try:
            test = re.compile(expression, re.IGNORECASE if self._ignores_case else 0).fullmatch
        except re.error as error:
            raise self._error("a bad range of characters") from error
        return lambda program: program.add("character", test, cost=cost)


def _member(text: str) -> str:
    return text if text.startswith("\\") else re.escape(text)


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
        self._program = _Program()
        _Parser(pattern).parse()(self._program)
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
    test: _Test | None = None
    place: str = ""
    cost: int = 1


class _Program:
    """The states of a compiled pattern; the first is the start state."""

    def __init__(self) -> None:
        self.states: list[_State] = []

    def add(self, kind: str, test: _Test | None = None, place: str = "", cost: int = 1) -> int:
        if len(self.states) >= MAX_STATES:
            raise PatternError(f"the pattern is too large: over {MAX_STATES} states")
        number = len(self.states)
        self.states.append(_State(kind, (number + 1,), test, place, cost))
        return number

    def add_choice(self, parts: Sequence[_Emit]) -> None:
        ends = list[int]()
        for emit in parts[:-1]:
            split = self.add("split")
            emit(self)
            ends.append(self.add("split"))
            self.states[split].next = (split + 1, len(self.states))
        parts[-1](self)
        for end in ends:
            self.states[end].next = (len(self.states),)

    def add_repeated(self, emit: _Emit, minimum: int, maximum: int | None) -> None:
        for _ in range(minimum):
            self.add("split")  # gives an empty part a state too, so that MAX_STATES limits repeats of it
            emit(self)
        if maximum is None:
            split = self.add("split")
            emit(self)
            self.states[self.add("split")].next = (split,)
            self.states[split].next = (split + 1, len(self.states))
            return
        splits = list[int]()
        for _ in range(maximum - minimum):
            splits.append(self.add("split"))
            emit(self)
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
        word = _is_word(char) is not None
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
