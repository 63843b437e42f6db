"""`SearchEngine` with the tokenizer of SQLite's FTS5 (Porter stemming; part of Python's standard library), ranked by BM25.

BM25 is computed here, not by FTS5: FTS5 ranks by the statistics of its own table, and search needs those of a session's history.
FTS5 gets a word once, when its term is asked for. Stop words have no term, and irregular forms have the term of their base form
(`went`: `go`).
Chinese, Japanese, Korean, Thai, Lao, Burmese and Khmer (here "CJK") have no spaces between words, and emojis are no words: terms
are their characters and the pairs of neighbouring characters. A name such as `getUserById` or `42mm` has the terms of its parts.

Texts and questions are compared by NFKC, without accents and vowel points: `Müller` is one word however it is composed, full width
is plain, and a digit of any script is that digit.
"""

from __future__ import annotations

import math
import re
import sqlite3
import unicodedata
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from heapq import nlargest
from itertools import accumulate, chain, compress, pairwise, repeat
from operator import add, itemgetter, mul
from typing import NamedTuple

from turnlog.log.fork_lock import fork_lock
from turnlog.ports import NEIGHBOUR_REACH, Ranking, TermDocuments

MAX_QUESTION_WORDS = 64
NEIGHBOURS = {0: 100, 1: 50, 2: 25, 3: 10, -1: 30, -2: 15, -3: 6}
"""Weights of a word in percent by the distance to the message that it counts for: its own, those after it, those before it."""
NEIGHBOUR_WORDS = 80
"""Up to so many words of a message count in full for its neighbours; each word of a longer one counts for less."""
PART_WEIGHT = 0.25
"""Weight of a single CJK character of a question that has its neighbours too, and of a part of a name in it."""
TERM_WEIGHT = 2
"""Weight of an occurrence of a term beside that of a word of which a word of the question is only a prefix, which is 1."""
LEAST_PREFIX = 5
"""Letters that a word of a question needs, so that it is a prefix: longer words match it too."""
K1, B = 1.5, 0.45
"""Parameters of BM25: saturation of term frequency, and length normalisation."""
BLOCKS, BLOCK = 64, 8
"""How many blocks of how many rows are ranked where only the best are wanted. All rows of a long session take far longer."""
_TOKENIZING = fork_lock()
"""Held while SQLite makes or uses a table of `tokenizer_table`."""
_LANE = 8 * array("I").itemsize
"""Bits of a lane. Counts of many rows stand in one integer, a lane for each row, so one multiplication adds to each row the
weighted counts of the rows around it."""
_PARTS = 8
"""A word counts so many times for its own message. For the neighbours it counts as often, or less often if its message is long."""
_SIGNS = bytes([0, *[1] * 255])
_EMOJI = "\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001faff"
_SPACELESS = "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"
_CJK = rf"{_EMOJI}{_SPACELESS}\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0002fa1f"
_WORD = re.compile(rf"[{_CJK}]+|[^ {_CJK}]+")
"""A word of a text that `_folded` has returned."""
_IS_CJK, _CJK_RUN = re.compile(f"[{_CJK}]"), re.compile(f"[{_CJK}]+")
_IS_FOREIGN = re.compile("[^\x00-\x7f\xa0\xa7\xb0\xb7\xd7\u2010-\u2027\u2030-\u205e\u20ac\u2190-\u21ff]")
"""A character outside ASCII that may be of a word: not the quotes, dashes and signs that English texts have."""
_NAME = re.compile(
    r"(?<![A-Za-z0-9])(?:(?=[A-Za-z0-9]*(?:[a-z][A-Z]|[A-Z]{2}[a-z]{2}))[A-Za-z0-9]{4,64}"
    r"|[0-9]+(?!(?:st|nd|rd|th)\b)[A-Za-z]{2,4})(?![A-Za-z0-9])"
)
"""A name of several words: `getUserById`, `42mm`."""
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ORDINAL = re.compile(r"(?<![0-9])([0-9]+)(?:st|nd|rd|th)")
_STOP = (
    "a about after all also am an and any are as at be because been before being but by can could did do does "
    "doing for from had has have having he her here hers him his how i if in into is it its just let me more "
    "most my no nor not of on or our ours out over own she should so some such than that the their them then "
    "there these they this those to too up was we what when where which while who whom why will with "
    "would you your yours d ll m re s t ve don doesn didn isn aren wasn weren hasn haven hadn won wouldn "
    "couldn shouldn"
)
STOP_WORDS = frozenset(_STOP.split())
_IRREGULAR = """
become became; begin began begun; bend bent; bind bound; bite bit bitten; bleed bled; blow blew blown; break broke broken;
breed bred; bring brought; build built; buy bought; catch caught; child children; choose chose chosen; cling clung; come came;
creep crept; deal dealt; dig dug; draw drew drawn; dream dreamt; drink drank drunk; drive drove driven; eat ate eaten;
fall fell fallen; feed fed; feel felt; fight fought; find found; flee fled; fly flew flown; foot feet; forget forgot forgotten;
forgive forgave forgiven; freeze froze frozen; get got gotten; give gave given; go went gone; grow grew grown; hang hung;
hear heard; hide hid hidden; hold held; keep kept; kneel knelt; knife knives; know knew known; lead led; learn learnt; leaf leaves;
lend lent; life lives; lose lost; make made; man men; mean meant; meet met; mouse mice; overcome overcame; pay paid;
person people; ride rode ridden; ring rang rung; rise rose risen; run ran; say said; see saw seen; seek sought; sell sold;
send sent; shake shook shaken; shelf shelves; shine shone; shoot shot; show shown; shrink shrank shrunk; sing sang sung;
sink sank sunk; sit sat; sleep slept; slide slid; speak spoke spoken; spend spent; spin spun; stand stood; steal stole stolen;
stick stuck; strike struck; swear swore sworn; sweep swept; swim swam swum; swing swung; take took taken; teach taught;
tear tore torn; tell told; think thought; throw threw thrown; tooth teeth; understand understood; wake woke woken;
wear wore worn; weave wove woven; wife wives; win won; withdraw withdrew withdrawn; wolf wolves; woman women; write wrote written
"""
BASE_FORMS = {form: base for base, *forms in map(str.split, _IRREGULAR.split(";")) for form in forms}
_SEPARATORS = bytes(code if chr(code).isalnum() else ord(" ") for code in range(128)).ljust(256)
"""A table for `bytes.translate`: letters and digits stay, every other character becomes a space."""
_SHAPES = bytes(
    ord("a" if char.islower() else "A" if char.isupper() else "0" if char.isdigit() else " ")
    for char in map(chr, range(128))
).ljust(256)
_INNER_CAPITAL, _UNIT = re.compile(rb"A(?:(?<=aA)|Aaa)"), re.compile(rb"0[aA]")
"""Each text with a name has one of these once `_SHAPES` has translated it. They begin with what is rare, so they are found fast."""
_DROPPED = "\xad\u0640\u200d"
"""Soft hyphen, the stroke that lengthens an Arabic word, and the joiner."""


class Fts5SearchEngine:
    """Implements `SearchEngine`. `terms` and `rank` stem their new words in an FTS5 table in memory."""

    name = "fts5-porter-4"
    reads = (name, "fts5-porter-3", "fts5-porter-2")

    def __init__(self, *, is_conversation: bool = True) -> None:
        """Texts of a conversation are ranked with their neighbours; other texts are ranked by their own words alone."""
        self._is_conversation = is_conversation
        self._near_words = NEIGHBOUR_WORDS if is_conversation else 0
        self._own = _lanes({0: _PARTS * NEIGHBOURS[0]})
        self._near = _lanes({**NEIGHBOURS, 0: 0} if is_conversation else {})
        self._found_at = _lanes({0: 1, 1: 1} if is_conversation else {0: 1})

    def words(self, texts: Sequence[str]) -> list[str]:
        return [" ".join(("", _cut(_folded(text)), *_parts_of_names(text), "")) for text in texts]

    def places(self, words: str, terms: Collection[str]) -> dict[str, list[int]]:
        asked = {term: _prefixes(term) for term in terms}
        pieces = {prefix: words.split(f" {prefix}") for prefix in set(chain.from_iterable(asked.values()))}
        forms = {prefix: [prefix + piece.partition(" ")[0] for piece in its[1:]] for prefix, its in pieces.items()}
        stems, places = _stems(set(chain.from_iterable(forms.values()))), {term: list[int]() for term in terms}
        for term, prefixes in asked.items():
            for prefix in prefixes:
                matching = {form for form in set(forms[prefix]) if _is_term(stems[form], term)}
                offsets = accumulate(map((1 + len(prefix)).__add__, map(len, pieces[prefix])))
                places[term] += [place for form, place in zip(forms[prefix], offsets, strict=False) if form in matching]
        return places

    def terms(self, texts: Sequence[str]) -> list[list[str]]:
        words = [text_words.split() for text_words in self.words(texts)]
        stems = _stems(set[str]().union(*words))
        return [[stem for word in text_words if (stem := stems[word])] for text_words in words]

    def rank(self, documents: TermDocuments, question: str, limit: int | None = None) -> Ranking:
        total, terms = len(documents.lengths), _terms_in(documents, question)
        if not terms:
            return Ranking([], 0.0)
        rarities = [term.weight * _rarity(total, self._reached(term.places, total)) for term in terms]
        of_question, scores = sum(rarities), dict[int, float]()
        rows = _rows_of(_best_blocks(rarities, terms, total if limit is None else BLOCKS), total)
        parts = _parts_of(documents.lengths, rows)
        lanes = [term.lanes(rows, parts) for term in terms]
        matching = _values(sum(own for own, _ in lanes) * self._found_at, len(rows))
        weighted = (_values(own * self._own + near * self._near, len(rows)) for own, near in lanes)
        counts_of = zip(*weighted, strict=True)
        discounts = self._discounts(documents.lengths, rows)
        for row, is_matching, discount, counts in zip(rows, matching, discounts, counts_of, strict=False):
            if is_matching and row < total:
                score = covered = 0.0
                for rarity, count in zip(rarities, counts, strict=True):
                    if count:
                        score += rarity * count / (count + discount)
                        covered += rarity
                # A message that has more of the question comes before one that repeats a single word of it.
                scores[row] = (K1 + 1) * score * (1 + covered / of_question)
        highest = 2 * (K1 + 1) * sum(term.weight * _rarity(total, term.places.count(1)) for term in terms)
        # Of equal scores the later row comes first.
        return Ranking(sorted(scores.items(), key=itemgetter(1, 0), reverse=True)[:limit], highest)

    def spans(self, texts: Sequence[str], question: str) -> list[list[tuple[int, int]]]:
        terms = _question_terms(question)
        asked = {term for term, (weight, _) in terms.items() if weight == 1.0 or not _IS_CJK.match(term)}
        longer = tuple(prefix for _, prefix in terms.values() if prefix)
        placed = [_Placed.of(text) for text in texts]
        by_word = _terms_by_word({word for text in placed for word in text.words()})
        matching = {word for word, its in by_word.items() if asked.intersection(its) or word.folded.startswith(longer)}
        return [_joined(text.original, text.spans(matching, asked)) for text in placed]

    def _discounts(self, lengths: Sequence[int], rows: Sequence[int]) -> list[float]:
        """Return how much the length of each row lowers its score. In a conversation, the length includes the neighbours."""
        most, total = self._near_words, sum(lengths)
        total += 2 * min(total, most * len(lengths))
        share, saturation = B * len(lengths) / (total or 1), K1 * TERM_WEIGHT * _PARTS * NEIGHBOURS[0]
        padded = (*lengths, *[0] * (BLOCK + 2))
        sizes = (padded[row] + min(padded[row - 1], most) + min(padded[row + 1], most) for row in rows)
        return [saturation * (1 - B + share * size) for size in sizes]

    def _reached(self, places: bytes, total: int) -> int:
        """Return how many rows have a term, or have it near."""
        having = near = int.from_bytes(places, "little")
        for distance in range(1, 1 + (NEIGHBOUR_REACH if self._is_conversation else 0)):
            near |= having << 8 * distance | having >> 8 * distance
        return (near & ((1 << 8 * total) - 1)).bit_count()


class _Term(NamedTuple):
    """A term: its weight, its weighted occurrences in each row, and 1 for each row that has any. An empty row comes last."""

    weight: float
    counts: bytes
    places: bytes

    def lanes(self, rows: Sequence[int], parts: Sequence[int]) -> tuple[int, int]:
        """Return two integers with a lane for each row: its count for itself, and its count times its part for its neighbours."""
        counts = itemgetter(*rows)(self.counts)
        own, near = array("I", counts), array("I", map(mul, counts, parts))
        return int.from_bytes(own.tobytes(), "little"), int.from_bytes(near.tobytes(), "little")


def _parts_of(lengths: Sequence[int], rows: Sequence[int]) -> list[int]:
    """Return how many times a word of each row counts for its neighbours: `_PARTS` times, less often in a long row."""
    sizes = map(max, itemgetter(*rows)((*lengths, *[0] * BLOCK)), repeat(NEIGHBOUR_WORDS))
    return [_PARTS * NEIGHBOUR_WORDS // size or 1 for size in sizes]


def _rows_of(blocks: Collection[int], total: int) -> list[int]:
    """Return the rows of blocks. After blocks in a row come the row behind them and empty rows, which keep distant rows apart."""
    rows = list[int]()
    for block in blocks:
        rows += range(BLOCK * block, BLOCK * (block + 1))
        if block + 1 not in blocks:
            rows += (min(total, BLOCK * (block + 1)), *[total] * NEIGHBOUR_REACH)
    return rows


def _values(product: int, count: int) -> array[int]:
    """Return the number in each of ``count`` lanes of an integer that was multiplied with `_lanes`."""
    size_bytes = _LANE // 8 * (count + 2 * NEIGHBOUR_REACH)
    return array("I", product.to_bytes(size_bytes, "little"))[NEIGHBOUR_REACH:-NEIGHBOUR_REACH]


def _lanes(weights: Mapping[int, int]) -> int:
    """Return the factor that adds to each lane the weighted lanes at these distances, and moves it `NEIGHBOUR_REACH` lanes up."""
    return sum(weight << _LANE * (NEIGHBOUR_REACH + distance) for distance, weight in weights.items())


def _terms_in(documents: TermDocuments, question: str) -> list[_Term]:
    """Return the terms of the question that the documents have."""
    asked, size = _question_terms(question), BLOCK * (len(documents.lengths) // BLOCK + 1)
    counts_of = documents.counts_of([*asked, *(f"{prefix}*" for _, prefix in asked.values() if prefix)])
    terms = list[_Term]()
    for term, (weight, prefix) in asked.items():
        own, longer = (int.from_bytes(bytes(counts_of.get(name, ())), "little") for name in (term, f"{prefix}*"))
        if own or longer:
            counts = (TERM_WEIGHT * own + longer).to_bytes(size, "little")
            terms.append(_Term(weight, counts, counts.translate(_SIGNS)))
    return terms


def _rarity(total: int, count: int) -> float:
    return math.log((total + 1) / (count + 0.5))


def _best_blocks(rarities: Sequence[float], terms: Sequence[_Term], count: int) -> Collection[int]:
    """Return at most ``count`` blocks, in order: those that have most of the question, in themselves or beside them."""
    values = [0.0] * (len(terms[0].places) // BLOCK if terms else 0)
    for rarity, term in zip(rarities, terms, strict=True):
        in_block = memoryview(term.places).cast("Q")  # a number for each block, 0 without the term
        for block in compress(range(len(values)), in_block):
            values[block] += rarity
    around = zip([0.0, *values], values, [*values[1:], 0.0], strict=False)
    sums = [value and value + (before if before > after else after) / 2 for before, value, after in around]
    best = nlargest(count, reversed(range(len(sums))), key=sums.__getitem__)
    return dict.fromkeys(sorted(filter(sums.__getitem__, best)))


@lru_cache(maxsize=32)
def _question_terms(question: str) -> Mapping[str, tuple[float, str]]:
    """Return the terms of a question, each with its weight and the prefix of longer words that match it too, or ""."""
    words = list(dict.fromkeys(_Placed.of(question).words()))[:MAX_QUESTION_WORDS]
    by_word, terms = _terms_by_word(words), dict[str, tuple[float, str]]()
    for word in words:
        folded, is_run = word.folded, _IS_CJK.match(word.folded) is not None
        prefix = folded if len(folded) >= LEAST_PREFIX and folded.isascii() else ""
        for index, term in enumerate(by_word[word]):
            if len(term) == 1 < len(folded) if is_run else index:
                terms.setdefault(term, (PART_WEIGHT, ""))
            else:
                terms[term] = 1.0, prefix
    return terms


class _Word(NamedTuple):
    """A word, as it is compared and as it is written."""

    folded: str
    original: str


class _Placed(NamedTuple):
    """A text, `_folded`, and for each character of that the span of the text that it stands for."""

    original: str
    folded: str
    begins: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, text: str) -> _Placed:
        folded = _folded(text)
        values = [_FOLDED[ord(char)] for char in text] if _is_foreign(text) else []
        if len(folded) == len(text) and not any(map(_continues, values)):
            return cls(text, folded, range(len(text)), range(1, len(text) + 1))
        firsts = [0, *(index for index, value in enumerate(values) if index and not _continues(value)), len(values)]
        begins, ends = list[int](), list[int]()
        for begin, end in pairwise(firsts):
            size = len(unicodedata.normalize("NFC", "".join(values[begin:end])))
            begins += [begin] * size
            ends += [end] * size
        return cls(text, folded, begins, ends)

    def words(self) -> Iterator[_Word]:
        for match in _WORD.finditer(self.folded):
            yield self._word(match)

    def spans(self, matching: Collection[_Word], asked: Collection[str]) -> Iterator[tuple[int, int]]:
        """Yield spans of matching words, of a CJK run the characters and pairs in ``asked``."""
        for match in _WORD.finditer(self.folded):
            if not _IS_CJK.match(match[0]):
                if self._word(match) in matching:
                    yield self.begins[match.start()], self.ends[match.end() - 1]
                continue
            for begin in range(match.start(), match.end()):
                piece = self.folded[begin : begin + 2]
                piece = piece if piece in asked else piece[0]
                if piece in asked:
                    yield self.begins[begin], self.ends[begin + len(piece) - 1]

    def _word(self, match: re.Match[str]) -> _Word:
        return _Word(match[0], self.original[self.begins[match.start()] : self.ends[match.end() - 1]])


def _joined(text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that overlap, or that one character other than a space separates: an id like ``a-17`` is one span."""
    joined = list[tuple[int, int]]()
    for begin, end in spans:
        between = text[joined[-1][1] : begin] if joined else " "
        if not between or (len(between) == 1 and not between.isspace()):
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _parts_of_names(text: str) -> list[str]:
    """Return the parts of the names in a text, in lower case. Base64 and the like have none."""
    shape = text.encode("ascii", "replace").translate(_SHAPES)
    if not (_INNER_CAPITAL.search(shape) or _UNIT.search(shape)):
        return []
    names = ((name, _NAME_PART.findall(name)) for name in _NAME.findall(text))
    return [part.lower() for name, parts in names if 2 * len(parts) < max(5, len(name)) for part in parts]


class _Folding(dict[int, str]):
    """A table for `str.translate`: each character as it is compared, a space for one that belongs to no word.

    Accents and points of Latin, Greek, Cyrillic, Hebrew and Arabic go. Vowel signs of other scripts stay: words differ by them.
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        is_of_word = char.isalnum() or char in _DROPPED or _IS_CJK.match(char) or unicodedata.category(char)[0] == "M"
        parts = unicodedata.normalize("NFKD", char) if is_of_word else " "
        self[code] = folded = unicodedata.normalize("NFC", "".join(map(_folded_part, parts)))
        return folded


_FOLDED = _Folding()


def _folded_part(char: str) -> str:
    category, rank = unicodedata.category(char), unicodedata.combining(char)
    is_variant = "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"
    if char in _DROPPED or category == "Me" or 10 <= rank <= 36 or rank >= 200 or is_variant:
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(char))
    return char.casefold() if char.isalnum() or category[0] == "M" or _IS_CJK.match(char) else " "


def _is_foreign(text: str) -> bool:
    """Return whether a text may have words outside ASCII."""
    return not text.isascii() and _IS_FOREIGN.search(text) is not None


def _folded(text: str) -> str:
    """Return a text as it is compared, with a space for each character that belongs to no word."""
    if _is_foreign(text):
        return unicodedata.normalize("NFC", text.translate(_FOLDED))
    return text.lower().encode("ascii", "replace").translate(_SEPARATORS).decode()


@cache
def _continues(value: str) -> bool:
    """Return whether the value of a character becomes one with that of the character before: of a mark, of a Korean vowel."""
    return not value or unicodedata.category(value[0])[0] == "M" or "\u1160" <= value[0] <= "\u11ff"


def _cut(folded: str) -> str:
    """Return the words of a text with spaces between; in place of a CJK run, its characters and their pairs."""
    if folded.isascii():
        return folded
    return " ".join(_CJK_RUN.sub(lambda run: f" {' '.join((*run[0], *map(add, run[0], run[0][1:])))} ", folded).split())


def _terms_by_word(words: Collection[_Word]) -> dict[_Word, tuple[str, ...]]:
    """Return the terms of each word and then of its parts, none for a stop word."""
    by_word = {word: (*_cut(word.folded).split(), *_parts_of_names(word.original)) for word in words}
    stems = _stems(set[str]().union(*by_word.values()))
    return {word: tuple(filter(None, map(stems.__getitem__, its))) for word, its in by_word.items()}


def _is_term(stem: str, term: str) -> bool:
    """Return whether a word with this stem has a term, or for ``prefix*`` a longer term with the prefix."""
    return len(stem) >= len(term) and stem.startswith(term[:-1]) if term.endswith("*") else stem == term


@lru_cache(maxsize=256)
def _prefixes(term: str) -> list[str]:
    """Return prefixes of which every word with a term has exactly one."""
    term = term.rstrip("*")
    # A stem is the beginning of its words, but `y` becomes `i`, and an `e` may be added.
    begin = term[:-1] if len(term) > 2 and term[-1].isascii() else term
    begins = [begin]
    for form, base in BASE_FORMS.items():
        if base.startswith(begin) and not form.startswith(tuple(begins)):
            begins.append(form)
    return begins


def _stems(words: Collection[str]) -> dict[str, str]:
    """Return the term of each word: "" for a stop word, the word where it has no English ending, else what FTS5 indexes."""
    stems = {word: "" if word[-1].isascii() else word for word in words}
    plain = [word for word, stem in stems.items() if not stem and word not in STOP_WORDS]
    if plain:
        forms = (BASE_FORMS.get(word, _ORDINAL.sub(r"\1", word)) for word in plain)
        with _TOKENIZING:
            database = tokenizer_table()
            database.execute("BEGIN")
            try:
                database.executemany("INSERT INTO t(rowid, own) VALUES (?, ?)", enumerate(forms))
                for row, term in database.execute("SELECT doc, term FROM v ORDER BY doc, offset"):
                    stems[plain[row]] += term
            finally:
                database.execute("ROLLBACK")
    return stems


@cache
def tokenizer_table() -> sqlite3.Connection:
    """Return an empty table in memory: to make one takes longer than to use it for a question."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.execute("CREATE VIRTUAL TABLE t USING fts5(own, tokenize='porter unicode61')")
    database.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
    return database
