"""Runs conversations through a log in memory, with a summary as soon as there is something to cover, and judges each call.

As demanding as it gets: a session is summarised again after each loop, so that a value goes through many rounds.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.summaries.judging import Moment, Taken
from benchmarks.summaries.rows import METRICS, Lost, Row
from benchmarks.windows.histories import COUNTER, FORMAT, calls_in
from turnlog.app import make_application
from turnlog.cli.transcripts import Transcript
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.identity import Owner
from turnlog.settings import Settings
from turnlog.summaries.routes import MAX_SUMMARY_TOKENS, MIN_SUMMARY_TOKENS, Compressed, SummaryAnswer
from turnlog.summaries.trigger import KEEP_LOOPS
from turnlog.testing.fixed import FixedClock, SequentialIds
from turnlog.windows.text import summary_body

_AMPLE = 10_000_000
_POLICY = {"steps": [{"step": "summary"}]}
"""The summary, and behind it everything: what is lost is lost by the summary."""

Rows = dict[str, Row]


@dataclass(frozen=True, slots=True)
class Plan:
    """How sessions are summarised."""

    keep_loops: int = KEEP_LOOPS
    max_tokens: int = 1_000


def run(transcripts: Sequence[Transcript], plan: Plan, *, processes: int = 1, say: Callable[[str], None]) -> Rows:
    """Return the rows by source."""
    result = Rows()
    for done, (source, row) in enumerate(_all(transcripts, plan, processes), 1):
        result.setdefault(source, Row()).add(row)
        say(f"{done} of {len(transcripts)} conversations")
    return dict(sorted(result.items()))


def _all(transcripts: Sequence[Transcript], plan: Plan, processes: int) -> Iterator[tuple[str, Row]]:
    # The longest first: none of them is left alone at the end.
    ordered = sorted(transcripts, key=lambda transcript: -len(transcript.messages))
    if processes <= 1:
        yield from ((item.source, row_of(item, plan)) for item in ordered)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = {pool.submit(row_of, item, plan): item.source for item in ordered}
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def row_of(transcript: Transcript, plan: Plan) -> Row:
    """Run one conversation from its beginning to its end, and return its row."""
    clock = FixedClock()
    app = make_application(Settings(engine="memory://"), clock=clock, ids=SequentialIds())
    with Turnlog(InProcessBackend(app, Owner.of("bench", "bench"))) as log:
        session = log.sessions.create(system=transcript.system, tools=transcript.tools or None, recall="never")
        return _Run(transcript, plan, session, clock).row()


class _Run:
    def __init__(self, transcript: Transcript, plan: Plan, session: Session, clock: FixedClock) -> None:
        self._transcript, self._plan, self._session, self._clock = transcript, plan, session, clock
        self._summary: SummaryAnswer | None = None
        self._positions = dict[int, int]()
        self._row = Row(sessions=1)

    def row(self) -> Row:
        loop: int | None = None
        for at, body in enumerate(self._transcript.messages):
            if at and self._summary is not None and body.get("role") == "assistant" and calls_in(body):
                self._judge(self._summary, at)
            appended = self._session.append(body, lenient=True)
            self._clock.advance(1)
            self._positions[appended.first] = at
            if appended.loop != loop:
                loop = appended.loop
                self._summarise()
        summary, row = self._summary, self._row
        if summary is not None:
            row.summarised = 1
            row.loops = summary.last_loop - summary.first_loop + 1
            row.messages, row.source_tokens = summary.messages, summary.source_tokens
            row.summary_tokens = summary.tokens
            row.fact_tokens = summary.tokens - COUNTER.count(summary_body(summary.text, ()))
        return row

    def _summarise(self) -> None:
        made = self._session.compress(keep_loops=self._plan.keep_loops, max_tokens=self._plan.max_tokens)
        assert isinstance(made, Compressed)
        self._row.made += made.status == "published"
        self._summary = made.summary

    def _judge(self, summary: SummaryAnswer, upto: int) -> None:
        messages, row = self._transcript.messages, self._row
        covered = [
            messages[at] for position, at in self._positions.items() if summary.first <= position <= summary.last
        ]
        window = self._session.context(policy=_POLICY, budget=_AMPLE, format=FORMAT).messages
        moment = Moment(summary, covered, window)
        for call in moment.calls(messages[upto]):
            row.calls += 1
            if call.is_again:
                _count(row.again, (*call.identifiers, *call.leaves))
                continue
            for metric in METRICS:
                _count(getattr(row, metric), getattr(call, metric))
            lost = {value.value for value in (*call.identifiers, *call.leaves) if value.lost_with_facts}
            row.causes.update(moment.cause(value) for value in lost)


def _count(lost: Lost, taken: Sequence[Taken]) -> None:
    lost.needed += bool(taken)
    lost.alone += any(not item.beside for item in taken)
    lost.with_facts += any(item.lost_with_facts for item in taken)
    lost.without_facts += any(item.lost_without_facts for item in taken)


MESSAGES_OF_AN_APPEND = 25
SMALL_WORDS = {"a", "an", "the", "in", "of", "on", "at", "to", "and", "or"}


@dataclass(slots=True)
class Answers:
    """Answers to questions about dialogues that the dialogue has, and those of them that its summary has.

    ``words``: all words of the answer; ``verbatim``: the answer word for word.
    """

    dialogues: int = 0
    words: int = 0
    words_kept: int = 0
    verbatim: int = 0
    verbatim_kept: int = 0

    def are_kept(self, share: float) -> bool:
        """Return whether so large a share survives, by either way to judge."""
        return self.words_kept >= share * self.words and self.verbatim_kept >= share * self.verbatim

    def count(self, answers: Sequence[str], dialogue: str, summary: str) -> None:
        self.dialogues += 1
        said, kept = frozenset(words_in(dialogue)), frozenset(words_in(summary))
        for answer in answers:
            words = frozenset(words_in(answer))
            if words and words <= said:
                self.words += 1
                self.words_kept += words <= kept
            if words and plain(answer) in plain(dialogue):
                self.verbatim += 1
                self.verbatim_kept += plain(answer) in plain(summary)


def words_in(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if word not in SMALL_WORDS]


def plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .")


def answers_kept(paths: Sequence[Path], loader: Path, *, share: float = 0.1) -> Answers:
    """Summarise each dialogue that has questions, without a model, in a share of its tokens; count the answers that survive.

    ``loader`` gives conversations with ``messages`` and ``meta.qa``, a list of questions with ``answer``.
    """
    spec = importlib.util.spec_from_file_location("conversations", loader)
    if spec is None or spec.loader is None:
        raise ValueError(f"{loader} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answers = Answers()
    for conversation in (each for path in paths for each in module.iter_sessions(str(path))):
        questions = conversation["meta"].get("qa")
        if questions:
            texts = [str(message["content"]) for message in conversation["messages"]]
            summary = _summary_of(conversation["messages"], share)
            known = [str(question["answer"]) for question in questions if "answer" in question]
            answers.count(known, "\n".join(texts), summary)
    return answers


def _summary_of(messages: Sequence[Mapping[str, Any]], share: float) -> str:
    """Return text and values of the summary of a whole dialogue."""
    app = make_application(Settings(engine="memory://"), clock=FixedClock(), ids=SequentialIds())
    with Turnlog(InProcessBackend(app, Owner.of("bench", "bench"))) as log:
        session = log.sessions.create(recall="never")
        bodies = [{"role": message["role"], "content": message["content"]} for message in messages]
        for start in range(0, len(bodies), MESSAGES_OF_AN_APPEND):
            session.append(*bodies[start : start + MESSAGES_OF_AN_APPEND])
        room = int(share * session.info().tokens)
        session.compress(keep_loops=0, max_tokens=min(MAX_SUMMARY_TOKENS, max(MIN_SUMMARY_TOKENS, room)))
        summary = session.summary()
        return summary_body(summary.text, [(fact.position, fact.value) for fact in summary.facts]) if summary else ""
