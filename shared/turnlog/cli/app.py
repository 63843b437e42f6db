"""The table of commands, and their errors: one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from turnlog import __version__
from turnlog.cli.options import Tenant, Token, User, Where, option, remember
from turnlog.cli.screen import plain
from turnlog.core.errors import InvalidInputError, TurnlogError

_HINTS = {
    "unreachable": "is `turnlog serve` running there?",
    "port_in_use": "another program listens there; choose one with --port",
    "token_needed": "give one with --token",
    "unauthorized": "give it with --token",
    "unknown_role": "that is `turnlog append --lenient`",
}


_PLACES = (
    *("serve.serve", "serve.inspect", "chat.chat", "windows.context", "sessions.create", "sessions.append"),
    *("sessions.loops", "sessions.sessions", "sessions.show", "sessions.end", "sessions.reset", "sessions.state"),
    *("sessions.history", "sessions.diff", "sessions.rewind", "sessions.fork", "search.recall", "search.search"),
    *("windows.compress", "jobs.jobs", "copies.snapshot", "search.memory", "serve.mcp", "copies.export"),
    *("copies.import_", "sessions.erase", "sessions.redact", "checks.verify", "checks.backup", "checks.lint"),
    *("checks.schema", "checks.doctor"),
)
COMMANDS = {place.partition(".")[2].removesuffix("_"): place for place in _PLACES}
"""The module below `turnlog.cli` and the function or group of each command; a module is imported when its command is used."""


class Commands(TyperGroup):
    """The group of all commands; it imports a command at its first use, and turns errors into exit codes."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module, _, attribute = COMMANDS[cmd_name].partition(".")
            command = getattr(import_module(f"turnlog.cli.{module}"), attribute)
            if not isinstance(command, typer.Typer):
                function, command = command, typer.Typer(add_completion=False)
                command.command(cmd_name, cls=TyperCommand)(function)
            made = typer.main.get_command(command)
            made.name = cmd_name
            self.commands[cmd_name] = made
        return self.commands[cmd_name]

    def main(self, *args: Any, **extra: Any) -> Any:
        run_and_exit(super().main, *args, **extra)


def run_and_exit(main: Callable[..., Any], *args: Any, **extra: Any) -> NoReturn:
    """Call the ``main`` of a command and exit with its code; an error is one line on stderr and an exit code."""
    try:
        code = main(*args, **{**extra, "standalone_mode": False})
    except (TurnlogError, OSError, RuntimeError) as error:
        raise SystemExit(_failed(error)) from error
    except Exception as error:
        # Usage errors of typer, or of click under older versions of typer.
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        _say(f"{error.format_message().rstrip('.')} ({context.command_path if context else 'turnlog'} --help)")
        raise SystemExit(2) from error
    raise SystemExit(code if isinstance(code, int) else 0)


def _failed(error: Exception) -> int:
    """Print an error to stderr and return its exit code. Raises errors of other kinds again."""
    if isinstance(error, TurnlogError):
        pointers = ", ".join(problem.pointer for problem in error.problems[:5] if problem.pointer)
        where = f" at {pointers}" if pointers else ""
        codes = (error.error_code, *(problem.code for problem in error.problems))
        hint = next((f"; {_HINTS[code]}" for code in codes if code in _HINTS), "")
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
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def options(
    ctx: typer.Context,
    where: Where = None,
    tenant: Tenant = None,
    user: User = None,
    token: Token = None,
    version: Annotated[bool, option("--version", "Print the version and exit.")] = False,
) -> None:
    remember(ctx, where=where, tenant=tenant, user=user, token=token)
    if version:
        sys.stdout.write(f"turnlog {__version__}\n")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        sys.stdout.write(ctx.get_help() + "\n")
