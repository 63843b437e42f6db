"""Recall: how much of a question's evidence stands in the window, and what that costs, by budget.

    make bench-recall ARGS='FOLDER --loader load.py'    # FOLDER/locomo, and the conversations with tools beside it
    make bench-recall ARGS='FOLDER --loader benchmarks/longmemeval.py --set longmemeval-s'

Each question of a set is asked at the end of its conversation, as the user's next message. The windows come from the pure core.
Beside them: the ten best hits of a search, the ten days (sessions) that the best hits are of, and the ten best of plain FTS5.
Exit 1 when less of the evidence of a sample of LoCoMo is there than the limits say.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.progress import say
from benchmarks.recall_chart import chart
from benchmarks.replay.loading import load_transcripts
from benchmarks.search import CATEGORIES, day_in_words, fts5_rows, fts5_table
from benchmarks.windows.histories import COUNTER, FORMAT, sources_of
from benchmarks.windows.rows import Row
from benchmarks.windows.running import Plan, run
from turnlog import Session, Turnlog
from turnlog.cli.transcripts import Transcript
from turnlog.core.calls import outline_of
from turnlog.log.reading import Located
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import count_message
from turnlog.search.fts5 import Fts5SearchEngine
from turnlog.search.session import ListSearch
from turnlog.windows.assembly import Memory
from turnlog.windows.budgets import Budget
from turnlog.windows.build import build
from turnlog.windows.plan import MessageList
from turnlog.windows.policy import PRESETS, Policy, policy_of
from turnlog.windows.recalled import MAX_HITS, Question, RecallSearch
from turnlog.windows.request import WindowRequest

LIMITS = {2_000: 0.85, 4_000: 0.92, 8_000: 0.95}
"""The least share of LoCoMo's evidence in windows of the preset `recall`, by budget, for a sample (``--every``)."""
KINDS = CATEGORIES | {6: "update"}
"""Kinds of questions: those of LoCoMo, and what LongMemEval asks about a value that has changed."""
TURNS, DAYS, PLAIN, SUMMARIES = "hits, by turn", "hits, by day", "plain FTS5", "summaries"
BESIDE = "`recall`, summarised"
"""The preset `recall` after all of the conversation was summarised as the worker does it, without a model."""
_BEST = 10
_SHOWN_CHARS = 80
"""Characters of a message by which it is known in a window."""
_TOOLS = ("agentdojo", "deer-flow-threads", "openhands", "session-share", "swe-agent", "mini-swe-agent", "tau-bench")
_WITH_TOOLS = (*_TOOLS, "tau2-bench")


def recalling(**fields: Any) -> Policy:
    """Return the preset `recall` with other fields of its step."""
    steps = [step if step.step != "recall" else step.model_copy(update=fields) for step in PRESETS["recall"].steps]
    return Policy(steps=tuple(steps))


def policies(*, sweep: bool) -> dict[str, Policy]:
    """Return the policies that are compared, by name."""
    named = {
        "newest that fit": policy_of({"steps": [{"step": "digest_when_full", "high": 1.0, "low": 0.99}]}),
        "`default`": PRESETS["default"],
        "hits alone": recalling(neighbours=0, min_score=0.0),
        "`recall`": PRESETS["recall"],
    }
    if sweep:
        shares, reaches, scores = (0.15, 0.25, 0.4, 0.6), (0, 1, 2), (0.0, 0.08, 0.1)
        named |= {f"share {share}": recalling(share=share, tokens=None) for share in shares}
        named |= {f"neighbours {reach}": recalling(neighbours=reach) for reach in reaches}
        named |= {f"min_score {score}": recalling(min_score=score) for score in scores}
    return named


@dataclass
class Evidence:
    """Shares of the evidence that stand in windows, a value for each question, and the tokens of these windows."""

    shares: list[float] = field(default_factory=list)
    tokens: int = 0

    @property
    def share(self) -> float:
        return sum(self.shares) / max(1, len(self.shares))


Cells = dict[tuple[str, int, int], Evidence]
"""By policy, budget and category; category 0 has all questions."""


@dataclass(frozen=True)
class Conversation:
    """A conversation with its questions: each with its category and the places of its evidence.

    ``left_out`` are questions whose key names no turn.
    """

    bodies: Sequence[dict[str, Any]]
    sources: Sequence[Located]
    questions: Sequence[tuple[str, int, Sequence[int]]]
    left_out: Sequence[str]


def conversations(loader: Any, folder: Path, every: int) -> Iterator[Conversation]:
    for conversation in loader.iter_sessions(str(folder)):
        messages = conversation["messages"]
        places = {message["dia_id"]: place for place, message in enumerate(messages)}
        questions, left_out = list[tuple[str, int, Sequence[int]]](), list[str]()
        for question in conversation["meta"]["qa"][::every]:
            evidence = [places[name] for name in loader.fix_evidence(question.get("evidence")) if name in places]
            if evidence:
                questions.append((question["question"], question["category"], evidence))
            else:
                left_out.append(f"{conversation['id']}: {question['question']} {question.get('evidence')}")
        bodies = [
            {name: message[name] for name in ("role", "name", "content") if message.get(name)} for message in messages
        ]
        yield Conversation(bodies, _dated(sources_of(bodies), messages), questions, left_out)


def _dated(sources: Sequence[Located], messages: Sequence[Mapping[str, Any]]) -> list[Located]:
    return [
        replace(
            source,
            event=replace(source.event, envelope=replace(source.event.envelope, created_at=message["created_at"])),
        )
        for source, message in zip(sources, messages, strict=True)
    ]


def measure(conversation: Conversation, named: Mapping[str, Policy], budgets: Sequence[int], cells: Cells) -> None:
    recaller, total = None, sum(source.event.tokens for source in conversation.sources)
    memories = defaultdict[tuple[str, int], Memory](Memory)
    plain = fts5_table(
        f"{day_in_words(str(source.event.envelope.created_at))} {body['content']}"
        for source, body in zip(conversation.sources, conversation.bodies, strict=True)
    )
    for text, category, evidence in conversation.questions:
        asked = _next(conversation.sources, text)
        recaller = recaller or ListSearch(Fts5SearchEngine(), asked)
        for budget in budgets:
            for name, policy in named.items():
                request = WindowRequest(policy, Budget(budget, "given"), FORMAT, recaller=recaller)
                memory = memories[name, budget]
                # Each question is the newest message, in place of the one before.
                memory.entries.pop(asked[-1].event.position, None)
                memory.recalled.clear()
                window = build(MessageList(asked, total + asked[-1].event.tokens), request, memory)
                share = _shown(conversation, evidence, window.messages)
                _count(cells, name, budget, category, share, window.tokens)
        for name, share in _ranked(conversation, recaller, asked[-1], evidence).items():
            _count(cells, name, _BEST, category, share)
        rows = fts5_rows(plain, text)
        _count(cells, PLAIN, _BEST, category, sum(place in rows for place in evidence) / len(evidence))
    for budget in budgets:
        with summarised(conversation, keep_loops=budget // 160, max_tokens=budget // 2) as session:
            messages = session.context(budget=budget).messages
        for _, category, evidence in conversation.questions:
            _count(cells, SUMMARIES, budget, category, _shown(conversation, evidence, messages))
    with summarised(conversation) as session:
        for text, category, evidence in conversation.questions:
            head = session.append({"role": "user", "content": text}).head
            for budget in budgets:
                window = session.context(budget=budget, policy="recall")
                share = _shown(conversation, evidence, window.messages)
                _count(cells, BESIDE, budget, category, share, window.tokens)
            session.rewind(head - 1)


def _shown(conversation: Conversation, evidence: Sequence[int], messages: Sequence[Mapping[str, Any]]) -> float:
    shown = "\n".join(str(message.get("content")) for message in messages)
    texts = [str(conversation.bodies[place]["content"])[:_SHOWN_CHARS] for place in evidence]
    return sum(said in shown for said in texts) / len(texts)


def _count(cells: Cells, name: str, budget: int, category: int, share: float, tokens: int = 0) -> None:
    for cell in (0, category):
        held = cells.setdefault((name, budget, cell), Evidence())
        held.shares.append(share)
        held.tokens += tokens


def _ranked(
    conversation: Conversation, search: ListSearch, asked: Located, evidence: Sequence[int]
) -> dict[str, float]:
    """Return the share of the evidence among the best hits, and among the days that the best hits are of."""
    text = str(asked.event.body["content"]) if asked.event.body is not None else ""
    day = [str(source.event.envelope.created_at) for source in conversation.sources]
    question = Question(text, date.fromisoformat(day[-1][:10]), asked.event.position, 0.0)
    (hits,) = search(RecallSearch((question,), asked.event.position, frozenset(), MAX_HITS, 0))
    first = conversation.sources[0].event.position
    places = [hit.entry.position - first for hit in hits]
    days = list(dict.fromkeys(day[place] for place in places))[:_BEST]
    return {
        TURNS: sum(place in places[:_BEST] for place in evidence) / len(evidence),
        DAYS: sum(day[place] in days for place in evidence) / len(evidence),
    }


@contextmanager
def summarised(conversation: Conversation, **compression: int) -> Iterator[Session]:
    """Yield a session with a summary of its messages, made without a model."""
    with Turnlog.open("memory://") as log:
        session = log.sessions.create(recall="never")
        times = [{"created_at": source.event.envelope.created_at} for source in conversation.sources]
        for first in range(0, len(times), 25):
            session.append(*conversation.bodies[first : first + 25], meta=times[first : first + 25])
        session.compress(**compression)
        yield session


def _next(sources: Sequence[Located], text: str) -> list[Located]:
    """Return the messages with a question behind them; it opens a loop when the newest message is an answer."""
    body = {"role": "user", "content": text}
    message, newest = CODECS[FORMAT].parse(body), sources[-1]
    is_answered = newest.event.body is not None and newest.event.body["role"] == "assistant"
    loop = newest.loop + is_answered
    event = replace(
        newest.event,
        position=newest.event.position + 1,
        body=body,
        tokens=count_message(message, COUNTER),
        facts=outline_of(message),
        opens_loop=loop if is_answered else 0,
        head_tokens=None,
    )
    return [*sources, Located(event, loop, newest.time_ms + 1000)]


def show(cells: Cells, names: Sequence[str], budgets: Sequence[int]) -> None:
    heads = [f"{budget:,}" for budget in budgets]
    print(f"\n{'evidence in the window, %':24}" + "".join(f"{head:>9}" for head in heads))
    for name in (*names, BESIDE, SUMMARIES):
        print(f"{name:24}" + "".join(f"{100 * cells[name, budget, 0].share:9.1f}" for budget in budgets))
    for number, category in KINDS.items():
        row = [cells.get(("`recall`", budget, number)) for budget in budgets]
        if all(row):
            count = len(row[0].shares) if row[0] else 0
            print(f"- {category:22}" + "".join(f"{100 * held.share:9.1f}" for held in row if held) + f"  of {count}")
    print(f"{'recall@10':24}{TURNS:>16}{DAYS:>16}{PLAIN:>16}")
    for number, category in {0: "all", **KINDS}.items():
        if (TURNS, _BEST, number) in cells:
            shares = (cells[name, _BEST, number].share for name in (TURNS, DAYS, PLAIN))
            print(f"- {category:22}" + "".join(f"{100 * share:16.1f}" for share in shares))


def show_cost(transcripts: Sequence[Transcript], budgets: Sequence[int], title: str) -> None:
    """Print cost with a prompt cache, and the tool calls that lose a value, with recall and without."""
    names = ("default", "recall")
    rows = run(transcripts, Plan(names, tuple(budgets)), processes=2, say=say)
    print(f"\n{title:24}{'tokens':>9}{'cost':>9}{'ids lost':>10}{'leaves':>9}{'either':>9}")
    for budget in budgets:
        for policy in names:
            total = Row()
            for cell, row in rows.items():
                if (cell.policy, cell.budget) == (policy, budget):
                    total.add(row)
            cost = (total.fitting_cost + total.beyond_cost) / (total.fitting_full_cost + total.beyond_full_cost)
            lost = (
                (total.identifiers_lost, total.identifiers_needed),
                (total.leaves_lost, total.leaves_needed),
                (total.either_lost, total.either_needed),
            )
            shares = "".join(f"{100 * part / max(1, whole):9.1f}" for part, whole in lost)
            print(f"{policy:10}{budget:>14,}{100 * total.tokens / total.full_tokens:9.1f}{100 * cost:9.1f} {shares}")


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    spec = importlib.util.spec_from_file_location("loader", options.loader)
    assert spec is not None and spec.loader is not None
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    named, cells = policies(sweep=options.sweep), Cells()
    for conversation in conversations(loader, options.folder / options.set, options.every):
        measure(conversation, named, options.budget, cells)
        say(f"{len(conversation.questions)} questions")
        for name in conversation.left_out:
            print(f"left out, because its key names no turn: {name}")
    show(cells, list(named), options.budget)
    if options.costs:
        tools = [options.folder / name for name in _WITH_TOOLS if (options.folder / name).exists()]
        if tools:
            show_cost(load_transcripts(tools, loader=options.loader), (8_000, 4_000), "calls of tools")
        chats = load_transcripts([options.folder / options.set], loader=options.loader)
        show_cost(chats, (8_000, 4_000, 2_000), "chats")
    if options.json:
        figures = {f"{name} {budget} {cell}": held.share for (name, budget, cell), held in cells.items()}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if options.svg:
        shares = {(name, budget): cell.share for (name, budget, number), cell in cells.items() if not number}
        count = len(cells["`recall`", options.budget[0], 0].shares)
        options.svg.write_text(chart(shares, options.budget, count), encoding="utf-8")
    limits = LIMITS if options.set == "locomo" and options.every > 1 else {}
    held = {budget: cells["`recall`", budget, 0].share for budget in options.budget if budget in limits}
    return 1 if any(share < limits[budget] for budget, share in held.items()) else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recall", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--loader", type=Path, required=True, metavar="FILE.py", help="its iter_sessions(path)")
    parser.add_argument("--set", default="locomo", metavar="NAME", help="the folder in FOLDER that has the questions")
    parser.add_argument("--budget", nargs="+", type=int, default=[2_000, 4_000, 8_000, 16_000], metavar="N")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one of N questions")
    parser.add_argument("--sweep", action="store_true", help="other shares, neighbours and scores, too")
    parser.add_argument("--costs", action="store_true", help="cost with a prompt cache, and values lost")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="a picture: docs/images/recall.svg")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
