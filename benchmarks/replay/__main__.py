"""Replay conversations over HTTP and check the answers: options, service and report.

make replay                                                  # the project's own conversations
make replay ARGS='FOLDER --loader load.py --compress "loops > 4"'
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from benchmarks.replay.loading import load_transcripts, sample_of
from benchmarks.replay.outcomes import Compression
from benchmarks.replay.replaying import Replay, ReplayReport, Row
from turnlog.app import make_application
from turnlog.cli.app import run_and_exit
from turnlog.cli.options import (
    Budget,
    Connection,
    Format,
    Json,
    Policy,
    Tenant,
    Token,
    User,
    Where,
    has_data,
    open_or_make_client,
    policy_value,
    remember,
    served_settings,
)
from turnlog.cli.screen import console, format_number, one_line, print_json, table
from turnlog.cli.transcripts import Transcript
from turnlog.client.model import Turnlog
from turnlog.engines import SystemClock, location_url

Paths = Annotated[
    list[Path],
    typer.Argument(metavar="FILE_OR_FOLDER...", help="Files or folders of JSON or JSON Lines: {id, messages}."),
]
Loader = Annotated[
    Path | None,
    typer.Option(
        "--loader", metavar="FILE.py", help="Python file whose iter_sessions(path) yields {id, messages, source}."
    ),
]
Compress = Annotated[
    str | None,
    typer.Option(
        "--compress",
        metavar="TRIGGER",
        help="Summarise during the replay: 'messages > 30, tokens > 3000' (also loops, fraction), or 'policy'.",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N conversations.")]
Sample = Annotated[
    int | None,
    typer.Option(
        "--sample", metavar="N", min=1, help="A repeatable sample of N conversations, spread over the sources."
    ),
]
Threads = Annotated[int, typer.Option("--threads", metavar="N", min=1, max=64, help="Conversations replayed at once.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the temporary data folder.")]


class _Command(TyperCommand):
    def main(self, *args: Any, **extra: Any) -> Any:
        run_and_exit(super().main, *args, **extra)


app = typer.Typer(name="replay", add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=_Command)
def replay(  # noqa: PLR0913, PLR0917 - a command's options are its arguments
    ctx: typer.Context,
    files: Paths,
    loader: Loader = None,
    format: Format = None,
    policy: Policy = None,
    budget: Budget = None,
    compress: Compress = None,
    limit: Limit = None,
    sample: Sample = None,
    threads: Threads = 4,
    keep: Keep = False,
    where: Where = None,
    tenant: Tenant = None,
    user: User = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Replay conversations over HTTP and check the answers; exit 1 when a message is lost or a window is invalid.

    Each message is appended by itself, and a window is requested before each reply. Without --url, the replay starts its own
    service on a temporary folder. With --compress, appends trigger summaries, which the service's worker makes meanwhile. Then
    exit 1 also when a job fails or stays unfinished, or when a summary covers messages that it must not.
    """
    connection = remember(ctx, where=where, tenant=tenant, user=user, token=token)
    plan = Replay(
        policy=policy_value(policy), budget=budget, format=format or "openai_chat", threads=threads, compress=compress
    )
    checked_policy = plan.session_policy or plan.policy or "default"
    transcripts = load_transcripts(files, loader)[:limit]
    if sample is not None:
        transcripts = sample_of(transcripts, sample)
    with _service(connection, keep=keep) as log, _progress(transcripts, quiet=json) as tick:
        # Check the options once first: a wrong one is a single error, not one for each conversation.
        log.build_window([], policy=checked_policy, format=plan.format)
        report = plan.run(log, transcripts, on_message=tick)
    if json:
        print_json(report.as_json())
    else:
        _print(report)
    if not report.ok:
        raise typer.Exit(1)


@contextmanager
def _service(connection: Connection, *, keep: bool) -> Iterator[Turnlog]:
    """Open the service at the URL, or start one over a temporary folder."""
    from turnlog.server.local_server import LocalServer

    with ExitStack() as stack:
        address = connection.where
        if address is None:
            folder = Path(tempfile.mkdtemp(prefix="turnlog-replay-"))
            stack.callback(_leave, folder, keep=keep)
            app = make_application(served_settings(location_url(folder)))
            stack.callback(app.close)
            server = LocalServer(app, SystemClock(), port=0).start()
            stack.callback(server.stop)
            address = server.url
        yield stack.enter_context(open_or_make_client(replace(connection, where=address)))


def _leave(folder: Path, *, keep: bool) -> None:
    if keep and has_data(Connection(str(folder))):
        sys.stderr.write(f"turnlog: the data folder is kept; look at it with `turnlog sessions --data {folder}`\n")
        return
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _progress(transcripts: Sequence[Transcript], *, quiet: bool) -> Iterator[Callable[[], None]]:
    screen = console(stderr=True)
    if quiet or not screen.is_terminal:
        yield lambda: None
        return
    columns = (
        TextColumn("replaying"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("messages"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("messages", total=sum(len(transcript.messages) for transcript in transcripts))
        yield lambda: progress.advance(task)


def _print(report: ReplayReport) -> None:
    screen = console()
    screen.print(report_table(report))
    if report.total.breaks:
        grid = table(None, [("breaks of what the call before was sent", "left"), ("windows", "right")])
        for reason, count in sorted(report.total.breaks.items(), key=lambda item: (-item[1], item[0])):
            grid.add_row(reason, format_number(count))
        screen.print()
        screen.print(grid)
    if report.warnings or report.repeated_ids:
        grid = table("Disorder that was kept, by kind of warning", [("kind", "left"), ("messages", "right")])
        for code, count in report.warnings.most_common():
            grid.add_row(code, format_number(count))
        grid.add_row("call ids used before in the session", format_number(report.repeated_ids))
        screen.print()
        screen.print(grid)
    if report.compressed:
        screen.print()
        screen.print(summaries_table(report))
    for finding in report.findings:
        where = f"{one_line(finding.source, 40)} {one_line(finding.session, 60)} {finding.place}"
        screen.print(f"{where}: {finding.code}: {one_line(finding.message, 300)}", style="red", soft_wrap=True)
    verdict = "every message came back equal, every window is valid" if report.ok else "something is lost or not valid"
    if report.ok and report.compressed:
        verdict += ", every summary is of closed loops, no job is left"
    screen.print(f"\n{verdict}", style="bold green" if report.ok else "bold red")


def report_table(report: ReplayReport) -> Table:
    """Return a table with a row for each source, and the total."""
    numbers = (
        "sessions",
        "messages",
        "windows",
        "tokens full",
        "tokens window",
        "window / full",
        "stable",
        "invalid",
        "lost",
    )
    grid = table(None, [("source", "left"), *((name, "right") for name in numbers), ("budget too small", "right")])
    for name, row in sorted(report.rows.items()):
        grid.add_row(one_line(name, 40), *_cells(row))
    grid.add_section()
    grid.add_row("total", *_cells(report.total), style="bold")
    return grid


def summaries_table(report: ReplayReport) -> Table:
    """Return a table with a row for each source that was summarised, and the total."""
    sums = ("asked", "made", "loops", "messages", "tokens", "summaries", "saved", "values")
    jobs = ("published", "unchanged", "postponed")
    names = (*sums, *jobs, "failed", "pending", "wrong")
    grid = table("Summaries made meanwhile", [("source", "left"), *((name, "right") for name in names)])
    for name, compression in sorted(report.compressed.items()):
        if compression.asked or compression.made:
            grid.add_row(one_line(name, 40), *_summary_cells(compression))
    grid.add_section()
    grid.add_row("total", *_summary_cells(report.all_compressed), style="bold")
    return grid


def _summary_cells(row: Compression) -> list[str | Text]:
    saved = "–" if not row.source_tokens else f"{row.saved / row.source_tokens:.1%}"
    counts = [
        format_number(value) for value in (row.asked, row.made, row.loops, row.messages, row.source_tokens, row.tokens)
    ]
    jobs = [format_number(row.jobs[name]) for name in ("published", "unchanged", "postponed")]
    wrong = [red_if_any(value) for value in (row.jobs["failed"], row.jobs["pending"], row.wrong)]
    return [*counts, saved, format_number(row.facts), *jobs, *wrong]


def _cells(row: Row) -> list[str | Text]:
    ratio = "–" if row.ratio is None else f"{row.ratio:.1%}"
    stable = "–" if not row.tokens_window else f"{row.tokens_stable / row.tokens_window:.1%}"
    counts = [
        format_number(value) for value in (row.sessions, row.messages, row.windows, row.tokens_full, row.tokens_window)
    ]
    return [
        *counts,
        ratio,
        stable,
        red_if_any(row.invalid),
        red_if_any(row.lost + row.failed),
        format_number(row.too_small),
    ]


def red_if_any(value: int) -> Text:
    """Return a count that should be 0, in green if it is 0, otherwise in red."""
    return Text(format_number(value), style="bold red" if value else "green")


if __name__ == "__main__":
    app(prog_name="python -m benchmarks.replay")
