"""The table of commands, and their errors: one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from turnlog import __version__
from turnlog.cli import chat, checks, copies, jobs, replay, search, serve, sessions, windows
from turnlog.cli.options import Data, Tenant, Token, Url, User, remember
from turnlog.cli.screen import plain
from turnlog.core.errors import InvalidInputError, TurnlogError

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
app.command()(windows.context)
app.command()(sessions.loops)
app.command()(sessions.sessions)
app.command()(sessions.show)
app.command()(sessions.end)
app.command()(sessions.reset)
app.command()(sessions.state)
app.command()(sessions.history)
app.command()(sessions.diff)
app.command()(sessions.rewind)
app.command()(sessions.fork)
app.command()(search.recall)
app.command()(search.search)
app.command()(windows.compress)
app.add_typer(jobs.jobs, name="jobs")
app.add_typer(copies.snapshots, name="snapshot")
app.add_typer(search.memory, name="memory")
app.command()(serve.mcp)
app.command()(copies.export)
app.command("import")(copies.import_)
app.command()(sessions.erase)
app.command()(sessions.redact)
app.command()(checks.verify)
app.command()(checks.backup)
app.command()(checks.lint)
app.command()(checks.schema)
app.command()(checks.doctor)
