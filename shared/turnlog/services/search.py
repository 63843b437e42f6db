"""Search: the newest messages of a session by the words of a question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from turnlog.codecs.blocks import placeholder_text
from turnlog.contracts.recall import SearchAnswer, SearchQuery, SearchResult
from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.facts import Facts
from turnlog.domain.identity import Owner
from turnlog.domain.pairing import Pairing, pair
from turnlog.domain.refs import Ref
from turnlog.log.commits import Commit
from turnlog.log.keys import SessionKeys
from turnlog.log.newest import newest_pages
from turnlog.log.reading import Located, located
from turnlog.log.sessions import SessionLog
from turnlog.ports import SearchEngine
from turnlog.windows.recall import RECALL_TOOL, SEARCH_TOOL

PAGES = 4
"""As many as a window reads: at most 4 MB of commits."""
MAX_QUESTION_CHARS = 1_000
SNIPPET_CHARS = 240
INDEXED_CHARS = 20_000
"""Of each message, from its beginning: what packs well is in a commit whatever its length."""
_WORD = re.compile(r"\w+")
_STEM_CHARS, _MAX_STEMS = 5, 64


class SearchSession:
    """The use case: one request for each 1 MB of commits, at most `PAGES`. Payloads out of line by their card.

    Calls of the recall tools themselves come last: they have the words that were looked for, and no more than was found.
    """

    def __init__(self, log: SessionLog, engine: SearchEngine) -> None:
        self._log = log
        self._engine = engine

    def __call__(self, owner: Owner, session_id: str, query: SearchQuery) -> SearchAnswer:
        keys = SessionKeys(owner, session_id)
        if not query.q.strip() or len(query.q) > MAX_QUESTION_CHARS:
            message = f"q has 1 to {MAX_QUESTION_CHARS} characters"
            raise InvalidInputError(message, problems=[Problem("invalid_parameter", "/query/q", message)])
        commits = list[Commit]()
        for page in newest_pages(self._log.commits, keys, pages=PAGES):
            commits = [*page, *commits]
        found = [one for one in located(self._log.commits, keys, commits) if one.facts.role != "unknown"]
        facts = [one.facts for one in found]
        pairing = pair((one.event.position, of) for one, of in zip(found, facts, strict=True))
        names = {
            Ref(one.event.position, at): call.name
            for one, of in zip(found, facts, strict=True)
            for at, call in enumerate(of.calls)
        }
        texts = [_text(one, of) for one, of in zip(found, facts, strict=True)]
        indexed = [f"{_day(one)} {of.name} {text}" for one, of, text in zip(found, facts, texts, strict=True)]
        results = list[SearchResult]()
        ranked = self._engine.rank(indexed, query.q)
        if query.tool is None:
            echoes = {at for at, of in enumerate(facts) if _is_echo(of, _refs(found[at], of, pairing), names)}
            ranked.sort(key=lambda one: one[0] in echoes)
        for at, score in ranked:
            one, refs = found[at], _refs(found[at], facts[at], pairing)
            if query.tool is not None:
                refs = [ref for ref in refs if names.get(ref) == query.tool]
            if not _is_asked_for(query, one, facts[at], refs):
                continue
            results.append(
                SearchResult(
                    position=one.event.position,
                    loop=one.loop or None,
                    role=facts[at].role,
                    ref=str(refs[0]) if refs else None,
                    snippet=snippet(texts[at], query.q),
                    score=float(f"{score:.6g}"),
                )
            )
            if len(results) == query.limit:
                break
        return SearchAnswer(results=results, searched_from=commits[0].header.first)


def snippet(text: str, question: str) -> str:
    """Where most of the question's words stand in the text, in one line."""
    words = [word for word in _WORD.findall(question.lower()) if len(word) > 2 or not word.isascii()]
    pairs = [word[at : at + 2] for word in words if not word.isascii() for at in range(len(word) - 1)]
    lowered, stems = text.lower(), dict.fromkeys([word[:_STEM_CHARS] for word in words] + pairs)
    hits = sorted(hit for stem in list(stems)[:_MAX_STEMS] if (hit := lowered.find(stem)) >= 0)
    best = max(hits, key=lambda start: (sum(start <= hit < start + SNIPPET_CHARS for hit in hits), -start), default=0)
    start = max(0, best - SNIPPET_CHARS // 6)
    shown = " ".join(text[start : start + SNIPPET_CHARS].split())
    return f"{'...' if start else ''}{shown}{'...' if start + SNIPPET_CHARS < len(text) else ''}"


def _text(one: Located, facts: Facts) -> str:
    """What can be found: text, calls with their arguments, results; of a payload out of line as much as its card has."""
    message = one.message
    results = (
        [placeholder_text(block) for result in message.tool_results for block in result.content]
        if message is not None
        else [result.text for result in facts.results]
    )
    calls = [f"{call.name} {call.arguments}" for call in facts.calls]
    return "\n".join(text for text in (facts.head, *calls, *results, " ".join(facts.ledger)) if text)[:INDEXED_CHARS]


def _day(one: Located) -> str:
    """The day it was said on, as people write it: the caller's own time where there is one."""
    try:
        moment = datetime.fromisoformat(one.event.envelope.created_at or "")
    except ValueError:
        moment = datetime.fromtimestamp(one.time_ms / 1000, UTC)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def _refs(one: Located, facts: Facts, pairing: Pairing) -> list[Ref]:
    """The calls that the message makes, then those that it answers."""
    position = one.event.position
    answered: Sequence[Ref | None] = [pairing.call_of.get((position, at)) for at in range(len(facts.results))]
    return [*(Ref(position, at) for at in range(len(facts.calls))), *(ref for ref in answered if ref is not None)]


def _is_echo(facts: Facts, refs: Sequence[Ref], names: dict[Ref, str]) -> bool:
    """Whether the message is nothing but a call of the recall tools or its result: these repeat what stands elsewhere."""
    return not facts.head and bool(refs) and all(names.get(ref) in (RECALL_TOOL, SEARCH_TOOL) for ref in refs)


def _is_asked_for(query: SearchQuery, one: Located, facts: Facts, refs: Sequence[Ref]) -> bool:
    return query.role in (None, facts.role) and query.loop in (None, one.loop) and (query.tool is None or bool(refs))
