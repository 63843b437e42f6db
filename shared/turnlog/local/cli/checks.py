"""`turnlog lint` and `turnlog schema`: no service, no session."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from turnlog.codecs.rules import FORMATS
from turnlog.codecs.rules import lint as violations_of
from turnlog.domain.errors import InvalidInputError
from turnlog.local.cli.options import Json
from turnlog.local.cli.screen import console, plain, print_json
from turnlog.local.transcripts import read_transcripts

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="JSON or JSON Lines: messages, {id, messages}, or many of them.")
]


def lint(
    files: Files,
    format: Annotated[str, typer.Option("--format", metavar="F", help="Whose rules.")] = "openai_chat",
    json: Json = False,
) -> None:
    """Say which provider rules a history breaks; exit 1 when it breaks any."""
    if format not in FORMATS:
        message = f"no rules for format {format!r}; there are some for {', '.join(sorted(FORMATS))}"
        raise InvalidInputError(message, code="unknown_format")
    found = [(one, violations_of(one.messages, format=format)) for one in read_transcripts(files)]
    broken = sum(1 for _, violations in found if violations)
    if json:
        histories = [
            {
                "id": one.id,
                "messages": len(one.messages),
                "valid": not violations,
                "problems": [asdict(violation) for violation in violations],
            }
            for one, violations in found
        ]
        print_json({"valid": not broken, "format": format, "histories": histories})
    else:
        screen = console()
        for one, violations in found:
            for violation in violations:
                line = Text(f"{plain(one.id, lines=False)} {violation.pointer}: ", style="bold")
                line.append(violation.rule, style="bold red").append(f"  {plain(violation.message)}")
                for name, text in (("answer", violation.answer), ("fix", violation.fix), ("see", violation.source)):
                    line.append(f"\n    {name}: ", style="dim").append(plain(text))
                screen.print(line, soft_wrap=True)
        counted = f"{len(found)} {'history' if len(found) == 1 else 'histories'}"
        problems = sum(len(violations) for _, violations in found)
        verdict = f"{problems} problems in {broken} of {counted}" if broken else f"{counted}, all valid"
        screen.print(verdict, style="red" if broken else "green")
    if broken:
        raise typer.Exit(1)


def schema(
    name: Annotated[str, typer.Argument(metavar="message|policy|state|window")],
    json: Json = False,
) -> None:
    """Print a JSON Schema."""
    from turnlog.bootstrap import load_steps
    from turnlog.entrypoints.openapi import json_schemas
    from turnlog.settings import Settings

    load_steps(Settings.from_environment())
    schemas = json_schemas()
    if name not in schemas:
        raise InvalidInputError(f"schema {name!r} is not one of {', '.join(schemas)}", code="unknown_schema")
    print_json(schemas[name])
