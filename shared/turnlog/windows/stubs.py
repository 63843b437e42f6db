"""Stubs: tool results that are sent in short, each with the ref by which the whole result is found.

A stub has the beginning of a result and its values; it is made from facts that a card has too, so a result that is stored
separately need not be read for it. A large result that is cut to the room that there is loses only its middle, at the borders of
lines or JSON elements: errors stand at the end.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from turnlog.core.calls import CARD_CHARS
from turnlog.core.lazy_dataclass import once
from turnlog.core.messages import Media, Text, ToolResult
from turnlog.core.token_bounds import lower_bound_tokens, upper_bound_tokens
from turnlog.providers.blocks import kind_of
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.ledger import chosen, is_said
from turnlog.windows.text import VALUES, VALUES_TOKENS, truncation_mark, value_cost
from turnlog.windows.view import CallResult, Entry, Stub, Unit

PREVIEW_TOKENS = 100
OVER_TOKENS = 200
MAX_VALUES = 20
LARGE_RESULT = "large_result"
"""The reason of a result in the manifest whose middle is left out because it does not fit."""
LEAST_TOKENS = 64
"""A result of at most so many tokens is never cut: the mark alone would take two thirds of them."""
STRETCH_CHARS = 4_000
"""Characters whose least tokens are counted together."""
_ERROR_MARK = 6
_CHARS_PER_TOKEN = 4
_HEAD_SHARE = 0.6
_TRIES, _FULL = 10, 0.94
"""How often a larger cut is tried, and the share of the room that is enough."""
_SLACK_CHARS = 400
"""Characters before a cut among which a border of lines or elements is looked for."""
_BORDERS = ("\n", "},", "],", ", ", " ")
_TRUE_BORDER = re.compile(r"(?<=[A-Za-z0-9])(?=[ \t\r\n])")
"""Places where no token of the whole text crosses: white space after a letter or digit begins a new piece of the encoding."""
_upper_bound = lru_cache(maxsize=32)(upper_bound_tokens)


def stub_results(
    unit: Unit,
    reason: str,
    *,
    over_tokens: int = OVER_TOKENS,
    preview_tokens: int = PREVIEW_TOKENS,
    whole: Container[int] = (),
) -> Unit:
    """Return the unit with its large results as stubs.

    Applies to messages with results of more than ``over_tokens`` tokens, where the stub is smaller. Messages at the positions
    ``whole`` stay whole.
    """
    costs = [(entry, results_cost(unit, entry)) for entry in _whole_results(unit) if entry.position not in whole]
    large = [(entry, cost) for entry, cost in costs if cost > over_tokens]
    stubs = [(_stub(entry, answers_in(unit, entry), reason, preview_tokens), cost) for entry, cost in large]
    return _with_stubs(unit, [(stub, cost) for stub, cost in stubs if stub.tokens < cost])


def cut_results(unit: Unit, tokens: int) -> Unit:
    """Return the unit with its results cut so that they take at most ``tokens`` tokens together; small ones stay whole.

    A result whose payload has not been fetched gets a stub without texts: read the payload, then cut again.
    """
    entries = _whole_results(unit)
    costs = [results_cost(unit, entry) for entry in entries]
    rooms = zip(entries, costs, _allotted(costs, _leasts(unit, entries), tokens), strict=True)
    return _with_stubs(unit, [(_cut(unit, entry, room), cost) for entry, cost, room in rooms if cost > room])


def _with_stubs(unit: Unit, stubs: Sequence[tuple[Stub, int]]) -> Unit:
    """Return the unit with stubs, each in place of results with so many tokens."""
    saved = sum(cost - stub.tokens for stub, cost in stubs)
    shown = (*unit.stubs, *(stub for stub, _ in stubs))
    return replace(unit, stubs=shown, tokens=unit.tokens - saved) if saved else unit


def results_tokens(unit: Unit) -> int:
    """Return the tokens of the messages with results that a unit sends."""
    return sum(results_cost(unit, entry) for entry in _whole_results(unit))


def capped_tokens(unit: Unit, cap: int) -> int:
    """Return the most tokens of a unit whose results are cut so that they take ``cap`` tokens, or the least that is possible."""
    entries = _whole_results(unit)
    costs = [results_cost(unit, entry) for entry in entries]
    if sum(costs) <= cap:
        return unit.tokens
    return unit.tokens - sum(costs) + sum(_allotted(costs, _leasts(unit, entries), cap))


def _leasts(unit: Unit, entries: Sequence[Entry]) -> list[int]:
    """Return the least tokens that the results in each of a unit's messages take when they are cut."""
    return [
        sum(
            LEAST_TOKENS + stub_overhead(entry.outline.results[answer.index].name) for answer in answers_in(unit, entry)
        )
        for entry in entries
    ]


def _whole_results(unit: Unit) -> Sequence[Entry]:
    """Return the messages with results that may be shortened: not those of a pinned message, nor those that are stubs already."""
    if unit.level != "whole" or unit.pinned or not unit.answers:
        return ()
    return [entry for entry in result_entries(unit) if unit.stub_at(entry.position) is None]


def result_entries(unit: Unit) -> Sequence[Entry]:
    """Return the messages with results of the unit's calls, also those that have calls and results."""
    positions = {answer.entry.position for answer in unit.answers if answer.entry is not None}
    both = [entry for entry in unit.said if entry.position in positions]
    return [*both, *unit.behind]


def results_cost(unit: Unit, entry: Entry) -> int:
    """Return the tokens that a unit counts for the results in one of its messages: the most that stubs can save."""
    if all(entry.position != member.position for member in unit.said):
        return entry.cost
    if entry.message is None:
        return 0
    return sum(lower_bound_tokens(entry.message.tool_results[answer.index].text) for answer in answers_in(unit, entry))


def stub_overhead(name: str) -> int:
    """Return the most tokens that a shortened result takes besides its text; ``name`` is the name in the result."""
    return upper_bound_tokens(name) + MESSAGE_OVERHEAD + _ERROR_MARK


def answers_in(unit: Unit, entry: Entry) -> Sequence[CallResult]:
    """Return the unit's results that stand in one message."""
    return _answers_by_message(unit).get(entry.position, ())


@once
def _answers_by_message(unit: Unit) -> Mapping[int, Sequence[CallResult]]:
    answers = defaultdict[int, list[CallResult]](list)
    for answer in unit.answers:
        if answer.entry is not None:
            answers[answer.entry.position].append(answer)
    return answers


def _stub(entry: Entry, answers: Sequence[CallResult], reason: str, preview_tokens: int) -> Stub:
    results = entry.outline.results
    chars = CARD_CHARS // max(1, len(results))
    texts, tokens = list[str](), 0
    for answer in answers:
        result = results[answer.index]
        shown, bound = beginning(result.text[:chars], preview_tokens)
        mark = f"{truncation_mark(result.chars - len(shown))}\n[shortened; ref {answer.ref}]"
        texts.append(shown + mark)
        tokens += bound + upper_bound_tokens(mark) + stub_overhead(result.name)
    said = "\n".join(texts)
    values = chosen((value for value in entry.values() if not is_said(value, said)), MAX_VALUES)
    if values:
        texts[0] += VALUES + ", ".join(values)
        tokens += VALUES_TOKENS + sum(map(value_cost, values))
    refs = [answer.ref for answer in answers]
    return Stub(entry.position, tuple(zip(refs, texts, strict=True)), tokens, reason)


@lru_cache(maxsize=1024)
def beginning(text: str, tokens: int) -> tuple[str, int]:
    """Return the text's beginning of at most ``tokens`` tokens, and an upper bound of its tokens."""
    text = text[: tokens * _CHARS_PER_TOKEN]
    while text and (bound := upper_bound_tokens(text)) > tokens:
        text = text[: min(len(text) - 1, len(text) * tokens // bound)]
    return text, bound if text else 0


def _allotted(costs: Sequence[int], leasts: Sequence[int], room: int) -> list[int]:
    """Return what each of several costs gets of a room: small ones all that they need, the others equal shares.

    None gets less than its least; one whose least is above an equal share gets that.
    """
    shares = list(map(min, costs, leasts))
    waiting = sorted(range(len(costs)), key=costs.__getitem__)
    while large := [index for index in waiting if shares[index] * len(waiting) > max(0, room)]:
        room -= sum(shares[index] for index in large)
        waiting = [index for index in waiting if index not in large]
    for index, count in zip(waiting, range(len(waiting), 0, -1), strict=True):
        shares[index] = min(costs[index], room // count)
        room -= shares[index]
    return shares


def _cut(unit: Unit, entry: Entry, room: int) -> Stub:
    answers = answers_in(unit, entry)
    if entry.message is None:
        return Stub(entry.position, (), room, LARGE_RESULT)
    results = [entry.message.tool_results[answer.index] for answer in answers]
    marks = [_mark_of_media(result, str(answer.ref)) for result, answer in zip(results, answers, strict=True)]
    overheads = [
        stub_overhead(result.name) + upper_bound_tokens(mark) for result, mark in zip(results, marks, strict=True)
    ]
    texts = [result.text for result in results]
    rooms = _allotted([_upper_bound(text) for text in texts], [LEAST_TOKENS] * len(texts), room - sum(overheads))
    refs = [answer.ref for answer in answers]
    is_alone = len(results) == len(entry.facts.results) == 1
    if is_alone and len(results[0].content) == 1 and isinstance(results[0].content[0], Text):
        # The stored count of the whole message bounds what is left of it better than the text alone does.
        shown = [cut_of_counted(texts[0], rooms[0], str(refs[0]), entry.event.tokens)]
    else:
        shown = [cut_middle(text, limit, str(ref)) for text, limit, ref in zip(texts, rooms, refs, strict=True)]
    tokens = sum(overheads) + sum(bound for _, bound in shown)
    sent_texts = (text + mark for (text, _), mark in zip(shown, marks, strict=True))
    return Stub(entry.position, tuple(zip(refs, sent_texts, strict=True)), tokens, LARGE_RESULT)


def _mark_of_media(result: ToolResult, ref: str) -> str:
    """Return the mark that names the images and files which a result sent as text has lost; empty when it has none."""
    media = [block for block in result.content if not isinstance(block, Text)]
    kinds = dict.fromkeys(block.kind if isinstance(block, Media) else kind_of(block) for block in media)
    return f"\n[{', '.join(kinds)} left out here; ref {ref} has the whole result]" if kinds else ""


@lru_cache(maxsize=256)
def cut_of_counted(text: str, room: int, ref: str, counted: int) -> tuple[str, int]:
    """Return the cut text and its bound, where the whole text is known to take at most ``counted`` tokens.

    What is left takes at most what the whole takes, less the least that the middle takes, plus what cutting may add. So more of the
    text fits than its upper bound alone would allow.
    """
    if (whole := _upper_bound(text)) <= room:
        return text, whole
    least = LeastTokens(text)

    def bound(head: int, tail: int) -> int:
        return _bound_of_rest(text, head, tail, counted, least) + upper_bound_tokens(_mark(text, head, tail, ref))

    return max(cut_middle(text, room, ref), _largest(text, room, ref, bound, counted), key=lambda cut: len(cut[0]))


class LeastTokens:
    """The least tokens of any part of a text between two true borders. The whole text is looked at once."""

    def __init__(self, text: str) -> None:
        self._text, self._places, self._totals = text, [0], [0]
        while (border := _TRUE_BORDER.search(text, self._places[-1] + STRETCH_CHARS)) is not None:
            self._totals.append(self._totals[-1] + lower_bound_tokens(text[self._places[-1] : border.start()]))
            self._places.append(border.start())

    def between(self, start: int, end: int) -> int:
        first, last = bisect_left(self._places, start), bisect_right(self._places, end) - 1
        if first > last:
            return lower_bound_tokens(self._text[start:end])
        before, behind = self._text[start : self._places[first]], self._text[self._places[last] : end]
        return lower_bound_tokens(before) + self._totals[last] - self._totals[first] + lower_bound_tokens(behind)


def _bound_of_rest(text: str, head: int, tail: int, counted: int, least: LeastTokens) -> int:
    """Return the most tokens of a text without its middle, from the count of the whole and the least of its parts."""
    end = len(text) - tail
    before, after = text[max(0, head - _SLACK_CHARS) : head], text[end : end + _SLACK_CHARS]
    left = max((match.start() for match in _TRUE_BORDER.finditer(before)), default=None)
    right = next((match.start() for match in _TRUE_BORDER.finditer(after)), None)
    slack = max(head, end - _SLACK_CHARS)
    first = _TRUE_BORDER.search(text, head + 1, end)
    last = max((match.start() for match in _TRUE_BORDER.finditer(text, slack + 1, end)), default=None)
    if left is None or right is None or first is None or last is None:
        return upper_bound_tokens(text[:head]) + upper_bound_tokens(text[end:])
    inner = least.between(first.start(), max(first.start(), last))
    return counted - inner + upper_bound_tokens(before[left:]) + upper_bound_tokens(after[:right])


@lru_cache(maxsize=256)
def cut_middle(text: str, tokens: int, ref: str) -> tuple[str, int]:
    """Return the text within ``tokens`` tokens, its middle replaced by a mark, and the most tokens that it takes."""
    whole = _upper_bound(text)
    if whole <= tokens:
        return text, whole
    return _largest(text, tokens, ref, lambda head, tail: upper_bound_tokens(_shown(text, head, tail, ref)), whole)


def _largest(text: str, room: int, ref: str, bound: Callable[[int, int], int], whole: int) -> tuple[str, int]:
    """Return the largest cut of the text that is found within ``room`` tokens, and its bound; only the mark when none is.

    ``bound`` returns the most tokens of a cut with so many characters of the beginning and of the end; ``whole`` are the text's.
    """
    best = _mark(text, 0, 0, ref)
    tokens, low, high, share = upper_bound_tokens(best), 0.0, 1.0, min(0.98, room / max(1, whole))
    for _ in range(_TRIES):
        head = _length_of_head(text, int(len(text) * share * _HEAD_SHARE))
        tail = _length_of_tail(text, int(len(text) * share * (1 - _HEAD_SHARE)))
        most = bound(head, tail)
        if most <= room:
            low, shown = share, _shown(text, head, tail, ref)
            best, tokens = max((best, tokens), (shown, most), key=lambda cut: len(cut[0]))
            if most >= _FULL * room:
                break
        else:
            high = share
        guess = share * room / max(1, most)
        share = guess if low + (high - low) / 8 < guess < high - (high - low) / 8 else (low + high) / 2
    return best, tokens


def _shown(text: str, head: int, tail: int, ref: str) -> str:
    return text[:head] + _mark(text, head, tail, ref) + text[len(text) - tail :]


def _length_of_head(text: str, length: int) -> int:
    low = max(0, length - max(_SLACK_CHARS, length // 5))
    for border in _BORDERS:
        index = text.rfind(border, low, length)
        if index > 0:
            return index + len(border)
    return length


def _length_of_tail(text: str, length: int) -> int:
    start = len(text) - length
    high = min(len(text), start + max(_SLACK_CHARS, length // 5))
    for border in _BORDERS:
        index = text.find(border, start, high)
        if index >= 0:
            return len(text) - index - len(border)
    return length


def _mark(text: str, head: int, tail: int, ref: str) -> str:
    middle = text[head : len(text) - tail]
    lines = middle.count("\n")
    first = text.count("\n", 0, head) + 1
    where = f", lines {first} to {first + lines}" if lines > 1 else ""
    return f"\n[... {len(middle)} characters{where} left out here; ref {ref} has the whole result ...]\n"
