"""Passages that say most: a history in a few tokens, in its own words.

Each stretch of the history has an even share of the tokens. Phrases are quoted whole: words that stand together, and phrases that
only small words part. A phrase says much when its words are names, have digits or are rare in the history, and when people tell
of themselves or answer a question with it; what is quoted already says nothing more. A later extract keeps the first phrases of
this one, which say most.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate, chain, groupby, pairwise, zip_longest
from typing import NamedTuple, TypeAlias

from turnlog.core.lazy_dataclass import lazy_dataclass

_LINE_TOKENS = 200
"""Tokens of a line, about."""
_LABEL_TOKENS = 8
_TIER, _TIER_TOKENS = " / ", 16
"""Passages of a line stand in tiers of about so many tokens: those that say most in the first, so that a shorter line is its
first tiers."""
_LONGEST = 4
"""Words of a phrase, at most; what follows is a phrase that is linked with it."""
_MOST_LINKS = 2
"""Small words between two linked phrases, at most."""
_NAME_WEIGHT, _TALK_WEIGHT, _PAIR_WEIGHT = 2.5, 0.25, 2.0
_COMMON_SHARE, _COMMON_LEAST = 0.3, 12
"""A word in more stretches than that says little, and so does a word that an earlier line has."""
_LITTLE = 0.1
_SHORT_WORDS = 3
_OF_SPEAKER, _OF_OTHER, _QUESTION, _ANSWER, _SHORT, _ASIDE = 1.5, 0.3, 0.3, 2.0, 0.5, 0.7
"""What the words of a sentence say: of a speaker who tells of themselves, of the other person, of a question, behind a question,
of a sentence of up to three words, in brackets."""
_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u309f"
_SMALL = "的了是在我你他她它们吗呢吧啊呀哦和也就都很又还这那要会能把被从对给与及或但而着过个们您咱啦嘛"
_TOKEN = re.compile(
    rf"[\"“«《「](?P<title>[^\"“”«»《》「」\n]{{1,80}})[\"”»》」]|[{_HAN}]+|[{_KANA}]+|[^\s{_HAN}{_KANA}]+"
)
_SMALL_RUN = re.compile(f"[^{_SMALL}]+")
_AROUND = ".,;:!?\"'()[]{}<>*_`~“”‘’…，。！？；：、（）《》「」【】"
_ENDING = re.compile(r"[.,;:!?…，。！？；：、)\]）」】\n]")
_SENTENCE = re.compile(r"[^\s].*?(?:[.!?…](?=[\"'”’)\]]{0,2}(?:\s|$))|[。！？\n]|(?= \[)|$)", re.DOTALL)
_SPEAKER = re.compile(r"\b(?:i|me|my|mine|we|us|our|ours)\b|[我咱]", re.IGNORECASE)
_OTHER = re.compile(r"\b(?:you|your|yours)\b|[你您]", re.IGNORECASE)
_QUESTIONS = ("?", "？")
_OPENING = ('"', "“", "«", "《", "「")
_CLOSING = "\"'”’)] "
_ABBREVIATED = re.compile(r"(?:[A-Z]\.)*[A-Z][a-z]?\.")
_QUOTES = frozenset("'\"“”‘’")
_LINK = "a an the of in on at to for with from by and or my your his her its our their as into about"
_LINKS = frozenset(_LINK.split())
_STOP = (
    "i you he she it we they me him her us them my your his its our their mine yours this that these those a an the and or but "
    "so if as of in on at to for with from by about into is am are was were be been being have has had do does did will would "
    "can could should may might must not no yes just really very too also there here what which who whom when where how why "
    "all any some more most than then now up out get got go going gonna i'm it's that's you're we're they're don't didn't "
    "i've i'll i'd let's like one know think well oh hey ok okay yeah thanks thank please sure because while let "
)
_STOP_WORDS = frozenset(_STOP.split())
_TALK = (
    "wow congrats congratulations hi hello bye sorry absolutely definitely totally awesome amazing great good nice cool glad "
    "happy love loved loving wonderful fantastic incredible lovely sweet fun excited exciting inspiring beautiful perfect "
    "important special interesting super pretty quite kinda kind sort though maybe perhaps actually especially truly only "
    "looking forward wait can't hope hoping feel feeling feels felt make makes making made see seeing saw seen take takes "
    "taking took come came coming keep keeps keeping kept help helps helping helped tell telling told say says saying said "
    "talk talking hear hearing heard look looks looked want wanna wanted need needs needed try trying tried give gives giving "
    "gave find found finding show shows start started put thought thinking believe guess mean means meant work works worked "
    "working went gone getting gets goes doing done having used use using agree appreciate understand remember enjoy enjoyed "
    "share sharing wish imagine happen happened happens stay staying move moving live life world thing things way ways lot "
    "lots bit day days time times people something anything everything someone anyone everyone always never ever still even "
    "again back down off over much many such every other another own same new long little big right best better since after "
    "before until through during both each few around lately recently soon later already yet once there's here's what's who's "
    "how's he's she's we've you've they've you'd we'd they'd it'll you'll we'll they'll that'll haven't hasn't isn't aren't "
    "wasn't weren't won't wouldn't couldn't shouldn't doesn't ain't "
)
_TALK_WORDS = frozenset(_TALK.split())
"""Words that every talk is made of: they say less."""


@lazy_dataclass(frozen=True, slots=True)
class Stretch:
    """Loops ``first`` to ``last`` of a history, and the texts that tell of them: what was said, or an extract of it."""

    first: int
    last: int
    texts: tuple[str, ...]
    is_extract: bool = False


_Pair: TypeAlias = tuple[str, str]


class _Word(NamedTuple):
    """A word at a place of a text. ``key`` compares words; ``tells`` says whether it is more than a small word."""

    start: int
    end: int
    key: str
    tells: bool


@lazy_dataclass(frozen=True, slots=True)
class _Phrase:
    """Words of a text that are quoted together.

    ``words`` are shown, and ``keys`` compare those that tell something; ``capitals`` says of each of them whether it is written
    with a capital: 1 or -1, or 0 where a clause begins. ``between`` are the small words between it and the phrase before, which
    are quoted with both; None: they are not linked. ``factor`` is what the sentence is worth.
    """

    text: str
    start: int
    end: int
    words: tuple[str, ...]
    keys: tuple[str, ...]
    capitals: tuple[int, ...]
    between: tuple[str, ...] | None
    factor: float


_Part: TypeAlias = tuple[Stretch, Sequence[_Phrase]]


class Passages:
    """The passages of a history. ``cost`` gives the tokens of a word behind a space."""

    def __init__(self, stretches: Sequence[Stretch], cost: Callable[[str], int]) -> None:
        self._cost = cost
        self._parts = list(_parsed(stretches))
        self._loops = _loops(self._parts)
        self._weights = _weights([phrases for stretch, phrases in self._parts if not stretch.is_extract])

    def within(self, room: int) -> str:
        """Return lines of about ``room`` tokens together, ``FIRST-LAST: passages``, with an even share for each loop."""
        quoted, lines, left = _Quoted(self._weights), list[str](), 0.0
        for is_extract, parts in groupby(self._parts, key=lambda part: part[0].is_extract):
            for group in _groups(list(parts), room / self._loops):
                left += room * _loops(group) / self._loops - _LABEL_TOKENS
                tiers, left = (self._shortened if is_extract else self._selected)(group, left, quoted)
                first, last = group[0][0].first, group[-1][0].last
                label = f"{first}:" if first == last else f"{first}-{last}:"
                lines.append(f"{label} {_TIER.join(tiers)}".rstrip())
                quoted.end_line()
        return "\n".join(lines)

    def _selected(self, group: Sequence[_Part], room: float, quoted: _Quoted) -> tuple[list[str], float]:
        """Return passages of about ``room`` tokens in tiers, those that say most in the first, and the tokens that are left."""
        phrases = [phrase for _, phrases in group for phrase in phrases]
        selection = _Selection(phrases, quoted, self._cost)
        left = selection.take(room)
        return list(selection.tiers()), left

    def _shortened(self, group: Sequence[_Part], room: float, quoted: _Quoted) -> tuple[list[str], float]:
        """Return the first tiers of extracts, an even share of ``room`` tokens for each loop, and the tokens that are left."""
        kept, left, loops = list[list[str]](), 0.0, _loops(group)
        for part in group:
            tiers, left = self._first(part[0].texts, left + room * _loops([part]) / loops)
            kept.append(tiers)
        tiers = [tier for ranked in zip_longest(*kept) for tier in ranked if tier]
        quoted.add([word.strip(_AROUND).casefold() for tier in tiers for word in tier.split()], ())
        return tiers, left

    def _first(self, texts: Sequence[str], room: float) -> tuple[list[str], float]:
        """Return the first tiers of texts, the last of them cut between words, and the tokens that are left."""
        tiers = list[str]()
        for tier in chain.from_iterable(text.split(_TIER) for text in texts):
            words = tier.split(" ")
            count = next(
                (index for index, tokens in enumerate(accumulate(map(self._cost, words))) if tokens > room), len(words)
            )
            if count:
                tiers.append(" ".join(words[:count]))
                room -= sum(map(self._cost, words[:count])) + 1
            if count < len(words):
                break
        return tiers, room


def _loops(parts: Sequence[_Part]) -> int:
    return sum(stretch.last - stretch.first + 1 for stretch, _ in parts)


def _groups(parts: Sequence[_Part], share: float) -> Iterator[Sequence[_Part]]:
    """Yield groups of neighbours, about even in loops, with a line's tokens each when a loop has ``share`` tokens."""
    loops = _loops(parts)
    size = -(-loops // max(1, int(share * loops / _LINE_TOKENS)))
    group = list[_Part]()
    for part in parts:
        group.append(part)
        if _loops(group) >= size:
            yield group
            group = []
    if group:
        yield group


def _parsed(stretches: Sequence[Stretch]) -> Iterator[_Part]:
    """Yield each stretch with the phrases of what was said."""
    is_asked = False
    for stretch in stretches:
        phrases = list[_Phrase]()
        for text in stretch.texts if not stretch.is_extract else ():
            phrases += _phrases_of(text, is_asked)
            is_asked = any(mark in text for mark in _QUESTIONS)
        yield stretch, phrases


def _weights(parts: Sequence[Sequence[_Phrase]]) -> dict[str, float]:
    """Return how much each word says: more when it is a name or rare in the history, less when every talk has it."""
    within, capitals = Counter[str](), Counter[str]()
    for phrases in parts:
        within.update({key for phrase in phrases for key in phrase.keys})
        for phrase in phrases:
            for key, capital in zip(phrase.keys, phrase.capitals, strict=True):
                capitals[key] += capital
    common, weights = max(_COMMON_LEAST, _COMMON_SHARE * len(parts)), dict[str, float]()
    for key, count in within.items():
        weight = math.log(1 + len(parts) / count) * (_LITTLE if count > common else 1)
        if capitals[key] > 0 or any(map(str.isdigit, key)):
            weight *= _NAME_WEIGHT
        elif key in _TALK_WORDS:
            weight *= _TALK_WEIGHT
        weights[key] = 0.0 if key in _STOP_WORDS else weight
    return weights


class _Quoted:
    """The words and the pairs of words that earlier lines, and the line under way, quote already."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._earlier, self._here, self._pairs = set[str](), set[str](), set[_Pair]()

    def gain(self, keys: Sequence[str], pairs: Sequence[_Pair]) -> float:
        """Return what words and pairs add to what is quoted."""
        gain, weights = 0.0, self._weights
        for key in keys:
            if key not in self._here:
                gain += weights[key] * (_LITTLE if key in self._earlier else 1)
        for pair in pairs:
            if pair not in self._pairs:
                gain += _PAIR_WEIGHT * min(weights[pair[0]], weights[pair[1]])
        return gain

    def add(self, keys: Sequence[str], pairs: Sequence[_Pair]) -> None:
        self._here.update(keys)
        self._pairs.update(pairs)

    def end_line(self) -> None:
        self._earlier |= self._here
        self._here = set()


class _Selection:
    """Phrases of a line. They are taken in the order of what they say for a token."""

    def __init__(self, phrases: Sequence[_Phrase], quoted: _Quoted, cost: Callable[[str], int]) -> None:
        self._phrases = phrases
        self._quoted = quoted
        self._cost = cost
        self._costs = [sum(map(cost, phrase.words)) for phrase in phrases]
        self._pairs = [tuple(pairwise(phrase.keys)) for phrase in phrases]
        self._taken = dict[int, int]()

    def take(self, room: float) -> float:
        """Take phrases of about ``room`` tokens; return the tokens that are left."""
        queue = [(-self._value(index)[0], index) for index in range(len(self._phrases))]
        heapify(queue)
        while queue:
            _, index = heappop(queue)
            if index in self._taken:
                continue
            value, cost, pairs = self._value(index)
            if value <= 0 or cost > room:
                continue
            if queue and value < -queue[0][0]:
                heappush(queue, (-value, index))
                continue
            self._taken[index] = len(self._taken)
            self._quoted.add(self._phrases[index].keys, pairs)
            room -= cost
            for neighbour in self._linked(index):
                if neighbour not in self._taken:
                    heappush(queue, (-self._value(neighbour)[0], neighbour))
        return room

    def _value(self, index: int) -> tuple[float, int, Sequence[_Pair]]:
        """Return what a phrase says for a token, its tokens with what links it to taken ones, and its pairs of words."""
        phrase, cost, pairs = self._phrases[index], self._costs[index], self._pairs[index]
        for neighbour in self._linked(index):
            if neighbour in self._taken:
                before, after = self._phrases[min(index, neighbour)], self._phrases[max(index, neighbour)]
                pairs = (*pairs, (before.keys[-1], after.keys[0]))
                cost += sum(map(self._cost, after.between or ()))
        return phrase.factor * self._quoted.gain(phrase.keys, pairs) / max(cost, 1), cost, pairs

    def _linked(self, index: int) -> Iterator[int]:
        if self._phrases[index].between is not None:
            yield index - 1
        if index + 1 < len(self._phrases) and self._phrases[index + 1].between is not None:
            yield index + 1

    def tiers(self) -> Iterator[str]:
        """Yield passages of about `_TIER_TOKENS` together, in the order of the text, those that were taken first before others."""
        tier, tokens = list[tuple[int, str]](), 0
        for _, start, end in sorted(self._passages()):
            first, last = self._phrases[start], self._phrases[end - 1]
            tier.append((start, _passage(first.text, first.start, last.end)))
            tokens += sum(self._costs[start:end])
            if tokens >= _TIER_TOKENS:
                yield " ".join(passage for _, passage in sorted(tier))
                tier, tokens = [], 0
        if tier:
            yield " ".join(passage for _, passage in sorted(tier))

    def _passages(self) -> Iterator[tuple[int, int, int]]:
        """Yield the taken phrases, linked ones together: when the first of them was taken, and from where to where they stand."""
        start, ranks = 0, list[int]()
        for index in sorted(self._taken):
            if ranks and (index != start + len(ranks) or self._phrases[index].between is None):
                yield min(ranks), start, start + len(ranks)
                ranks = []
            start = start if ranks else index
            ranks.append(self._taken[index])
        if ranks:
            yield min(ranks), start, start + len(ranks)


def _passage(text: str, start: int, end: int) -> str:
    """Return a part of a text, with quotation marks around it."""
    if start and text[start - 1] in _QUOTES and text[end : end + 1] in _QUOTES:
        start, end = start - 1, end + 1
    return text[start:end]


@lru_cache(maxsize=512)
def _phrases_of(text: str, is_answer: bool) -> tuple[_Phrase, ...]:
    """Return the phrases of a text. ``is_answer``: it follows a question.

    The same texts are asked for again, by the summary and by the outline of a round.
    """
    phrases = list[_Phrase]()
    for sentence in _SENTENCE.finditer(text):
        factor = _factor(sentence[0]) * (_ANSWER if is_answer else 1)
        for clause in _clauses(text, sentence.start(), sentence.end()):
            phrases += _in_clause(text, clause, factor)
    return tuple(phrases)


def _factor(sentence: str) -> float:
    """Return what the words of a sentence are worth, by who is told of and how."""
    is_own, is_other = _SPEAKER.search(sentence) is not None, _OTHER.search(sentence) is not None
    factor = 1.0 if is_own == is_other else _OF_SPEAKER if is_own else _OF_OTHER
    if sentence.rstrip(_CLOSING).endswith(_QUESTIONS):
        factor *= _QUESTION
    if sentence[0] == "[":
        factor *= _ASIDE
    return factor * _SHORT if sentence[0] < "\u2e80" and sentence.count(" ") < _SHORT_WORDS else factor


def _clauses(text: str, start: int, end: int) -> Iterator[list[_Word]]:
    """Yield the words between two punctuation marks. The words of a title in quotation marks are a clause."""
    words = list[_Word]()
    for token in _TOKEN.finditer(text, start, end):
        if token["title"]:
            yield words
            yield [word._replace(tells=True) for word in _title_words(token["title"], token.start("title"))]
            words = []
            continue
        shown = token[0].strip(_AROUND)
        if len(shown) == len(token[0]):
            words += _words(shown, token.start())
            continue
        before, _, after = token[0].partition(shown) if shown else (token[0], "", "")
        if _ENDING.search(before):
            yield words
            words = []
        words += _words(shown, token.start() + len(before))
        if _ENDING.search(after) and not _ABBREVIATED.fullmatch(shown + after):
            yield words
            words = []
    yield words


def _title_words(title: str, start: int) -> Iterator[_Word]:
    for token in _TOKEN.finditer(title):
        yield from _words(token[0], start + token.start())


def is_stop_word(word: str) -> bool:
    """Return whether a word tells nothing by itself, such as "I'll". A word in capitals is taken for a name: "US", "IT"."""
    return not word.isupper() and _key_of(word) in _STOP_WORDS


def _key_of(word: str) -> str:
    return word.casefold().replace("’", "'")


def _words(token: str, start: int) -> Iterator[_Word]:
    """Yield the word of a token. A run of Chinese characters is parted at particles."""
    if token[:1] >= "\u3400":
        for run in _SMALL_RUN.finditer(token):
            yield _Word(start + run.start(), start + run.end(), run[0], len(run[0]) > 1)
    elif token:
        key = _key_of(token)
        tells = key not in _STOP_WORDS and (len(key) > 1 or key.isdigit())
        yield _Word(start, start + len(token), key, tells)


def _in_clause(text: str, clause: Sequence[_Word], factor: float) -> Iterator[_Phrase]:
    """Yield the phrases of a clause: words without small words between them, at most `_LONGEST`."""
    end, start = 0, 0
    while start < len(clause):
        if not clause[start].tells:
            start += 1
            continue
        stop = start + 1
        while stop < min(len(clause), start + _LONGEST) and clause[stop].tells:
            stop += 1
        gap = clause[end:start]
        is_linked = end > 0 and len(gap) <= _MOST_LINKS and all(word.key in _LINKS for word in gap)
        first = start - 1 if not is_linked and gap and gap[-1].key in ("a", "an") else start
        yield _Phrase(
            text,
            clause[first].start,
            clause[stop - 1].end,
            tuple(text[word.start : word.end] for word in clause[first:stop]),
            tuple(word.key for word in clause[start:stop]),
            tuple(_capital(text, word, clause[0]) for word in clause[start:stop]),
            tuple(text[clause[end - 1].end : clause[start].start].split()) if is_linked else None,
            factor,
        )
        end = start = stop


def _capital(text: str, word: _Word, first: _Word) -> int:
    """Return 1 for a word with a capital or that begins a title, 0 for the ``first`` word of a clause, else -1."""
    if text[max(0, word.start - 1) : word.start] in _OPENING:
        return 1
    return 0 if word is first else 1 if text[word.start].isupper() else -1
