"""The value ledger: identifiers and scalar values of tool calls and results, verbatim, in order of first appearance.

The digest of a past loop keeps these values, because later tool calls need them: ids, e-mail addresses, paths, URLs, amounts. The
extractor has a version, which cards store beside the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator

from turnlog.core.calls import MessageOutline

EXTRACTOR_VERSION = 2
MAX_VALUES = 100
MAX_BYTES = 2 * 1024
_MAX_SENTENCE_CHARS = 80
_MAX_VALUE_CHARS = 1_024
"""Characters of a value without white space: a signed URL, a token, the cursor of the next page."""
_MAX_TEXT_CHARS = 200_000
_KEY_NAME = re.compile(r"""(\\?["'])[\w.$-]{1,80}\1\s*:""")
_BOUNDARY = r"(?:(?<![A-Za-z0-9_.@+/~-])|(?<=\\[nrt]))"
_CANDIDATE = re.compile(
    r"(?P<url>[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s\"'<>`|\\^{}\u3000-\u303f\uff00-\uffef]+)"
    rf"|{_BOUNDARY}(?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?<!\w)(?P<drive>[A-Za-z]:(?:\\{1,2}[\w.@+-]+)+)"
    rf"|{_BOUNDARY}(?P<path>(?:~|\.{{1,2}}|[^\W\u2e80-\uffef][\w.@+-]*)?(?:/[\w.@+-]+)+/?)"
    r"|[A-Za-z0-9_#][A-Za-z0-9_.#-]*:(?=[\w.@+~-]*/)"  # what stands before a path: "file:src/app.py"
    r"|\\[nrt]"  # a line break of JSON inside a text
    r"|[A-Za-z0-9_#][A-Za-z0-9_.:#-]*"
)
_BEHIND_ENDING = re.compile(r"(?<=\.)([A-Za-z0-9]{1,8})[\u2e80-\uffef].*")
_BRACKETS = (("(", ")"), ("[", "]"))
_MIN_IDENTIFIER = 5
_MIN_NAME = 3
_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_NAME_PART = r"(?:[A-Z][\w'’-]*[a-z][\w'’-]*|[A-Z]{2,}\b)"
_NAMES = rf"{_NAME_PART}(?: (?:(?:of|de|van|von|the|and|&) )?{_NAME_PART})*"
_SAID = re.compile(
    rf"\b(?:\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b)(?:,? \d{{4}})?"  # a day
    r"|(?:\d+ ?[年月日号點点时分元块岁%％])+"
    r"|[$€£¥₩₹] ?\d(?:[\d,.]*\d)?"  # an amount
    r"|\b\d{1,2}:\d{2}(?: ?[ap]m\b)?|\b\d{1,2} ?[ap]m\b"  # a time
    rf"|\b\d{{1,5}} {_NAMES}"  # an address
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}"  # e-mail, path
    r"|[A-Za-z0-9_#][A-Za-z0-9_.:#-]*[0-9][A-Za-z0-9_.:#-]*"  # token with a digit
    r"|《[^》\n]{1,40}》"  # a title
    rf"|(?<=[a-z0-9,;:'’)\"] ){_NAMES}"  # a name within a sentence
)


def ledger_of_facts(facts: MessageOutline) -> tuple[str, ...]:
    """Return at most `MAX_VALUES` distinct values of the calls and results in an outline that holds whole texts."""
    texts = [call.arguments for call in facts.calls] + [result.text for result in facts.results]
    return distinct((value for text in texts for value in values_of(text)), MAX_VALUES)


def values_of(text: str) -> Iterator[str]:
    """Yield the values of one text.

    For a JSON object or list these are its short scalars and the identifiers in its long strings, otherwise all identifiers.
    """
    text = text[:_MAX_TEXT_CHARS]
    stripped = text.lstrip()
    if stripped[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            yield from _leaves(value)
            return
    yield from _identifiers(text)


def said_values(text: str) -> Iterator[str]:
    """Return the values of a text that somebody said: identifiers, names, dates, times, amounts and numbers."""
    values = (match[0].rstrip(".:- ") for match in _SAID.finditer(text))
    return (value for value in values if 1 < len(value) <= _MAX_SENTENCE_CHARS)


def is_identifier(value: str) -> bool:
    """Return whether the whole value is one identifier."""
    return len(value.split(maxsplit=1)) == 1 and next(_identifiers(value), None) == value


def is_name(value: str) -> bool:
    """Return whether an argument's value can name something: one word with a letter, which needs no digit."""
    return len(value) >= _MIN_NAME and len(value.split()) == 1 and any(map(str.isalpha, value))


def chosen(values: Iterable[str], limit: int, *, names: Container[str] = ()) -> list[str]:
    """Return at most ``limit`` of the values, in order. Identifiers come before other scalars, which are easier to find again.

    The values in ``names`` are taken for identifiers.

    Reads no further than to the last identifier that it returns, if there are enough.
    """
    identifiers, others = list[tuple[int, str]](), list[tuple[int, str]]()
    for place in enumerate(values) if limit else ():
        if place[1] in names or is_identifier(place[1]):
            identifiers.append(place)
            if len(identifiers) == limit:
                break
        elif len(others) < limit:
            others.append(place)
    return [value for _, value in sorted([*identifiers, *others[: limit - len(identifiers)]])]


def is_said(value: str, text: str) -> bool:
    """Return whether the text has the value as a whole word or number."""
    index = text.find(value)
    while index >= 0:
        before, after = text[index - 1 : index], text[index + len(value) : index + len(value) + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        index = text.find(value, index + 1)
    return False


def bounded(values: Iterable[str]) -> tuple[str, ...]:
    """Return as many of the values as fit into a card, so that a card and its body give the same values."""
    size, kept = 0, list[str]()
    for value in values:
        size += len(value.encode("utf-8", "surrogatepass"))
        if size > MAX_BYTES:
            break
        kept.append(value)
    return tuple(kept)


def distinct(values: Iterable[str], limit: int) -> tuple[str, ...]:
    """Return the first ``limit`` distinct values, in order."""
    seen = dict[str, None]()
    for value in values:
        seen.setdefault(value)
        if len(seen) >= limit:
            break
    return tuple(seen)


def _leaves(root: object) -> Iterator[str]:
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            stack.extend(reversed(value))
        elif isinstance(value, str):
            yield from [value] if _is_whole(value) else values_of(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            text = json.dumps(value)
            if len(text) > 1:
                yield text


def _is_whole(text: str) -> bool:
    """Return whether a string is kept as it is: one line, short or without white space."""
    if not 1 < len(text) <= _MAX_VALUE_CHARS or "\n" in text:
        return False
    return len(text) <= _MAX_SENTENCE_CHARS or len(text.split()) == 1


def _identifiers(text: str) -> Iterator[str]:
    # An identifier has no white space and is not letters alone, so most of prose is skipped.
    has_keys = ":" in text and ('"' in text or "'" in text)
    for chunk in (_KEY_NAME.sub(" ", text) if has_keys else text).split():
        if len(chunk) < _MIN_IDENTIFIER or chunk.isalpha():
            continue
        for match in _CANDIDATE.finditer(chunk):
            yield from _identifiers_in(match[0], match.lastgroup)


def _identifiers_in(candidate: str, kind: str | None) -> Iterator[str]:
    if not _MIN_IDENTIFIER <= len(candidate) <= _MAX_VALUE_CHARS:
        return
    if kind == "path":
        candidate = _BEHIND_ENDING.sub(r"\1", candidate)
        if not _is_path(candidate):
            for name in candidate.split("/"):
                yield from _identifiers_in(name, None)
            return
    value = _without_marks(candidate) if kind == "url" else candidate.rstrip(".:-")
    if len(value) >= _MIN_IDENTIFIER and (kind or any(map(str.isdigit, value))):
        yield value


def _is_path(candidate: str) -> bool:
    """Return whether names between slashes are a path: a root or a folder, three names, or an ending; ``and/or`` is none."""
    names = candidate.strip("/").split("/")
    is_file = "." in names[-1].strip(".")
    is_rooted = candidate[0] in "/~." or candidate[-1] == "/"
    return any(map(str.isalpha, candidate)) and (is_file or len(names) > (1 if is_rooted else 2))


def _without_marks(url: str) -> str:
    """Return a URL without the punctuation of the sentence behind it, and without brackets that it does not open."""
    while url[-1] in ".,:;!?*" or any(url[-1] == end and url.count(end) > url.count(start) for start, end in _BRACKETS):
        url = url[:-1]
    return url
