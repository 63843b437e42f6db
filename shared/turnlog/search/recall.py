"""Recall: find a tool call and its result anywhere in the log, and return them whole or in part.

A part of a long text is chosen by JSON pointer, pattern or line numbers, and cut to a number of tokens. JSON on a single line is
first written with each value on its own line, if a part of it is requested or if it is too long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from turnlog.core.calls import OpenCalls, Ref, call_key, pair, parse_ref
from turnlog.core.errors import InvalidInputError, MalformedError, NotFoundError, Problem
from turnlog.core.events import MessageEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import parse_strict_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import ToolCall, ToolResult
from turnlog.core.patterns import Pattern, PatternError
from turnlog.core.positions import VisibleRanges
from turnlog.core.times import rfc3339
from turnlog.log.commit import Commit, checked_chain
from turnlog.log.keys import SessionKeys
from turnlog.log.reading import Located, located, newest_pages
from turnlog.providers.blocks import placeholder_text
from turnlog.search.models import Recalled, RecallQuery
from turnlog.sessions.session_log import SessionLog
from turnlog.windows.bounds import upper_bound_tokens

MISS = "Tool call result not found"
NEXT_COMMITS = (4, 64, 64)
"""Numbers of commits after a call that are read for its result, one request each, until the result is found."""
BACK_PAGES = 4
"""Pages that are searched backwards for a call id, each of at most 1 MB; the first page has `FIRST_COMMITS` commits."""
FIRST_COMMITS = 64
_NEWEST_REFS = 8
_MADE_ID = re.compile(r"call_([1-9][0-9]{0,11})_(0|[1-9][0-9]{0,5})")
_KEYS_SHOWN = 20
_MARK_TOKENS = 40
"""Tokens reserved for the mark that says how much was cut."""
IN_LINES = "JSON of one line, shown in several"
MAX_INDENT = 32
"""Depth down to which values get lines of their own; without a limit, indentation would outgrow the text."""
_BAD_ESCAPE = re.compile(r"~(?![01])")


@lazy_dataclass(frozen=True, slots=True)
class _Place:
    """A tool call's place in the log, and the commits that were read, from the call's commit on."""

    ref: Ref
    commits: list[Commit]
    is_all: bool = False
    others: tuple[Ref, ...] = ()
    view: VisibleRanges | None = None
    """The visible ranges. A result that a rewind has hidden does not answer a visible call."""

    def located(self, log: SessionLog, keys: SessionKeys, commits: Sequence[Commit]) -> list[Located]:
        """Return the messages of commits; for a visible call only the visible messages."""
        messages, view = located(log.commits, keys, commits), self.view
        if view is None or view.is_cut or not view.shows(self.ref.position):
            return messages
        return [message for message in messages if view.shows(message.event.position)]


class RecallCalls:
    """Use case: return a tool call and its result.

    By ref this takes two requests for the call, one for a result in a later commit, and one for payloads in items of their own.
    """

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str, query: RecallQuery) -> Recalled:
        keys = SessionKeys(owner, session_id)
        if (query.ref is None) == (query.call_id is None):
            message = "give either ref or call_id"
            raise InvalidInputError(message, problems=[Problem("invalid_parameter", "/query/ref", message)])
        extract = part_of(query)
        place, requested = None, query.ref
        if query.ref is not None:
            ref = parse_ref(query.ref, pointer="/query/ref")
            place, hint = self._by_ref(keys, ref, self._log.commits.tail(keys).header.view)
        else:
            requested = query.call_id or ""
            place, hint = self._by_id(keys, requested)
        if place is None:
            return self._miss(keys, requested, hint)
        call_place, result_place = self._call_and_result(keys, place)
        if call_place is None:
            return self._miss(keys, requested, f"position {place.ref.position} has no call {place.ref.index}")
        call_message, call = call_place
        arguments, arguments_cut = capped(call.arguments, query.max_tokens // 2)
        answer = Recalled(
            found=True,
            ref=str(place.ref),
            call_id=call.id,
            name=call.name,
            arguments=arguments.text if arguments_cut else _json_or_text(call.arguments),
            loop=call_message.loop or None,
            called_at=rfc3339(call_message.time_ms),
            truncated=arguments_cut,
            tokens=arguments.tokens,
            other_refs=[str(ref) for ref in place.others] or None,
        )
        if result_place is None:
            return answer.model_copy(update={"note": "this call has no result"})
        result_message, result = result_place
        part = extract(
            "\n".join(placeholder_text(block) for block in result.content), query.max_tokens - arguments.tokens
        )
        return answer.model_copy(
            update={
                "position": result_message.event.position,
                "is_error": result.is_error,
                "content": part.text,
                "lines": part.lines,
                "tokens": arguments.tokens + part.tokens,
                "truncated": arguments_cut or part.truncated,
                "note": part.note,
            }
        )

    # ------------------------------------------------------------ finding the call

    def _by_ref(self, keys: SessionKeys, ref: Ref, view: VisibleRanges | None = None) -> tuple[_Place | None, str]:
        commits = checked_chain(next(self._log.commits.stored.back(keys, ref.position, limit=1), ()))
        if not commits:
            raise NotFoundError(f"no session {keys.session_id!r}")
        if commits[0].header.last < ref.position:
            return None, f"position {ref.position} is beyond the newest, {commits[0].header.last}"
        return _Place(ref, commits, view=view), ""

    def _by_id(self, keys: SessionKeys, call_id: str) -> tuple[_Place | None, str]:
        """Return the place of the newest call with an id, and other such calls on its page; else None and a hint.

        The search stops after `BACK_PAGES` pages; the hint then names the oldest position that was searched.
        """
        key, later, oldest = call_key(ToolCall(call_id, "", "")), list[Commit](), 0
        if not key:
            raise InvalidInputError(
                "call_id is empty", problems=[Problem("invalid_parameter", "/query/call_id", "empty")]
            )
        for commits in newest_pages(self._log.commits, keys, pages=BACK_PAGES, first_limit=FIRST_COMMITS):
            later, oldest = [*commits, *later], commits[0].header.first
            uses = [
                Ref(message.event.position, index)
                for message in reversed(located(self._log.commits, keys, commits))
                for index, call in enumerate(message.facts.calls)
                if call.key == key
            ]
            if uses:
                start = next(index for index, commit in enumerate(later) if commit.header.last >= uses[0].position)
                return _Place(uses[0], later[start:], is_all=True, others=tuple(uses[1 : 1 + _NEWEST_REFS])), ""
        match = _MADE_ID.fullmatch(call_id)
        if match is not None:
            return self._by_ref(keys, Ref(int(match[1]), int(match[2])))
        if oldest <= 1:
            return None, "no call of this session has this id"
        return None, f"no call from position {oldest} on has this id; the search went no further back: use a ref"

    # ------------------------------------------------------------ reading the call and its result

    def _call_and_result(
        self, keys: SessionKeys, place: _Place
    ) -> tuple[tuple[Located, ToolCall] | None, tuple[Located, ToolResult] | None]:
        """Return the call and its newest result, each with its message; None for a call or result that is not there.

        Reads commits after the call's until one has a result, at most the numbers of `NEXT_COMMITS`.
        """
        ref = place.ref
        messages = place.located(self._log, keys, place.commits)
        call_message = next((message for message in messages if message.event.position == ref.position), None)
        if call_message is None or ref.index >= len(call_message.facts.calls):
            return None, None
        # Earlier calls that are still open after this commit: later results may belong to them.
        opened = place.commits[0].header.flow.open_calls
        first = place.commits[0].header.first
        before = OpenCalls(tuple(call for call in opened.calls if call.ref.position < first))
        answered = _result_place(messages, ref, before)
        batches = iter(() if place.is_all else NEXT_COMMITS)
        commits, last = place.commits, place.commits[-1]
        while answered is None and (limit := next(batches, None)) is not None:
            page = next(self._log.commits.stored.on(keys, last.header.last + 1, limit=limit, exact=True), ())
            if not page:
                break
            more = checked_chain(page)
            if more[0].header.first != last.header.last + 1:
                raise self._log.commits.missing(keys, last.header.last + 1)
            commits, last = [*commits, *more], more[-1]
            messages = place.located(self._log, keys, commits)
            answered = _result_place(messages, ref, before)
        result_message = next((item for item in messages if answered and item.event.position == answered[0]), None)
        call_message, result_message = self._with_bodies(keys, call_message, result_message)
        calling = call_message.message
        assert calling is not None  # noqa: S101 - fetched
        call_place = (call_message, calling.tool_calls[ref.index])
        if result_message is None or answered is None or result_message.message is None:
            return call_place, None
        return call_place, (result_message, result_message.message.tool_results[answered[1]])

    def _with_bodies(self, keys: SessionKeys, call: Located, result: Located | None) -> tuple[Located, Located | None]:
        wanted = [message.event for message in (call, result) if message is not None and message.event.body is None]
        bodies = self._log.commits.fetch(keys, wanted) if wanted else {}
        return _with_body(call, bodies), _with_body(result, bodies) if result is not None else None

    def _miss(self, keys: SessionKeys, ref: str | None, hint: str) -> Recalled:
        """Return the answer for a call that was not found, with a hint and the refs of the newest calls."""
        page = next(iter(newest_pages(self._log.commits, keys, pages=1, first_limit=FIRST_COMMITS)))
        refs = [
            str(Ref(message.event.position, index))
            for message in reversed(located(self._log.commits, keys, page))
            for index in reversed(range(len(message.facts.calls)))
        ][:_NEWEST_REFS]
        return Recalled(found=False, ref=ref, error=MISS, hint=hint, newest_refs=refs)


def _result_place(messages: Sequence[Located], ref: Ref, before: OpenCalls) -> tuple[int, int] | None:
    """Return position and index of the result that answers a call, or None."""
    complete = [message for message in messages if message.event.envelope.status == "complete"]
    return pair(((message.event.position, message.facts) for message in complete), before=before).result_of.get(ref)


def _with_body(message: Located, bodies: dict[int, MessageEvent]) -> Located:
    return Located(bodies.get(message.event.position, message.event), message.loop, message.time_ms)


def _json_or_text(text: str) -> object:
    try:
        return parse_strict_json(text)
    except MalformedError:
        return text


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


@lazy_dataclass(frozen=True, slots=True)
class Capped:
    """A text cut to a number of tokens; ``tokens`` is an upper bound for it."""

    text: str
    tokens: int


def part_of(query: RecallQuery) -> Extract:
    """Return a function from a text and a number of tokens to the part that the query names; raise `InvalidInputError`."""
    pattern = _compiled(query.pattern)
    steps = _pointer(query.pointer)
    first, last = query.from_line or 1, query.to_line
    is_part = pattern is not None or query.from_line is not None or query.to_line is not None
    if last is not None and last < first:
        raise _invalid("to_line", f"to_line {last} is before from_line {first}")

    def extract(text: str, max_tokens: int) -> TextPart:
        if steps is not None:
            text, note = _pointed(text, steps)
            if note:
                return TextPart("", 0, 0, note=note)
        in_lines = _in_lines(text) if "\n" not in text and (is_part or not _fits(text, max_tokens)) else None
        lines = (in_lines or text).split("\n")
        chosen = list(enumerate(lines, start=1))[first - 1 : last]
        if not chosen:
            return TextPart("", len(lines), 0, note=f"{_counted(len(lines))}; none from {first} on")
        note = IN_LINES if in_lines else None
        if pattern is not None:
            matches = pattern.lines(line for _, line in chosen)
            if matches.read < len(chosen):
                note = f"the pattern takes too long: searched to line {chosen[0][0] + matches.read - 1} only"
            elif not matches.lines:
                note = f"no line matches, of {len(chosen)}"
            chosen = [chosen[index] for index in matches.lines]
        return _shown(chosen, len(lines), max_tokens, numbered=pattern is not None, note=note)

    return extract


def capped(text: str, max_tokens: int) -> tuple[Capped, bool]:
    """Return the text cut to ``max_tokens``, and whether it was cut."""
    part = _shown([(1, text)], 1, max_tokens, numbered=False, note=None)
    return Capped(part.text, part.tokens), part.truncated


def _counted(lines: int) -> str:
    return "there is 1 line" if lines == 1 else f"there are {lines} lines"


def _fits(text: str, max_tokens: int) -> bool:
    """Return whether a text fits; one of more than four characters a token is not counted, but taken as too long."""
    return len(text) <= 4 * max_tokens and upper_bound_tokens(text) <= max_tokens


def _shown(
    chosen: Sequence[tuple[int, str]], lines: int, max_tokens: int, *, numbered: bool, note: str | None
) -> TextPart:
    """Return as many of the lines as fit into ``max_tokens``, and a mark that says how much more there is."""
    room, tokens, shown = max_tokens - _MARK_TOKENS, 0, list[str]()
    wanted = [f"{number}: {line}" if numbered else line for number, line in chosen]
    if sum(map(len, wanted)) <= 4 * max_tokens:
        everything = "\n".join(wanted)
        tokens = upper_bound_tokens(everything)
        if tokens <= max_tokens:
            return TextPart(everything, lines, tokens, note=note)
        tokens = 0
    for index, line in enumerate(wanted):
        cost = upper_bound_tokens(line[: 4 * max_tokens] + "\n")
        if tokens + cost > room or len(line) > 4 * max_tokens:
            rest = wanted[index:]
            head = "" if shown else _head(line, max(0, room))
            left = sum(map(len, rest)) - len(head)
            next_line = f"; from_line={chosen[index][0]} goes on" if shown else ""
            mark = f"...[{len(rest)} more lines, {left} characters{next_line}]"
            if not shown:
                next_line = f"; from_line={chosen[index + 1][0]} is behind this line" if len(rest) > 1 else ""
                mark = f"...[{left} more characters, lines: {len(rest)}{next_line}]"
            text = "\n".join([*shown, mark]) if shown else head + mark
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
        raise _invalid("pattern", str(error)) from error


def _pointer(pointer: str | None) -> list[str] | None:
    """Return the unescaped steps of a JSON pointer (RFC 6901); raise `InvalidInputError`."""
    if pointer is None:
        return None
    if pointer and not pointer.startswith("/"):
        raise _invalid("pointer", "a JSON pointer must be empty or begin with /")
    if _BAD_ESCAPE.search(pointer):
        raise _invalid("pointer", "in a JSON pointer, ~ must be followed by 0 or 1")
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


def _invalid(name: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, problems=[Problem("invalid_parameter", f"/query/{name}", message)])
