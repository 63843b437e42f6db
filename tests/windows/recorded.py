"""Windows of fixed histories, as this version of the renderer makes them; the digests are in recorded.json.

`RENDERER_VERSION` says which windows are the same: a stored ``build`` gives the same bytes again, and a provider's prompt cache
holds over a deployment. So a change of these windows needs a new version, and then `tools/record_windows.py` writes them anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.properties.building import AMPLE, COUNTER, PRESETS, TOOLS, Cards, Stored, first, out_of_line, stored
from tests.properties.histories import (
    DISORDERLY,
    FORMATS,
    SHAPES,
    TEXTS,
    Body,
    History,
    Move,
    played,
    sample_histories,
)
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.events import MessageEvent, Notes, SummaryEvent
from turnlog.core.json_values import encode_json
from turnlog.log.reading import Located
from turnlog.providers.token_rules import count_tools
from turnlog.windows.breaks import EpochStart
from turnlog.windows.budgets import Budget
from turnlog.windows.build import Window, build
from turnlog.windows.policy import policy_of
from turnlog.windows.request import WindowRequest, system_cost, with_recall
from turnlog.windows.text import summary_body

RECORD = Path(__file__).parent / "recorded.json"
PARTS = ("request", "tokens", "manifest", "prefix")
DRAWN, WORKING = 60, 50
"""Numbers of histories in which anything happens, and of agents at work, with large results."""


@dataclass(frozen=True)
class Case:
    """A window to build: its sources, and what is asked of it."""

    name: str
    held: Stored
    sources: Sequence[Located]
    unread: int
    request: WindowRequest
    breaks: tuple[EpochStart, ...]


def digests(case: Case) -> dict[str, str]:
    """Return a digest of each part of a window; of the error where the budget is too small."""
    try:
        made = _built(case, case.request)
    except BudgetTooSmallError as error:
        needed = int(error.details["needed"])
        case = replace(case, request=replace(case.request, budget=Budget(needed, "given")))
        made = _built(case, case.request)
    fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    tokens, manifest, prefix = (fields.pop(name) for name in PARTS[1:])
    del fields["epoch"]  # It also names what is asked, which may get new fields.
    values = (repr(sorted(fields.items())), tokens, repr(manifest), repr((prefix, made.breakpoints)))
    return {part: _digest(value) for part, value in zip(PARTS, values, strict=True)}


def _built(case: Case, request: WindowRequest) -> Window:
    whole = case.held.sources

    def fetch(events: list[MessageEvent]) -> dict[int, MessageEvent]:
        return {event.position: whole[event.position - 1].event for event in events}

    log = _Log(case.sources, case.held.total, unread=case.unread, bodies=fetch, starts=case.breaks)
    return build(log, request)


@dataclass(frozen=True)
class _Log(Cards):
    """A list of messages with the last changes of its settings, and the number of those before it."""

    unread: int = 0
    starts: tuple[EpochStart, ...] = ()

    def breaks(self) -> Sequence[EpochStart]:
        return self.starts


def _digest(value: object) -> str:
    return hashlib.sha256(encode_json(value)).hexdigest()[:8]  # type: ignore[arg-type]


def cases() -> Iterator[Case]:
    """Yield the windows of the record, always the same ones."""
    for name, history in _histories():
        chance = random.Random(name)
        held = _with_notes(stored(history), chance)
        for number in range(5):
            count = chance.choice((len(history), len(history), chance.randrange(len(history) + 1)))
            yield _case(f"{name}/{number}", first(held, count), chance)


def _histories() -> Iterator[tuple[str, History]]:
    for number in range(DRAWN):
        yield f"drawn-{number}", _drawn(random.Random(f"drawn-{number}"))
    for number in range(WORKING):
        yield f"working-{number}", _working(random.Random(f"working-{number}"))
    for name, history in list(sample_histories())[:12]:
        yield f"sample-{name}", history


def _drawn(chance: random.Random) -> History:
    """Return a history in which anything may happen."""
    moves = [
        Move(
            kind=chance.choice(DISORDERLY),
            pick=chance.randrange(12),
            text=chance.choice(TEXTS),
            turnlog=chance.random() < 0.4,
            fate=chance.choice(("", "", "", "", "", "interrupted", "pinned")),
            shape=chance.choice(SHAPES),
        )
        for _ in range(chance.randrange(4, 45))
    ]
    return played(moves)


def _working(chance: random.Random) -> History:
    """Return the history of an agent that works for its user in loops of many steps, some with large results."""
    moves, is_turnlog = list[Move](), chance.random() < 0.3
    for number in range(chance.randrange(2, 9)):
        moves.append(Move("user", text=f"{chance.choice(TEXTS)} task {number}", turnlog=is_turnlog))
        for step in range(chance.randrange(1, 14)):
            calls = chance.randrange(1, 4)
            moves.append(Move("calls", pick=calls - 1, text=f"step {step}", turnlog=is_turnlog))
            moves += [
                Move("result_late_first", pick=chance.randrange(12), text=_result(chance), turnlog=is_turnlog)
                for _ in range(calls)
            ]
        if chance.random() < 0.85:
            moves.append(Move("assistant", text=chance.choice(TEXTS), turnlog=is_turnlog))
    return played(moves)


def _result(chance: random.Random) -> str:
    """Return the text of a result: mostly short, else lines, JSON on one line, words, or letters without a border."""
    size = chance.choice((3, 3, 10, 10, 40, 250))
    rows = [{"id": f"ROW-{chance.randrange(10_000)}", "price": row * 1.25, "tags": ["a", "b"]} for row in range(size)]
    texts = (
        "\n".join(f"{row['id']} costs {row['price']} at /srv/app/file{row['id']}.py" for row in rows),
        json.dumps(rows, separators=(",", ":")),
        json.dumps(rows, indent=1),
        " ".join(f"word{row['price']}" for row in rows),
        "abcdefghij" * size,
        "天地玄黄，宇宙洪荒。" * size,
    )
    return chance.choice(texts)


def _with_notes(held: Stored, chance: random.Random) -> Stored:
    """Return the history with the epoch of another window noted at some answers."""
    sources = [
        replace(source, event=replace(source.event, notes=Notes(epoch="0123456789abcdef")))
        if chance.random() < 0.01
        else source
        for source in held.sources
    ]
    return replace(held, sources=tuple(sources))


def _case(name: str, held: Stored, chance: random.Random) -> Case:
    system = chance.choice((None, None, "Be brief.", "You are an agent. " * 90))
    tools = chance.choice(((), (), TOOLS, ({"name": "look", "description": "é", "input_schema": {"type": "object"}},)))
    summary, begin = _summary(held, chance), 1
    if summary is None and chance.random() < 0.15:
        begin = _first_of_a_loop(held, chance)
    shown = out_of_line(held) if chance.random() < 0.3 else held
    covered = range(summary.first, summary.last + 1) if summary is not None else range(begin)
    sources = [
        source for source in shown.sources if source.event.position not in covered or (summary and not source.loop)
    ]
    request = WindowRequest(
        policy=policy_of(_policy(chance)),
        budget=Budget(_budget(held, chance), "given"),
        format=chance.choice(FORMATS),
        system=system,
        system_tokens=system_cost(COUNTER.count(system)) if system is not None else 0,
        system_least=system_cost(COUNTER.count(system)) if system is not None and chance.random() < 0.5 else None,
        tools=tools,
        tools_tokens=count_tools(tools, COUNTER),
        tools_least=count_tools(tools, COUNTER) if chance.random() < 0.5 else None,
        include_current_loop=chance.random() < 0.9,
        answer_open_calls=chance.random() < 0.3,
        apply_breakpoints=chance.random() < 0.3,
        summary=summary,
    )
    is_recalled = chance.random() < 0.4
    return Case(name, held, sources, begin - 1, with_recall(request) if is_recalled else request, _breaks(held, chance))


def _policy(chance: random.Random) -> str | Body:
    if chance.random() < 0.65:
        recorded = [name for name in PRESETS if name != "recall"]  # the choices were recorded without it
        return chance.choice((*recorded, *["default"] * 6, "turns(2)", "messages(5)", "tokens(300)"))
    steps = [_step(chance) for _ in range(chance.randrange(1, 4))]
    return {"steps": steps}


def _step(chance: random.Random) -> Body:
    few, chars = chance.randrange(8), chance.choice((1, 7, 100, 500, 700))
    interrupted, ledger = chance.choice(("mark", "drop")), chance.choice((0, 2, 100))
    digest: dict[str, Any] = {"max_message_chars": chars, "interrupted": interrupted, "ledger": ledger}
    clause = chance.choice(({"messages_over": few}, {"tokens_over": 400}, {"loops_over": 2}, {"fraction_over": 0.2}))
    return chance.choice(
        (
            {"step": "turns", "n": few},
            {"step": "messages", "n": few},
            {"step": "tokens", "n": chance.randrange(2000)},
            {"step": "recent", "messages": few, "tokens": 1000, "once": [clause]},
            {"step": "loops", "max": few, "max_age_seconds": 20, "whole": few % 3, **digest},
            {"step": "digest_when_full", "high": 0.9 - few / 10, "low": 0.15, **digest},
            {"step": "summary", "max_tokens": 140, "as": "assistant", "label": "Earlier:"},
            {"step": "summary", "as": "system"},
            {"step": "stub_tool_results", "keep_newest": few, "over_tokens": 20 * few, "preview_tokens": 24},
            {"step": "pin", "roles": [chance.choice(("user", "assistant", "system", "tool"))], "first_user": few > 3},
            {"step": "pin", "positions": [few + 1, few + 4]},
        )
    )


def _budget(held: Stored, chance: random.Random) -> int:
    """Return a budget in which all of the history fits, or some of it."""
    if chance.random() < 0.25:
        return AMPLE
    return int(held.total * chance.choice((1.05, 0.8, 0.6, 0.4, 0.25, 0.1))) + chance.randrange(300)


def _summary(held: Stored, chance: random.Random) -> SummaryEvent | None:
    """Return a summary of the oldest loops; none most of the time."""
    last_loop = max((source.loop for source in held.sources), default=0) // 2
    if chance.random() > 0.25 or not last_loop:
        return None
    covered = [source.event for source in held.sources if 0 < source.loop <= last_loop]
    text = chance.choice(("All is well. It was shipped.", "一切都好。" * 30, "A line of this summary.\n" * 40))
    facts = tuple((event.position, f"A-{event.position}17") for event in covered[:20])
    return SummaryEvent(
        position=len(held.history) + 1,
        first=covered[0].position,
        last=covered[-1].position,
        first_loop=1,
        last_loop=last_loop,
        base=0,
        covers="",
        text=text,
        facts=facts,
        tokens=COUNTER.count(summary_body(text, facts)),
        source_tokens=sum(event.tokens for event in covered),
        messages=len(covered),
        summariser="test",
    )


def _first_of_a_loop(held: Stored, chance: random.Random) -> int:
    """Return the position at which one of the loops begins."""
    loops = [source.loop for source in held.sources]
    starts = [at + 1 for at in range(1, len(loops)) if loops[at] != loops[at - 1]]
    return chance.choice(starts) if starts else 1


def _breaks(held: Stored, chance: random.Random) -> tuple[EpochStart, ...]:
    """Return the breaks of settings that a session has, none most of the time."""
    if chance.random() < 0.7:
        return ()
    reason, place = chance.choice(
        (("system", "system"), ("tools", "tools"), ("summary", "summary"), ("budget", "base"))
    )
    return (EpochStart(1 + chance.randrange(len(held.sources) or 1), reason, place),)  # type: ignore[arg-type]
