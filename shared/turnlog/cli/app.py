"""The table of commands, and their errors: one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from turnlog.cli import checks, compress, context, imports, jobs, replay, serve, snapshots
from turnlog.cli import checks as doctor
from turnlog.cli import checks as upkeep
from turnlog.cli import imports as export
from turnlog.cli import search as memory
from turnlog.cli import search as recall
from turnlog.cli import serve as mcp
from turnlog.cli import sessions as erase
from turnlog.cli import sessions as history
from turnlog.cli import sessions as redact
from turnlog.cli import sessions as state
from turnlog.cli import sessions as time_travel
from turnlog.cli.chat import command as chat
from turnlog.cli.options import Data, Tenant, Token, Url, User, remember
from turnlog.cli.screen import plain
from turnlog.core.errors import InvalidInputError, TurnlogError
from turnlog.version import __version__

_HINTS = {
    "unreachable": "is `turnlog serve` running there?",
    "port_in_use": "another program listens there; choose one with --port",
    "token_needed": "give one with --token",
    "unauthorized": "give it with --token",
}
_MAX_POINTERS = 5


class Commands(TyperGroup):
    """The group of all commands; it turns errors into exit codes."""

    def main(self, *args: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            code = super().main(*args, **extra)
        except (TurnlogError, OSError, RuntimeError) as error:
            raise SystemExit(_failed(error)) from error
        except Exception as error:
            # Usage errors of typer, or of click under older versions of typer.
            if not hasattr(error, "format_message"):
                raise
            _say(f"{error.format_message().rstrip('.')} (turnlog --help)")
            raise SystemExit(2) from error
        raise SystemExit(code if isinstance(code, int) else 0)


def _failed(error: Exception) -> int:
    """Print an error to stderr and return its exit code. Raises errors of other kinds again."""
    if isinstance(error, TurnlogError):
        pointers = ", ".join(problem.pointer for problem in error.problems[:_MAX_POINTERS] if problem.pointer)
        where = f" at {pointers}" if pointers else ""
        hint = f"; {_HINTS[error.error_code]}" if error.error_code in _HINTS else ""
        _say(f"{error.detail} ({error.error_code}{where}){hint}")
        return 2 if isinstance(error, InvalidInputError) else 1
    if isinstance(error, OSError):
        place = f" {error.filename!r}" if error.filename is not None else ""
        _say(f"{(error.strerror or str(error)).lower()}{place}")
        return 1
    if type(error).__name__ == "Abort":
        _say("stopped")
        return 130
    raise error


def _say(message: str) -> None:
    sys.stderr.write(f"turnlog: {plain(message, lines=False)}\n")


app = typer.Typer(
    name="turnlog",
    cls=Commands,
    help="The session state of an LLM agent: an append-only log, and for each model call the window that fits.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def options(
    ctx: typer.Context,
    url: Url = None,
    data: Data = None,
    tenant: Tenant = None,
    user: User = None,
    token: Token = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    remember(ctx, url=url, data=data, tenant=tenant, user=user, token=token)
    if version:
        sys.stdout.write(f"turnlog {__version__}\n")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        sys.stdout.write(ctx.get_help() + "\n")


app.command()(serve.serve)
app.command()(replay.replay)
app.command()(chat.chat)
app.command()(context.context)
app.command()(history.loops)
app.command()(history.sessions)
app.command()(history.show)
app.command()(history.end)
app.command()(history.reset)
app.command()(state.state)
app.command()(state.history)
app.command()(time_travel.diff)
app.command()(time_travel.rewind)
app.command()(time_travel.fork)
app.command()(recall.recall)
app.command()(recall.search)
app.command()(compress.compress)
app.add_typer(jobs.jobs, name="jobs")
app.add_typer(snapshots.snapshots, name="snapshot")
app.add_typer(memory.memory, name="memory")
app.command()(mcp.mcp)
app.command()(export.export)
app.command("import")(imports.import_)
app.command()(erase.erase)
app.command()(redact.redact)
app.command()(upkeep.verify)
app.command()(upkeep.backup)
app.command()(checks.lint)
app.command()(checks.schema)
app.command()(doctor.doctor)
