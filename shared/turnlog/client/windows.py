"""`turnlog.build_window`: a window over a list of messages, with no store and no service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from turnlog.client.policies import GivenPolicy, policy_field
from turnlog.contracts.context import BuildWindow, WindowAnswer
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import check_json
from turnlog.entrypoints.routes import Request, read_body
from turnlog.models import make_counter
from turnlog.services.build_context import BuildWindows


@cache
def _use_case() -> BuildWindows:
    return BuildWindows(make_counter("o200k_base"))


def build_window(
    messages: Sequence[Mapping[str, Any]],
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
    settle: bool = False,
    breakpoints: Literal["suggest", "apply"] = "suggest",
) -> WindowAnswer:
    """What to send of a list of messages: valid in ``format``, at most ``budget`` tokens in all.

    ``breakpoints="apply"``: with the provider's prompt-cache breakpoints, to be sent as it is.
    ``policy`` is a preset's name, ``turns(n)`` and such, a policy's body, or a `Policy`. Raises `InvalidInputError` for what is
    no message or no policy, `BudgetTooSmallError` (with ``details["needed"]``) when nothing fits.
    """
    fields: dict[str, Any] = {
        "messages": list(messages),
        "format": format,
        "include_current_loop": include_current_loop,
        "settle": settle,
        "breakpoints": breakpoints,
        "budget": budget,
        "policy": policy_field(policy),
        "input_format": input_format,
        "system": system,
        "tools": list(tools) if tools is not None else None,
        "model": model,
        "output_reserve": output_reserve,
    }
    body = {name: value for name, value in fields.items() if value is not None}
    check_json(body)
    return _use_case()(read_body(Request(owner=Owner.of("local", "me"), body=body), BuildWindow))
