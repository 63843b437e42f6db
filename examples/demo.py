"""The demo: a service of its own, sample conversations replayed through HTTP, and what each model call would have been sent.

    make demo                  # on SQLite
    make demo ENGINE=moto      # the stack of template.yaml, on emulated AWS

Ends with 0 only if every message came back equal and every window was valid.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.text import Text

from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.cli.options import served_settings
from turnlog.cli.screen import console, format_number, one_line, table
from turnlog.cli.transcripts import Transcript, read_transcripts
from turnlog.cli.window_tables import window_table
from turnlog.client.model import Session
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL
from turnlog.engines import SystemClock, location_url
from turnlog.jobs.models import Job
from turnlog.server.local_server import LocalServer

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.replay.replaying import Replay, ReplayedCall, ReplayOutcome, ReplayReport

CONVERSATIONS = Path(__file__).parent / "conversations"
POLICIES = ("run_loops", "default")
BUDGETS = {"coding-agent": 56_000}
"""The coding agent works in one long run loop, and the current loop is always sent whole."""
BUDGET = 8_000
PICTURED = "support-agent"
ASKING, FORGETFUL = "run_loops(5)", "turns(1)"
QUESTION = "Who signed for the parcel at the bakery?"
_SPARKS = "▁▂▃▄▅▆▇█"
_WIDTH = 64
_SHOWN = 110
_JOB_SECONDS = 30


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Replays sample conversations and shows what would be sent.")
    parser.add_argument("--engine", choices=("embedded", "moto"), default="embedded")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the sessions here, in place of those before")
    options = parser.parse_args(arguments)
    engine = options.engine
    screen = console()
    transcripts = read_transcripts([CONVERSATIONS])
    tidy = [transcript for transcript in transcripts if transcript.source != "messy"]
    messy = [transcript for transcript in transcripts if transcript.source == "messy"]
    report, outcomes = ReplayReport(), dict[tuple[str, str], ReplayOutcome]()
    with _embedded(screen, options.keep) if engine == "embedded" else _moto(screen) as (log, where):
        for transcript in tidy:
            for policy in POLICIES:
                outcome = _replay(policy, transcript).replay_one(log, transcript)
                outcomes[transcript.id, policy] = outcome
                report.add(outcome)
            _print_growth(screen, transcript, [outcomes[transcript.id, policy] for policy in POLICIES])
        disorder = Replay(policy="default").run(log, messy)
        _print_disorder(screen, disorder)
        pictured = outcomes.get((PICTURED, "default"))
        is_compressed = is_recalled = True
        if pictured is not None and pictured.session_id is not None:
            session = log.sessions.get(pictured.session_id)
            window = session.context(policy="default", budget=BUDGET)
            screen.print(window_table(window, title=f"The next window of {PICTURED}, part by part"))
            screen.print()
            is_compressed = _compress(screen, log, session)
            is_recalled = _recall(screen, session)
            is_recalled &= _travel(screen, session)
            sample = next(item for item in tidy if item.id == PICTURED)
            is_compressed &= _asks_by_itself(screen, log, sample)
            if options.keep is not None:
                _forgets(log, sample)
    _print_totals(screen, tidy, outcomes)
    for finding in [*report.findings, *disorder.findings]:
        screen.print(f"{finding.session} {finding.place}: {finding.code}: {finding.message}", style="bold red")
    is_well = report.ok and disorder.ok and is_compressed and is_recalled
    sums = report.total.messages + disorder.total.messages, report.total.windows + disorder.total.windows
    verdict = "every message came back equal, every window is valid" if is_well else "something is lost or not valid"
    screen.print(
        f"{sums[0]:,} messages stored, {sums[1]:,} windows built: {verdict}.",
        style="bold green" if is_well else "bold red",
    )
    if where:
        screen.print(where, soft_wrap=True)
    return 0 if is_well else 1


def _compress(screen: Console, log: Turnlog, session: Session) -> bool:
    """Summarise one session through the queue, after a snapshot; show what the next window is then, and that all is there."""
    before = [message.body for message in session.messages()]
    session.create_snapshot("before the summary", if_name_absent=True)
    job = _finished(log, cast("Job", session.compress(mode="async", keep_loops=3)))
    summary, window = session.summary(), session.context(policy="default", budget=BUDGET)
    if job.status != "done" or summary is None:
        screen.print(f"the job {job.job_id} is {job.status}", style="bold red")
        return False
    screen.print(window_table(window, title=f"The same after a worker has summarised it (job {job.job_id})"))
    screen.print(
        f"  {summary.messages} messages of {summary.source_tokens:,} tokens are told in {summary.tokens:,}, with "
        f"{len(summary.facts)} values kept verbatim. The log still has all {len(before)} messages;\n"
        f"  the snapshot {next(session.snapshots()).name!r} names the point before.\n"
    )
    return [message.body for message in session.messages()] == before


def _finished(log: Turnlog, job: Job) -> Job:
    """Return the job once it is over, or as it is after `_JOB_SECONDS`."""
    until = time.monotonic() + _JOB_SECONDS
    while job.status == "queued" and time.monotonic() < until:
        time.sleep(0.1)
        job = log.job(job.job_id)
    return job


def _asks_by_itself(screen: Console, log: Turnlog, transcript: Transcript) -> bool:
    """Show a policy with a trigger: the append that crosses it sends the job and returns, the next window has the summary."""
    session = log.sessions.create(f"{transcript.id}-asks", policy=ASKING, tools=transcript.tools or None)
    screen.print(Text(f"Under {ASKING} a session asks for its summary by itself", style="bold"))
    for message in transcript.messages:
        appended = session.append(message)
        if appended.compression == "queued":
            break
    else:
        screen.print("no append crossed the trigger", style="bold red")
        return False
    sent = next(job for job in log.jobs() if job.session_id == session.id and job.kind == "compress")
    job, summary = _finished(log, sent), session.summary()
    after, before = session.context(budget=BUDGET), session.context(budget=BUDGET, at=appended.last)
    result = sum(part.tokens for part in after.manifest.parts if part.kind == "summary")
    if job.status != "done" or summary is None or not result:
        screen.print(f"the job {job.job_id} is {job.status}", style="bold red")
        return False
    covered = f"loops {summary.first_loop}–{summary.last_loop}"
    lines = (
        f"The append at position {appended.last}, in loop {appended.loop}, crossed its trigger and answered: compression queued.",
        f"The worker did job {job.job_id}: a summary of {covered}.",
        f"The next window has {after.tokens:,} tokens, and {result:,} of them tell {covered}; it had {before.tokens:,} without.",
    )
    for line in lines:
        screen.print(f"  {line}", soft_wrap=True)
    screen.print()
    return True


def _forgets(log: Turnlog, transcript: Transcript) -> None:
    """Make the session of the inspector's tour: a policy that shows one turn before the current one forgets an order number."""
    session = log.sessions.create(f"{transcript.id}-forgets", policy=FORGETFUL, tools=transcript.tools or None)
    for message in transcript.messages:
        session.append(message)


def _recall(screen: Console, session: Session) -> bool:
    """Bring back what the summary left out, as a model does: found by words, then shown by its ref."""
    screen.print(Text("The model gets back what was left out, by its two recall tools", style="bold"))
    calls: list[tuple[str, dict[str, object]]] = [(SEARCH_TOOL, {"q": QUESTION, "limit": 3})]
    ref = next((result.ref for result in session.search(QUESTION).results if result.ref is not None), None)
    if ref is not None:
        calls.append((RECALL_TOOL, {"ref": ref, "pattern": "(?i)signed|place"}))
    for name, arguments in calls:
        screen.print(Text(f"  {name} {json.dumps(arguments)}", style="cyan"))
        for line in session.execute_tool(name, arguments).text.split("\n"):
            screen.print(Text(f"    {one_line(line, _SHOWN)}"))
    screen.print()
    outcome = session.recall(ref, max_tokens=100_000) if ref is not None else None
    stored = {message.position: message.body for message in session.messages()}
    if outcome is None or outcome.position is None or stored[outcome.position]["content"] != outcome.content:
        screen.print("what is recalled is not what was stored", style="bold red")
        return False
    return True


def _travel(screen: Console, session: Session) -> bool:
    """Back to an earlier moment, and forward again; and a fork that goes another way from there."""
    screen.print(Text("Time travel: a rewind removes nothing, a fork copies nothing", style="bold"))
    info, before = session.info(), session.context(budget=BUDGET)
    moment = [loop.last for loop in session.loops()][-3]
    back = session.rewind(moment)
    rewound = session.context(budget=BUDGET)
    fork = session.fork(f"{session.id}-another-way", at=moment, title="Another way")
    fork.append({"role": "user", "content": "Cancel it and refund me instead."})
    session.rewind(info.head)
    again = session.context(budget=BUDGET)
    lines = (
        f"rewind to position {moment}: {back.messages} messages in {back.loops} loops, the window has {rewound.tokens:,} tokens",
        f"fork from there: {fork.info().messages - 1} messages shared, {fork.info().messages - back.messages} of its own",
        f"rewind to position {info.head}: {session.info().messages} messages again, the window is as it was before",
    )
    for line in lines:
        screen.print(f"  {line}", soft_wrap=True)
    screen.print()
    return again.messages == before.messages and fork.info().forked_at == moment


@contextmanager
def _embedded(screen: Console, keep: Path | None) -> Iterator[tuple[Turnlog, str]]:
    """Yield what `turnlog serve` runs, on a folder that is deleted afterwards, or kept."""
    if keep is not None:
        shutil.rmtree(keep, ignore_errors=True)
    where = f"Look at the sessions in the browser: turnlog inspect {keep}" if keep is not None else ""
    with nullcontext(keep) if keep is not None else tempfile.TemporaryDirectory(prefix="turnlog-demo-") as folder:
        app = make_application(served_settings(location_url(Path(folder))))
        server = LocalServer(app, SystemClock(), port=0).start()
        _print_start(screen, server.url, "SQLite")
        try:
            with Turnlog.open(server.url) as log:
                yield log, where
        finally:
            server.stop()
            app.close()


@contextmanager
def _moto(screen: Console) -> Iterator[tuple[Turnlog, str]]:
    """Yield what `turnlog serve --engine moto` runs: template.yaml's functions over its table, bucket and queues."""
    from turnlog.server.local_server import HttpServer
    from turnlog.server.moto_engine import moto_service

    clock = SystemClock()
    with moto_service(clock) as service:
        server = HttpServer(service.answer, port=0).start()
        _print_start(screen, server.url, "moto")
        made = ", ".join(resource.logical_id for resource in service.stack.resources)
        where = f"This ran on moto: the {len(service.stack.functions)} functions of template.yaml over its {made}."
        try:
            with Turnlog.open(server.url) as log:
                yield log, where
        finally:
            server.stop()


def _print_start(screen: Console, url: str, engine: str) -> None:
    screen.print(
        f"Turnlog serves {url} on {engine}. Each message is appended by itself; before each reply a window is",
        style="bold",
    )
    screen.print(
        "built. Bars are the tokens that each model call would be sent, from the first call to the last.\n",
        style="bold",
    )


def _replay(policy: str, transcript: Transcript) -> Replay:
    return Replay(policy=policy, budget=BUDGETS.get(transcript.id, BUDGET))


def _print_growth(screen: Console, transcript: Transcript, outcomes: Sequence[ReplayOutcome]) -> None:
    calls = outcomes[0].calls
    budget = BUDGETS.get(transcript.id, BUDGET)
    screen.print(
        Text(transcript.id, style="bold").append(
            f"  {len(transcript.messages)} messages, {len(calls)} model calls, budget {budget:,} tokens", style="dim"
        )
    )
    most = max((call.full for call in calls), default=0)
    lines = [("everything", [call.full for call in calls], "red")]
    for policy, outcome in zip(POLICIES, outcomes, strict=True):
        lines.append((policy, [call.window or 0 for call in outcome.calls], "green"))
    for name, values, style in lines:
        line = Text(f"  {name:<11}").append(_sparkline(values, most), style=style)
        screen.print(line.append(f"  {values[-1] if values else 0:>7,} at the last call"))
    screen.print()


def _sparkline(values: Sequence[int], most: int) -> str:
    """Draw at most `_WIDTH` columns; of the calls that share one, the largest is shown."""
    columns = min(len(values), _WIDTH)
    edges = [at * len(values) // columns for at in range(columns + 1)] if columns else []
    tops = [max(values[start:end]) for start, end in itertools.pairwise(edges)]
    return "".join(_SPARKS[min(len(_SPARKS) - 1, top * len(_SPARKS) // (most + 1))] if top else " " for top in tops)


def _print_disorder(screen: Console, report: ReplayReport) -> None:
    kinds = ", ".join(f"{code} {count}" for code, count in report.warnings.most_common())
    screen.print(
        Text("messy", style="bold").append(
            f"  {report.total.sessions} conversations as they come from real systems", style="dim"
        )
    )
    screen.print(f"  kept as they are, with warnings: {kinds}")
    screen.print(f"  windows: {report.total.windows}, invalid: {report.total.invalid}\n")


def _print_totals(
    screen: Console, transcripts: Sequence[Transcript], outcomes: dict[tuple[str, str], ReplayOutcome]
) -> None:
    names = ("calls", "last: everything", "window", "smaller", "in sum: everything", "windows", "smaller", "valid")
    made = table(
        "Tokens sent, last call and all calls together",
        [("conversation", "left"), ("policy", "left"), *((name, "right") for name in names)],
    )
    for transcript in transcripts:
        for policy in POLICIES:
            outcome = outcomes[transcript.id, policy]
            row, last = outcome.row, _last(outcome.calls)
            valid = f"{row.windows - row.invalid} of {len(outcome.calls)}"
            made.add_row(
                transcript.id if policy == POLICIES[0] else "",
                policy,
                format_number(len(outcome.calls)),
                format_number(last.full),
                format_number(last.window),
                _smaller(last.full, last.window),
                format_number(row.tokens_full),
                format_number(row.tokens_window),
                _smaller(row.tokens_full, row.tokens_window),
                Text(valid, style="green" if row.windows - row.invalid == len(outcome.calls) else "bold red"),
            )
    screen.print(made)
    screen.print()


def _last(calls: Sequence[ReplayedCall]) -> ReplayedCall:
    return calls[-1] if calls else ReplayedCall(0, None, True)


def _smaller(full: int, window: int | None) -> str:
    return "–" if window is None or not full else f"{1 - window / full:.0%}"


if __name__ == "__main__":
    sys.exit(main())
