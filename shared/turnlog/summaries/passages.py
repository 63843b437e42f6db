"""Passages that say most: a history in a few tokens, in its own words.

Each stretch of the history has an even share of the tokens. A word says much when it is a name, has a digit, or is rare in the
history; a word that is quoted already says nothing more, but two words that stand together say something as a pair. Words close to
each other are quoted with what stands between them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise

from turnlog.core.lazy_dataclass import lazy_dataclass

_LINE_TOKENS = 200
"""Tokens of a line, about."""
_LABEL_TOKENS = 8
_NEAR = 2
"""Words between two quoted ones that are quoted too, at most."""
_NAME_WEIGHT, _PAIR_WEIGHT = 2.5, 1.0
_COMMON_SHARE, _COMMON_LEAST = 0.3, 12
"""A word in more stretches than that says little, and so does a word that an earlier line has."""
_LITTLE = 0.1
_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u309f"
_SMALL = "的了是在我你他她它们吗呢吧啊呀哦和也就都很又还这那要会能把被从对给与及或但而着过个们您咱啦嘛"
_TOKEN = re.compile(rf"[{_HAN}]+|[{_KANA}]+|[^\s{_HAN}{_KANA}]+")
_SMALL_RUN = re.compile(f"[^{_SMALL}]+")
_AROUND = ".,;:!?\"'()[]{}<>*_`~“”‘’…，。！？；：、（）《》「」【】"
_ENDING = re.compile(r"[.,;:!?…，。！？；：、)\]）」】\n]")
_QUOTES = frozenset("'\"“”‘’")
_STOP = (
    "i you he she it we they me him her us them my your his its our their mine yours this that these those a an the and or but "
    "so if as of in on at to for with from by about into is am are was were be been being have has had do does did will would "
    "can could should may might must not no yes just really very too also there here what which who whom when where how why "
    "all any some more most than then now up out get got go going gonna i'm it's that's you're we're they're don't didn't "
    "i've i'll i'd let's like one know think well oh hey ok okay yeah thanks thank please sure because while let "
)
_STOP_WORDS = frozenset(_STOP.split())


@lazy_dataclass(frozen=True, slots=True)
class Stretch:
    """Loops ``first`` to ``last`` of a history, and the texts that tell of them."""

    first: int
    last: int
    texts: tuple[str, ...]


@lazy_dataclass(frozen=True, slots=True)
class _Word:
    """A word at a place of a text. ``clause`` numbers the part between two punctuation marks; ``key`` compares words."""

    start: int
    end: int
    clause: int
    key: str


def quoted(stretches: Sequence[Stretch], room: int, cost: Callable[[str], int]) -> str:
    """Return lines of about ``room`` tokens together, ``FIRST-LAST. passages``, with an even share for each loop.

    ``cost`` gives the tokens of a word behind a space.
    """
    history = _Vocabulary(stretches, cost)
    total = sum(stretch.last - stretch.first + 1 for stretch in stretches)
    left, lines = 0.0, list[str]()
    for group in _groups(stretches, max(1, room // _LINE_TOKENS)):
        share = room * sum(stretch.last - stretch.first + 1 for stretch in group) / total
        first, last = group[0].first, group[-1].last
        texts = [text for stretch in group for text in stretch.texts]
        passages, left = _Selection(texts, history).within(left + share - _LABEL_TOKENS)
        label = f"{first}." if first == last else f"{first}-{last}."
        lines.append(f"{label} {passages}".rstrip())
    return "\n".join(lines)


def _groups(stretches: Sequence[Stretch], count: int) -> Iterator[Sequence[Stretch]]:
    """Yield at most ``count`` groups of neighbours, about even in loops."""
    size = -(-sum(stretch.last - stretch.first + 1 for stretch in stretches) // count)
    group, loops = list[Stretch](), 0
    for stretch in stretches:
        group.append(stretch)
        loops += stretch.last - stretch.first + 1
        if loops >= size:
            yield group
            group, loops = [], 0
    if group:
        yield group


class _Vocabulary:
    """The words of a history: how much each says, and what has been quoted."""

    def __init__(self, stretches: Sequence[Stretch], cost: Callable[[str], int]) -> None:
        self.seen = set[str]()
        self.pairs = set[tuple[str, str]]()
        self.cost = cost
        self._weights = dict[str, tuple[float, float]]()
        self._stretches = len(stretches)
        self._in_stretches = Counter[str]()
        capitals = Counter[str]()
        for stretch in stretches:
            keys = set[str]()
            for text in stretch.texts:
                clause = -1
                for word in words_of(text):
                    keys.add(word.key)
                    if word.clause == clause:
                        capitals[word.key] += 1 if text[word.start].isupper() else -1
                    clause = word.clause
            self._in_stretches.update(keys)
        self._names = {key for key, surplus in capitals.items() if surplus > 0}
        self._common = max(_COMMON_LEAST, _COMMON_SHARE * self._stretches)

    def says_something(self, word: _Word) -> bool:
        if any(map(str.isdigit, word.key)):
            return True
        return len(word.key) > 1 and word.key not in _STOP_WORDS

    def weight(self, key: str) -> float:
        """Return how much a word says: less when it is common, or when an earlier line has it."""
        weights = self._weights.get(key)
        if weights is None:
            count = self._in_stretches[key]
            factor = _NAME_WEIGHT if key in self._names or any(map(str.isdigit, key)) else 1
            weight = math.log(1 + self._stretches / count) * factor
            weights = weight * _LITTLE if count > self._common else weight, weight * _LITTLE
            self._weights[key] = weights
        return weights[key in self.seen]


class _Selection:
    """Passages of some texts. Words are taken in the order of what they say for a token."""

    def __init__(self, texts: Sequence[str], history: _Vocabulary) -> None:
        self._history = history
        self._words = [word for text in texts for word in words_of(text)]
        self._texts = [text for text in texts for _ in words_of(text)]
        telling = [index for index, word in enumerate(self._words) if history.says_something(word)]
        self._near = defaultdict[int, list[int]](list)
        for before, after in pairwise(telling):
            if after - before <= _NEAR + 1 and self._is_one_clause(before, after):
                self._near[before].append(after)
                self._near[after].append(before)
        self._telling = telling
        self._taken = set[int]()
        self._seen = set[str]()

    def within(self, room: float) -> tuple[str, float]:
        """Return passages of about ``room`` tokens, in order, and the tokens that are left."""
        queue = [(-self._gain(index)[0], index) for index in self._telling]
        heapify(queue)
        while queue:
            _, index = heappop(queue)
            if index in self._taken:
                continue
            gain, cost = self._gain(index)
            if gain <= 0 or cost > room:
                continue
            if queue and gain < -queue[0][0]:
                heappush(queue, (-gain, index))
                continue
            self._take(index)
            room -= cost
            for neighbour in self._near[index]:
                heappush(queue, (-self._gain(neighbour)[0], neighbour))
        self._history.seen |= self._seen
        return " ".join(self._passages()), room

    def _gain(self, index: int) -> tuple[float, int]:
        """Return what one more word says for a token, and the tokens that it takes with the words up to its taken neighbours."""
        history, key = self._history, self._words[index].key
        gain = history.weight(key) if key not in self._seen else 0.0
        cost = history.cost(self._shown(index))
        for neighbour in self._near[index]:
            if neighbour in self._taken:
                first, last = sorted((index, neighbour))
                cost += sum(history.cost(self._shown(between)) for between in range(first + 1, last))
                pair = self._words[first].key, self._words[last].key
                if pair not in history.pairs:
                    gain += _PAIR_WEIGHT * min(map(history.weight, pair))
        return gain / cost, cost

    def _take(self, index: int) -> None:
        history = self._history
        for neighbour in self._near[index]:
            if neighbour in self._taken:
                first, last = sorted((index, neighbour))
                history.pairs.add((self._words[first].key, self._words[last].key))
                self._taken.update(range(first, last))
        self._taken.add(index)
        self._seen.add(self._words[index].key)

    def _passages(self) -> Iterator[str]:
        first = last = None
        for index in sorted(self._taken):
            if first is None or last is None or index != last + 1 or not self._is_one_clause(last, index):
                if first is not None and last is not None:
                    yield self._passage(first, last)
                first = index
            last = index
        if first is not None and last is not None:
            yield self._passage(first, last)

    def _passage(self, first: int, last: int) -> str:
        """Return the text from one word to another, with quotation marks around it."""
        text, start, end = self._texts[first], self._words[first].start, self._words[last].end
        if text[start - 1 : start] in _QUOTES and text[end : end + 1] in _QUOTES and start:
            start, end = start - 1, end + 1
        return text[start:end]

    def _is_one_clause(self, before: int, after: int) -> bool:
        """Return whether two words stand in one part of a text between punctuation marks."""
        is_one_text = self._texts[before] is self._texts[after]
        return is_one_text and self._words[before].clause == self._words[after].clause

    def _shown(self, index: int) -> str:
        return self._texts[index][self._words[index].start : self._words[index].end]


@lru_cache(maxsize=512)
def words_of(text: str) -> tuple[_Word, ...]:
    """Return the words of a text without punctuation around them. Runs of Chinese characters are parted at particles.

    The same texts are asked for again, by the summary and by the outline of a round.
    """
    return tuple(_words_of(text))


def _words_of(text: str) -> Iterator[_Word]:
    clause, end = 0, 0
    for token in _TOKEN.finditer(text):
        start, stripped = token.start(), token[0].lstrip(_AROUND)
        start += len(token[0]) - len(stripped)
        shown = stripped.rstrip(_AROUND)
        clause += "\n" in text[end : token.start()] or bool(_ENDING.search(text, token.start(), start))
        end = token.end()
        runs = _SMALL_RUN.finditer(shown) if shown and shown[0] >= "\u3400" else [re.match(r".*", shown, re.DOTALL)]
        for run in runs:
            if run is not None and run[0]:
                yield _Word(start + run.start(), start + run.end(), clause, run[0].casefold())
        clause += bool(_ENDING.search(text, start + len(shown), end))
