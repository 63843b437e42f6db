"""Commands that check: `turnlog lint`, `schema`, `doctor`, `verify` and `backup`."""

from __future__ import annotations

import importlib.metadata
import platform
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from turnlog import __version__
from turnlog.cli.options import DEFAULT_DATA, Connection, Json, Where, has_data, open_client, remember, with_connection
from turnlog.cli.screen import (
    Output,
    as_json,
    counted,
    format_number,
    one_line,
    plain,
    print_json,
    print_output,
    status_line,
    table,
)
from turnlog.cli.transcripts import Transcript, read_transcripts
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.core.models import Answer
from turnlog.engines import location_url, make_counter
from turnlog.linter.lint_messages import format_of
from turnlog.linter.routes import RuleBroken
from turnlog.linter.rules import FORMATS
from turnlog.linter.rules import lint as violations_of
from turnlog.upkeep.verify import Verification

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="JSON or JSON Lines of messages, {id, messages}, or provider requests, one or many; - reads standard input.",
    ),
]
Rules = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="F",
        help=f"The provider format whose rules apply: {', '.join(FORMATS)}. By default recognised for each history.",
    ),
]
MIN_SQLITE = (3, 24)
_PACKAGES = ("pydantic", "tiktoken", "aws-lambda-powertools", "waitress", "typer", "rich")
_OPTIONAL = ("boto3", "moto")
_SAMPLE, _SAMPLE_TOKENS = "tiktoken is great!", 6
_COUNTS = ("sessions", "commits", "payloads", "segments", "snapshots", "documents")
_MAX_DETAIL = 100


class LintedHistory(Answer):
    """One linted history and the rules it breaks."""

    id: str
    messages: int
    format: str
    valid: bool
    problems: list[RuleBroken]


def lint(files: Files, format: Rules = None, json: Json = False) -> None:
    """Report the provider rules that histories break; exit 1 when any is broken."""
    if format is not None and format not in FORMATS:
        message = f"no rules for format {format!r}; there are some for {', '.join(FORMATS)}"
        raise InvalidInputError(message, code="unknown_format")
    linted = [_linted(transcript, format) for transcript in read_transcripts(files)]
    is_valid = all(history.valid for history in linted)
    answer = {"valid": is_valid, "histories": as_json(linted)}
    print_output(Output(answer, _lint_shown(linted), exit_code=0 if is_valid else 1), json=json)


def _linted(transcript: Transcript, format: str | None) -> LintedHistory:
    try:
        rules = format if format is not None else format_of(transcript.messages)
    except InvalidInputError as error:
        raise InvalidInputError(f"{transcript.id!r}: {error.detail}", code="unknown_format") from error
    problems = [RuleBroken(**asdict(violation)) for violation in violations_of(transcript.messages, format=rules)]
    return LintedHistory(
        id=transcript.id, messages=len(transcript.messages), format=rules, valid=not problems, problems=problems
    )


def _lint_shown(linted: Sequence[LintedHistory]) -> RenderableType:
    shown = list[Text]()
    for history in linted:
        for problem in history.problems:
            line = Text(f"{plain(history.id, lines=False)} {plain(problem.pointer, lines=False)}: ", style="bold")
            line.append(problem.rule, style="bold red").append(f"  {plain(problem.message)}")
            for name, text in (("answer", problem.provider_says), ("fix", problem.fix), ("see", problem.source)):
                line.append(f"\n    {name}: ", style="dim").append(plain(text))
            shown.append(line)
    histories = counted(len(linted), "history", "histories")
    broken, total = sum(not history.valid for history in linted), sum(len(history.problems) for history in linted)
    problems = f"{counted(total, 'problem')} in {broken} of {histories}"
    formats = ", ".join(sorted({history.format for history in linted})) or "any provider"
    verdict = f"{problems if broken else f'{histories}, all valid'} by the rules of {formats}"
    return Group(*shown, Text(verdict, style="red" if broken else "green"))


def schema(
    name: Annotated[str, typer.Argument(metavar="message|policy|state|window", help="What the schema is of.")],
    json: Json = False,
) -> None:
    """Print a JSON Schema."""
    from turnlog.app import load_steps
    from turnlog.http.openapi import json_schemas
    from turnlog.settings import Settings

    load_steps(Settings.from_environment())
    schemas = json_schemas()
    if name not in schemas:
        raise InvalidInputError(f"schema {name!r} is not one of {', '.join(schemas)}", code="unknown_schema")
    print_json(schemas[name])


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of the installation."""

    name: str
    ok: bool
    detail: str


def doctor(ctx: typer.Context, where: Where = None, json: Json = False) -> None:
    """Check this installation; exit 1 when something is missing or does not work."""
    place = remember(ctx, where=where)
    checks = [
        Check("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        _tried("turnlog", lambda: __version__),
        *(_tried(name, lambda name=name: importlib.metadata.version(name)) for name in _PACKAGES),  # type: ignore[misc]
        *(Check(name, True, _version(name) or "not installed (optional)") for name in _OPTIONAL),
        _tried("sqlite", _sqlite),
        _tried("vocabulary", _vocabulary),
        _tried("token counter", _counter),
        _tried("engine", _engine),
        _tried("data folder", lambda: _data(place)),
    ]
    is_well = all(check.ok for check in checks)
    grid = table(None, [("", "left"), ("check", "left"), ("", "left")])
    for check in checks:
        grid.add_row(Text("✓", "green") if check.ok else Text("✗", "bold red"), check.name, check.detail)
    answer = {"ok": is_well, "checks": [asdict(check) for check in checks]}
    print_output(Output(answer, grid, exit_code=0 if is_well else 1), json=json)


def _tried(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except Exception as error:  # noqa: BLE001 - the doctor reports any failure
        return Check(name, False, f"{type(error).__name__}: {error}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _sqlite() -> str:
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        raise RuntimeError(f"{sqlite3.sqlite_version} is older than {'.'.join(map(str, MIN_SQLITE))}")
    return sqlite3.sqlite_version


def _vocabulary() -> str:
    import turnlog_vocabulary

    official = turnlog_vocabulary.expand()
    tokens = len(official.splitlines())
    if sha256(official).hexdigest() != turnlog_vocabulary.SHA256:
        raise RuntimeError(f"the vocabulary {turnlog_vocabulary.NAME} is damaged; install Turnlog again")
    return f"{turnlog_vocabulary.NAME}, {tokens:,} tokens"


def _counter() -> str:
    counter = make_counter("o200k_base")
    tokens = counter.count(_SAMPLE)
    if tokens != _SAMPLE_TOKENS:
        raise RuntimeError(f"{counter.name} counts {tokens} tokens in a text of {_SAMPLE_TOKENS}")
    return f"{counter.name} counts right"


def _engine() -> str:
    """Write with one engine and read with another over the same temporary folder. Raises when the message is lost."""
    with tempfile.TemporaryDirectory(prefix="turnlog-doctor-") as name:
        address, message = location_url(name), {"role": "user", "content": _SAMPLE}
        with Turnlog.open(address) as log:
            session = log.sessions.create()
            session.append(message)
        with Turnlog.open(address) as log:
            bodies = [stored.body for stored in log.sessions.of(session.id).messages()]
        if bodies != [message]:
            raise RuntimeError("a message that was acknowledged did not come back")
    return "writes, and reads back from the file"


def _data(place: Connection) -> str:
    """Describe the data folder without writing to it."""
    name = place.where or DEFAULT_DATA
    if not has_data(place):
        return f"{name}: no data yet"
    with open_client(place, worker=False) as log:
        page = log.sessions.page(limit=100)
    more = page.next_cursor is not None
    noun = "session" if len(page.sessions) == 1 and not more else "sessions"
    return f"{name}: {len(page.sessions)}{'+' * more} {noun} of local / me"


@with_connection
def verify(
    connection: Connection,
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help="One session. By default, all sessions of all owners.")
    ] = None,
    json: Json = False,
) -> None:
    """Check stored data: commits, checksums, payloads, caches and blobs. Exit 1 when something is damaged."""
    with open_client(connection) as log, status_line("checking", json=json) as show:
        done = log.verify(session, progress=lambda done: show(f"checking: {_so_far(done)}"))
    print_output(Output(done, _verification_shown(done), exit_code=1 if done.damages else 0), json=json)


@with_connection
def backup(
    connection: Connection,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The database copy, a new file. Blobs are copied to FILE.blobs.")
    ],
    json: Json = False,
) -> None:
    """Copy the database and blobs of the data folder while it is in use, and check the copy."""
    with open_client(connection) as log, status_line("copying", json=json) as show:
        report = log.backup(file, progress=lambda done: show(f"copying: {_so_far(done)}"))
    blobs = f"{counted(report.blobs, 'blob')} of {counted(report.blob_bytes, 'byte')}"
    copied = f"{report.file}: {counted(report.size_bytes, 'byte')}, {blobs}"
    shown = Group(copied, _verification_shown(report.verification))
    print_output(Output(report, shown, exit_code=1 if report.verification.damages else 0), json=json)


def _verification_shown(done: Verification) -> RenderableType:
    counts = table(None, [(name, "right") for name in _COUNTS])
    counts.add_row(*(format_number(done[name]) for name in _COUNTS))
    if not done.damages:
        return Group(counts, "all is whole")
    damages = table(
        None, [("owner", "left"), ("session", "left"), ("item", "left"), ("code", "left"), ("what", "left")]
    )
    for damage in done.damages:
        damages.add_row(
            f"{damage.tenant_id} / {damage.user_id}" if damage.session_id else "",
            damage.session_id,
            one_line(damage.item, 60),
            damage.code,
            one_line(damage.detail, _MAX_DETAIL),
        )
    return Group(counts, damages, f"{format_number(len(done.damages))} damaged")


def _so_far(done: Verification) -> str:
    return f"{counted(done.sessions, 'session')}, {counted(done.commits, 'commit')}"
