"""`turnlog.lint` and `turnlog.build_window`: provider rules and windows for a list of messages, without a store or a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from turnlog.client import GivenMessage, GivenPolicy, plain_messages, policy_field
from turnlog.core.json_values import checked_json, without_none
from turnlog.core.window_parts import OthersCalls
from turnlog.engines import make_counter
from turnlog.linter.lint_messages import LintHistories
from turnlog.linter.routes import LintAnswer, LintMessages
from turnlog.ports import TokenCounter
from turnlog.providers.registry import codec_of
from turnlog.routing import read_body
from turnlog.sessions.context import BuildWindows
from turnlog.sessions.context_models import Breakpoints, BuildWindow, WindowAnswer
from turnlog.sessions.incoming import understand

if TYPE_CHECKING:
    from turnlog.log.reading import Located
    from turnlog.windows.recalled import RecallHit, RecallSearch


def lint(
    messages: Sequence[Mapping[str, Any]],
    *,
    format: str | None = None,
    system: str | Sequence[Mapping[str, Any]] | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    made_behind: Mapping[str, str] | None = None,
) -> LintAnswer:
    """List every rule that the messages break, as the provider of ``format`` would judge them in a request.

    ``format`` is ``openai_chat``, ``openai_responses`` (the messages are the items of ``input``), ``anthropic`` or
    ``bedrock_converse``; by default it is recognised from the messages. ``answer.valid`` is true when no rule is broken. A
    problem has ``rule``, ``pointer`` (a JSON pointer into ``{"messages": [...]}``), ``message``, ``provider_says``, ``fix`` and
    ``source``.

    ``made_behind`` has, by the signature of a thinking block, ``answer.fingerprint`` of the request that the block was made by,
    which includes ``system`` and ``tools``. These blocks are checked, too.

    Pure, linear in the size of the messages. Raises `InvalidInputError` when the messages are not a list of JSON objects, and
    for a format without rules.
    """
    fields = {"messages": messages, "format": format, "system": system, "tools": tools, "made_behind": made_behind}
    return LintHistories()(read_body(checked_json(without_none(fields)), LintMessages))


def count_tokens(value: str | Sequence[GivenMessage], *, format: str | None = None) -> int:
    """Count the tokens of a text, or of messages, as an append counts and stores them.

    Windows add what the provider's format costs around messages. Raises `InvalidInputError` for what is no message.
    """
    if isinstance(value, str):
        return _counter().count(value)
    plain, format = plain_messages(value, format)
    messages = checked_json([dict(message) for message in plain])
    codec = codec_of(format) if format is not None else None
    return sum(understand(message, index, _counter(), codec=codec).tokens for index, message in enumerate(messages))


@cache
def _counter() -> TokenCounter:
    return make_counter("o200k_base")


@cache
def _use_case() -> BuildWindows:
    return BuildWindows(_counter(), None, _find)


def _find(messages: Sequence[Located], search: RecallSearch) -> Sequence[Sequence[RecallHit]]:
    # A window that leaves nothing out loads no search engine.
    from turnlog.search.fts5 import Fts5SearchEngine
    from turnlog.search.session import ListSearch

    return ListSearch(Fts5SearchEngine(), messages)(search)


def build_window(  # noqa: PLR0913
    messages: Sequence[GivenMessage],
    *,
    budget: int | None = None,
    format: str = "openai_chat",
    policy: GivenPolicy | None = None,
    input_format: str | None = None,
    system: str | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    model: str | None = None,
    output_reserve: int | None = None,
    include_current_loop: bool = True,
    answer_open_calls: bool = False,
    others_calls: OthersCalls = "text",
    breakpoints: Breakpoints = "suggest",
    query: str | None = None,
) -> WindowAnswer:
    """Build the window of a list of messages, as `Session.append` takes them: valid in ``format``, at most ``budget`` tokens.

    ``breakpoints="apply"`` sets the provider's prompt-cache breakpoints, so the window can be sent as it is. ``policy`` is a
    preset's name, a call such as ``turns(n)``, a policy's body, or a `Policy`. Raises `InvalidInputError` for an invalid
    message or policy, `BudgetTooSmallError` (with ``details["needed"]``) when nothing fits.
    """
    messages, input_format = plain_messages(messages, input_format)
    fields: dict[str, Any] = {
        "messages": messages,
        "format": format,
        "include_current_loop": include_current_loop,
        "answer_open_calls": answer_open_calls,
        "others_calls": others_calls,
        "breakpoints": breakpoints,
        "query": query,
        "budget": budget,
        "policy": policy_field(policy),
        "input_format": input_format,
        "system": system,
        "tools": tools,
        "model": model,
        "output_reserve": output_reserve,
    }
    return _use_case()(read_body(checked_json(without_none(fields)), BuildWindow))
