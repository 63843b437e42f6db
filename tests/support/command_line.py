"""Runs command lines in this process, and expects their success or one line of refusal."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import typer
from typer.testing import CliRunner, Result

from turnlog.cli.app import app

SESSION = "support-42"


@dataclass(frozen=True)
class CommandLine:
    """A program of commands, and the name that it runs under."""

    app: typer.Typer

    def run(self, *arguments: object) -> Result:
        words = [str(argument) for argument in arguments]
        return CliRunner().invoke(self.app, words, prog_name="turnlog", catch_exceptions=False)

    def ok(self, *arguments: object) -> str:
        result = self.run(*arguments)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        assert "\x1b" not in result.stdout
        return result.stdout

    def as_json(self, *arguments: object) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def refused(self, *arguments: object, code: int, says: str) -> None:
        """Expect one line on stderr, nothing on stdout, and the exit code; with --json too."""
        for more in ((), ("--json",)):
            result = self.run(*arguments, *more)
            assert (result.exit_code, result.stdout) == (code, ""), result.output
            assert result.stderr.startswith("turnlog: ") and result.stderr.count("\n") == 1
            assert re.search(says, result.stderr), result.stderr
            assert "Traceback" not in result.stderr


_TURNLOG = CommandLine(app)
run, ok, as_json, refused = _TURNLOG.run, _TURNLOG.ok, _TURNLOG.as_json, _TURNLOG.refused
