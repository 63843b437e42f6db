"""`turnlog doctor`: whether this machine has all that is needed, tried and not only looked up."""

from __future__ import annotations

import importlib.metadata
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.text import Text

from turnlog.client.model import Turnlog
from turnlog.local.cli.options import DATABASE, DEFAULT_DATA, Data, Json, remember, sqlite_url
from turnlog.local.cli.screen import console, print_json, table
from turnlog.models import make_counter
from turnlog.version import __version__

MIN_PYTHON, MIN_SQLITE = (3, 11), (3, 24)
_PACKAGES = ("pydantic", "tiktoken", "aws-lambda-powertools", "waitress", "typer", "rich")
_OPTIONAL = ("boto3", "moto")
_SAMPLE, _SAMPLE_TOKENS = "tiktoken is great!", 6


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    detail: str


def doctor(ctx: typer.Context, data: Data = None, json: Json = False) -> None:
    """Check this installation; exit 1 when something is missing or does not work."""
    folder = remember(ctx, data=data).data or DEFAULT_DATA
    checks = [
        _tried("python", _python),
        _tried("turnlog", lambda: __version__),
        *(_tried(name, lambda name=name: importlib.metadata.version(name)) for name in _PACKAGES),  # type: ignore[misc]
        *(Check(name, True, _version(name) or "not installed (optional)") for name in _OPTIONAL),
        _tried("sqlite", _sqlite),
        _tried("vocabulary", _vocabulary),
        _tried("token counter", _counter),
        _tried("engine", _engine),
        _tried("data folder", lambda: _data(folder)),
    ]
    is_well = all(check.ok for check in checks)
    if json:
        print_json({"ok": is_well, "checks": [asdict(check) for check in checks]})
    else:
        made = table(None, [("", "left"), ("check", "left"), ("", "left")])
        for check in checks:
            made.add_row(Text("✓", "green") if check.ok else Text("✗", "bold red"), check.name, check.detail)
        console().print(made)
    if not is_well:
        raise typer.Exit(1)


def _tried(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except Exception as error:  # noqa: BLE001 - whatever fails is what the doctor is asked for
        return Check(name, False, f"{type(error).__name__}: {error}")


def _python() -> str:
    if sys.version_info < MIN_PYTHON:
        raise RuntimeError(f"{platform.python_version()} is older than {'.'.join(map(str, MIN_PYTHON))}")
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}"


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

    return f"{turnlog_vocabulary.NAME}, {len(turnlog_vocabulary.mergeable_ranks()):,} tokens"


def _counter() -> str:
    counter = make_counter("o200k_base")
    tokens = counter.count(_SAMPLE)
    if tokens != _SAMPLE_TOKENS:
        raise RuntimeError(f"{counter.name} counts {tokens} tokens in a text of {_SAMPLE_TOKENS}")
    return f"{counter.name} counts right"


def _engine() -> str:
    """Writes in one engine and reads in another over the same folder: what is acknowledged is in the file."""
    with tempfile.TemporaryDirectory(prefix="turnlog-doctor-") as name:
        address, message = sqlite_url(Path(name)), {"role": "user", "content": _SAMPLE}
        with Turnlog.open(address) as log:
            session_id = log.sessions.create().id
            log.sessions.get(session_id).append(message)
        with Turnlog.open(address) as log:
            found = [stored.body for stored in log.sessions.get(session_id).messages()]
        if found != [message]:
            raise RuntimeError("a message that was acknowledged did not come back")
    return "writes, and reads back from the file"


def _data(folder: Path) -> str:
    """The folder itself is looked at only: the doctor writes nothing where sessions are."""
    if not (folder / DATABASE).is_file():
        return f"{folder}: no data yet"
    with Turnlog.open(sqlite_url(folder)) as log:
        page = log.sessions.page(limit=100)
    return f"{folder}: {len(page.sessions)}{'+' * (page.next_cursor is not None)} sessions of local / me"
