"""`turnlog.lint`: which provider rules a list of messages breaks, with no store and no service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.contracts.lint import LintAnswer, LintMessages
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import check_json
from turnlog.entrypoints.routes import Request, read_body
from turnlog.services.lint import LintHistories


def lint(messages: Sequence[Mapping[str, Any]], *, format: str | None = None) -> LintAnswer:
    """Every rule that the messages break, as the provider of ``format`` would judge them in a request.

    ``format`` is ``openai_chat``, ``openai_responses`` (the messages are the items of ``input``), ``anthropic`` or
    ``bedrock_converse``; left out, it is recognised by what only one of them has. ``answer.valid`` says whether there is
    any; a problem has ``rule``, ``pointer`` (a JSON pointer into ``{"messages": [...]}``), ``message``, ``provider_says``,
    ``fix`` and ``source``. Pure, linear in the size of the messages. Raises `InvalidInputError` for what is no list of
    JSON objects, and for a format without rules.
    """
    body: dict[str, Any] = {"messages": list(messages)}
    if format is not None:
        body["format"] = format
    check_json(body)
    return LintHistories()(read_body(Request(owner=Owner.of("local", "me"), body=body), LintMessages))
