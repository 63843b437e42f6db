"""`turnlog lint` and `turnlog schema`: no service, no session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from turnlog.codecs.rules import FORMATS
from turnlog.codecs.rules import lint as violations_of
from turnlog.contracts.lint import RuleBroken
from turnlog.domain.errors import InvalidInputError
from turnlog.local.cli.options import Json
from turnlog.local.cli.screen import console, plain, print_json
from turnlog.local.transcripts import Transcript, read_transcripts
from turnlog.services.lint import format_of, problem_of

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="JSON or JSON Lines: messages, {id, messages}, a provider's request, or many of them; - is standard input.",
    ),
]
Rules = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="F", help=f"Whose rules: {', '.join(FORMATS)}. Left out: each history's is recognised."
    ),
]


@dataclass(frozen=True, slots=True)
class _Linted:
    """One history, and what is wrong with it."""

    id: str
    messages: int
    format: str
    problems: list[RuleBroken]


def lint(files: Files, format: Rules = None, json: Json = False) -> None:
    """Say which provider rules a history breaks; exit 1 when it breaks any."""
    if format is not None and format not in FORMATS:
        message = f"no rules for format {format!r}; there are some for {', '.join(sorted(FORMATS))}"
        raise InvalidInputError(message, code="unknown_format")
    linted = [_linted(one, format) for one in read_transcripts(files)]
    if json:
        histories = [
            {
                "id": one.id,
                "messages": one.messages,
                "format": one.format,
                "valid": not one.problems,
                "problems": [problem.model_dump() for problem in one.problems],
            }
            for one in linted
        ]
        print_json({"valid": not any(one.problems for one in linted), "histories": histories})
    else:
        _print(linted)
    if any(one.problems for one in linted):
        raise typer.Exit(1)


def _linted(one: Transcript, format: str | None) -> _Linted:
    try:
        rules = format if format is not None else format_of(one.messages)
    except InvalidInputError as error:
        raise InvalidInputError(f"{one.id!r}: {error.detail}", code="unknown_format") from error
    problems = [problem_of(violation) for violation in violations_of(one.messages, format=rules)]
    return _Linted(one.id, len(one.messages), rules, problems)


def _print(linted: Sequence[_Linted]) -> None:
    screen = console()
    for one in linted:
        for problem in one.problems:
            line = Text(f"{plain(one.id, lines=False)} {plain(problem.pointer, lines=False)}: ", style="bold")
            line.append(problem.rule, style="bold red").append(f"  {plain(problem.message)}")
            for name, text in (("answer", problem.provider_says), ("fix", problem.fix), ("see", problem.source)):
                line.append(f"\n    {name}: ", style="dim").append(plain(text))
            screen.print(line, soft_wrap=True)
    counted = f"{len(linted)} {'history' if len(linted) == 1 else 'histories'}"
    broken, total = sum(1 for one in linted if one.problems), sum(len(one.problems) for one in linted)
    problems = f"{total} {'problem' if total == 1 else 'problems'} in {broken} of {counted}"
    verdict = f"{problems if broken else f'{counted}, all valid'} by the rules of {_named(linted)}"
    screen.print(verdict, style="red" if broken else "green")


def _named(linted: Sequence[_Linted]) -> str:
    return ", ".join(sorted({one.format for one in linted})) or "any provider"


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
