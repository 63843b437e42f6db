"""Parts of long texts: the lines, the JSON value or the matches that a query names, cut to a number of tokens or characters.

A part is chosen by JSON pointer, pattern or line numbers. A text of a single line is first written in several, if a part of it is
requested or if it is too long: JSON with each value on its own line, and a long line in pieces. A snippet is an excerpt with marks
around its matches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from turnlog.core.errors import InvalidInputError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.patterns import Pattern, PatternError
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.search.models import RecallQuery

_KEYS_SHOWN = 20
_MARK_TOKENS = 40
"""Tokens reserved for the mark that says how much was cut."""
IN_LINES = "one line, shown in several"
_PIECE = re.compile(r".{1,999}(?:\s|\Z)|.{1,1000}", re.DOTALL)
"""A piece of a long line: at most 1,000 characters, up to a space where there is one."""
MAX_INDENT = 32
"""Depth down to which values get lines of their own; without a limit, indentation would outgrow the text."""
_BAD_ESCAPE = re.compile(r"~(?![01])")
MARK_BEGIN, MARK_END = "⟦", "⟧"
"""Marks around a match in a snippet. The same characters in the text itself are shown as plain brackets."""
SNIPPET_CHARS = 240
_PLAIN = str.maketrans({MARK_BEGIN: "[", MARK_END: "]"})


@lazy_dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text.

    ``lines`` counts the lines of the whole text; ``tokens`` is an upper bound for the part. ``note`` says why the part is empty, or
    that its lines are not those of the original.
    """

    text: str
    lines: int
    tokens: int
    truncated: bool = False
    note: str | None = None


Extract: TypeAlias = Callable[[str, int], TextPart]


def part_of(query: RecallQuery) -> Extract:
    """Return a function from a text and a number of tokens to the part that the query names; raise `InvalidInputError`."""
    pattern = _compiled(query.pattern)
    steps = _pointer(query.pointer)
    first, last = query.from_line or 1, query.to_line
    is_part = pattern is not None or query.from_line is not None or query.to_line is not None
    if last is not None and last < first:
        raise InvalidInputError.at("/query/to_line", f"to_line {last} is before from_line {first}")

    def extract(text: str, max_tokens: int) -> TextPart:
        if steps is not None:
            text, fault = _pointed(text, steps)
            if fault:
                return TextPart("", 0, 0, note=fault)
        lines, note = text.split("\n"), None
        if len(lines) == 1 and (is_part or len(text) > 4 * max_tokens or upper_bound_tokens(text) > max_tokens):
            lines = [piece for line in (_in_lines(text) or text).split("\n") for piece in _pieces(line)]
            note = IN_LINES if len(lines) > 1 else None
        chosen = list(enumerate(lines, start=1))[first - 1 : last]
        if not chosen:
            there_are = "there is 1 line" if len(lines) == 1 else f"there are {len(lines)} lines"
            return TextPart("", len(lines), 0, note=f"{there_are}; none from {first} on")
        if pattern is not None:
            chosen, fault = _matching(pattern, chosen)
            note = fault or note
        return _shown(chosen, len(lines), max_tokens, numbered=pattern is not None, note=note)

    return extract


def _matching(pattern: Pattern, lines: list[tuple[int, str]]) -> tuple[list[tuple[int, str]], str | None]:
    """Return the lines that match, of a long line its pieces; and a note when none matches or the search was not finished."""
    matches, note = pattern.lines(line for _, line in lines), None
    if matches.read < len(lines):
        note = f"the pattern takes too long: searched to line {lines[0][0] + matches.read - 1} only"
    elif not matches.lines:
        note = f"no line matches, of {len(lines)}"
    return [(lines[index][0], _around(pattern, lines[index][1])) for index in matches.lines], note


def _pieces(line: str) -> list[str]:
    return _PIECE.findall(line) or [line]


def _around(pattern: Pattern, line: str) -> str:
    """Return the matching pieces of a long line; the line itself when it is short, or when none of its pieces matches."""
    pieces = _pieces(line)
    matching = pattern.lines(pieces).lines if len(pieces) > 1 else ()
    return "\n".join(f"...{pieces[index]}..." for index in matching) or line


def capped(text: str, max_tokens: int) -> TextPart:
    """Return the text cut to ``max_tokens``."""
    return _shown([(1, text)], 1, max_tokens, numbered=False, note=None)


def _shown(
    chosen: Sequence[tuple[int, str]], lines: int, max_tokens: int, *, numbered: bool, note: str | None
) -> TextPart:
    """Return as many of the lines as fit into ``max_tokens``, and a mark that says how much more there is."""
    room, tokens, shown = max_tokens - _MARK_TOKENS, 0, list[str]()
    wanted = [f"{number}: {line}" if numbered else line for number, line in chosen]
    if sum(map(len, wanted)) <= 4 * max_tokens:
        everything = "\n".join(wanted)
        all_tokens = upper_bound_tokens(everything)
        if all_tokens <= max_tokens:
            return TextPart(everything, lines, all_tokens, note=note)
    for index, line in enumerate(wanted):
        cost = upper_bound_tokens(line[: 4 * max_tokens] + "\n")
        if tokens + cost > room or len(line) > 4 * max_tokens:
            rest = wanted[index:]
            left = sum(map(len, rest))
            if shown:
                mark = f"...[{len(rest)} more lines, {left} characters; from_line={chosen[index][0]} goes on]"
                text = "\n".join([*shown, mark])
            else:
                head = _head(line, max(0, room))
                next_line = f"; from_line={chosen[index + 1][0]} is behind this line" if len(rest) > 1 else ""
                text = f"{head}...[{left - len(head)} more characters, lines: {len(rest)}{next_line}]"
            return TextPart(text, lines, upper_bound_tokens(text), truncated=True, note=note)
        shown.append(line)
        tokens += cost
    return TextPart("\n".join(shown), lines, tokens, note=note)


def _head(text: str, max_tokens: int) -> str:
    """Return the longest beginning of a text with at most ``max_tokens`` tokens, to within a sixteenth."""
    low, high = 0, min(len(text), 4 * max_tokens)
    while high - low > max(1, high // 16):
        middle = (low + high) // 2
        if upper_bound_tokens(text[:middle]) <= max_tokens:
            low = middle
        else:
            high = middle
    head = text[:low]
    return head[:-1] if head and 0xD800 <= ord(head[-1]) < 0xDC00 else head


def _compiled(pattern: str | None) -> Pattern | None:
    if pattern is None:
        return None
    try:
        return Pattern(pattern)
    except PatternError as error:
        raise InvalidInputError.at("/query/pattern", str(error)) from error


def _pointer(pointer: str | None) -> list[str] | None:
    """Return the unescaped steps of a JSON pointer (RFC 6901); raise `InvalidInputError`."""
    if pointer is None:
        return None
    if pointer and not pointer.startswith("/"):
        raise InvalidInputError.at("/query/pointer", "a JSON pointer must be empty or begin with /")
    if _BAD_ESCAPE.search(pointer):
        raise InvalidInputError.at("/query/pointer", "in a JSON pointer, ~ must be followed by 0 or 1")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _pointed(text: str, steps: list[str]) -> tuple[str, str | None]:
    """Return the value that a pointer names in the text's JSON, and None; or an empty text and the reason.

    A string is returned unquoted, another value as JSON of several lines.
    """
    try:
        value = _parsed(text)
    except (ValueError, RecursionError):
        return "", "the result is not JSON, so a pointer leads nowhere"
    for number, step in enumerate(steps, start=1):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and str(int(step[:9])) == step:
            if int(step) >= len(value):
                return "", f"the pointer leads nowhere: a list of {len(value)} at step {number}"
            value = value[int(step)]
        else:
            return "", f"the pointer leads nowhere at step {number}: there is {_kind(value)}"
    if isinstance(value, str):
        return str(value), None
    try:
        return _written(value), None
    except RecursionError:
        return "", "what the pointer names is nested too deep"


class _Number(str):
    """A JSON number, or NaN or Infinity, with its original digits."""

    __slots__ = ()


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def _in_lines(text: str) -> str | None:
    """Return the text's JSON in several lines, or None if the text is no JSON object or list, or an empty one."""
    try:
        value = _parsed(text) if text.lstrip()[:1] in ("{", "[") else None
        return _written(value) if value else None
    except (ValueError, RecursionError):
        return None


def _written(value: Any) -> str:
    written = list[str]()
    _write(value, 0, written)
    return "".join(written)


def _write(value: Any, depth: int, written: list[str]) -> None:
    if isinstance(value, _Number):
        written.append(str(value))
    elif not isinstance(value, dict | list) or not value:
        written.append(json.dumps(value, ensure_ascii=False))
    else:
        has_lines, (opening, closing) = depth < MAX_INDENT, "{}" if isinstance(value, dict) else "[]"
        inner, outer = ("\n" + " " * (depth + 1), "\n" + " " * depth) if has_lines else ("", "")
        written.append(opening)
        for index, member in enumerate(value):
            written.append((("," if has_lines else ", ") if index else "") + inner)
            if isinstance(value, dict):
                written.append(json.dumps(member, ensure_ascii=False) + ": ")
            _write(value[member] if isinstance(value, dict) else member, depth + 1, written)
        written.append(outer + closing)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(list(value)[:_KEYS_SHOWN])
        return f"an object of {len(value)} keys: {keys[:400]}"
    return f"a list of {len(value)}" if isinstance(value, list) else "a single value"


def snippet(text: str, spans: Sequence[tuple[int, int]], *, size: int = SNIPPET_CHARS) -> str:
    """Return about ``size`` characters of a text with marks around the spans in it.

    ``spans`` are in order and do not overlap.
    """
    start = _best(text, spans, size)
    end, position = min(len(text), start + size), start
    parts = list[str]()
    for first, last in spans:
        if last <= start or first >= end:
            continue
        begin, until = max(first, start), min(last, end)
        parts += [text[position:begin].translate(_PLAIN), MARK_BEGIN, text[begin:until].translate(_PLAIN), MARK_END]
        position = until
    parts.append(text[position:end].translate(_PLAIN))
    excerpt = " ".join("".join(parts).split())
    return f"{'...' if start else ''}{excerpt}{'...' if end < len(text) else ''}"


def _best(text: str, spans: Sequence[tuple[int, int]], size: int) -> int:
    """Return the start of the excerpt with the most different matches, a little before the first of them."""
    words = [text[first:last].lower() for first, last in spans]
    highest, best, until = 0, 0, 0
    counts = dict[str, int]()
    for index, (first, _) in enumerate(spans):
        while until < len(spans) and (until == index or spans[until][1] <= first + size * 5 // 6):
            counts[words[until]] = counts.get(words[until], 0) + 1
            until += 1
        if len(counts) > highest:
            highest, best = len(counts), first
        counts[words[index]] -= 1
        if not counts[words[index]]:
            del counts[words[index]]
    return 0 if len(text) <= size else max(0, min(best - size // 6, len(text) - size))
