"""`turnlog verify` and `turnlog backup`: is what is stored whole, and a copy of it while it is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from turnlog.contracts.storage import Damage, Verification
from turnlog.local.cli.options import Connection, Json, connected, opened
from turnlog.local.cli.screen import console, cut, number, print_json, table

_COUNTS = ("sessions", "commits", "payloads", "segments", "snapshots", "documents")
_MAX_DETAIL = 100


@connected
def verify(
    connection: Connection,
    session: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="One session; else all of everybody.")
    ] = None,
    json: Json = False,
) -> None:
    """Check what is stored: commits, checksums, payloads, caches and blobs. Exit 1 when something is wrong."""
    with opened(connection) as log, _progress("checking", json=json) as progress:
        done = log.verify(session, progress=progress)
    if json:
        print_json(done.model_dump(mode="json"))
    else:
        _show(console(), done)
    if done.damages:
        raise typer.Exit(1)


@connected
def backup(
    connection: Connection,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file; blobs go to FILE.blobs.")],
    json: Json = False,
) -> None:
    """Copy the data folder's database and blobs while it is in use, and check the copy."""
    with opened(connection) as log, _progress("copying", json=json) as progress:
        made = log.backup(file, progress=progress)
    if json:
        print_json(made.model_dump(mode="json"))
    else:
        sizes = f"{number(made.size_bytes)} bytes, {number(made.blobs)} blobs of {number(made.blob_bytes)} bytes"
        console().print(f"{made.file}: {sizes}", soft_wrap=True)
        _show(console(), made.verification)
    if made.verification.damages:
        raise typer.Exit(1)


def _show(screen: Console, done: Verification) -> None:
    counts = table(None, [(name, "right") for name in _COUNTS])
    counts.add_row(*(number(done[name]) for name in _COUNTS))
    screen.print(counts)
    if not done.damages:
        screen.print("all is whole")
        return
    damages = table(
        None, [("owner", "left"), ("session", "left"), ("item", "left"), ("code", "left"), ("what", "left")]
    )
    for damage in done.damages:
        damages.add_row(
            _owner(damage), damage.session_id, cut(damage.item, 60), damage.code, cut(damage.detail, _MAX_DETAIL)
        )
    screen.print(damages)
    screen.print(f"{number(len(done.damages))} damaged")


def _owner(damage: Damage) -> str:
    return f"{damage.tenant_id} / {damage.user_id}" if damage.session_id else ""


@contextmanager
def _progress(word: str, *, json: bool) -> Iterator[Callable[[Verification], None]]:
    """Yield what shows how far it is, on a terminal."""
    screen = console(stderr=True)
    if json or not screen.is_terminal:
        yield lambda done: None
        return
    with screen.status(word) as status:
        yield lambda done: status.update(f"{word}: {number(done.sessions)} sessions, {number(done.commits)} commits")
