"""The linter as it is reached: through `POST /v1/lint` and `turnlog lint` no mutant of a valid history passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.http.events import event
from tests.linter import (
    test_rules_anthropic,
    test_rules_bedrock_converse,
    test_rules_openai_chat,
    test_rules_openai_responses,
)
from tests.linter.rule_mutants import Cases
from turnlog.app import make_application
from turnlog.cli.app import app
from turnlog.http.lambda_api import make_handler
from turnlog.linter.rules import FORMATS as LINTED
from turnlog.routing import routes_of
from turnlog.settings import Settings

ALL: dict[str, Cases] = {
    module.CASES.format: module.CASES
    for module in (
        test_rules_anthropic,
        test_rules_bedrock_converse,
        test_rules_openai_chat,
        test_rules_openai_responses,
    )
}
EACH = [pytest.param(format, name, id=f"{format}-{name}") for format, cases in ALL.items() for name in cases.histories]


def test_every_format_is_mutated_in_every_way() -> None:
    assert set(ALL) == set(LINTED)
    for cases in ALL.values():
        ways = {mutant.partition(" ")[0] for name in cases.histories for mutant, _ in cases.mutants(name)}
        assert {"drop", "duplicate", "swap", "rename"} <= ways


@pytest.mark.parametrize(("format", "name"), EACH)
def test_the_route_flags_every_mutant(format: str, name: str) -> None:
    handler = make_handler(routes_of("lint"), make_application(Settings(engine="memory://", token_counter="estimate")))

    def problems_of(messages: object) -> object:
        """What is wrong: problems of the answer, or the errors of a refusal."""
        body = json.dumps({"messages": messages, "format": format})
        answer = handler(event("POST", "/v1/lint", raw=body), None)
        content: Any = json.loads(answer["body"])
        assert answer["statusCode"] in (200, 422), content
        assert answer["statusCode"] == 422 or content["valid"] == (not content["problems"])
        return content["problems"] if answer["statusCode"] == 200 else content["errors"]

    ALL[format].judge(name, problems_of)


@pytest.mark.parametrize(("format", "name"), EACH)
def test_the_command_flags_every_mutant(format: str, name: str, tmp_path: Path) -> None:
    """Those that are lists of objects are in one file, a history a line; each of the others is no history: exit 2."""
    cases, readable, other = ALL[format], list[tuple[str, Any]](), set[str]()
    for mutant, messages in cases.mutants(name):
        if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
            readable.append((mutant, messages))
        else:
            other.add(json.dumps(messages))
    file = tmp_path / "mutants.jsonl"
    lines = [json.dumps({"id": mutant, "messages": messages}) for mutant, messages in readable]
    file.write_text("\n".join(lines), encoding="utf-8")
    ran = CliRunner().invoke(app, ["lint", str(file), "--format", format, "--json"], catch_exceptions=False)
    assert ran.exit_code == 1, ran.output
    problems = {history["id"]: history["problems"] for history in json.loads(ran.stdout)["histories"]}
    by_json = {json.dumps(messages): problems[mutant] for mutant, messages in readable}

    def problems_of(messages: object) -> object:
        text = json.dumps(messages)
        return "no history" if text in other else by_json[text]

    cases.judge(name, problems_of)
    for text in other:
        file.write_text(f'{{"messages": {text}}}', encoding="utf-8")
        assert CliRunner().invoke(app, ["lint", str(file), "--format", format], catch_exceptions=False).exit_code == 2
