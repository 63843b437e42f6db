"""The token budget of a window: given by the caller, or the context size of the model. Settings can add models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.window_parts import BudgetSource

DEFAULT_CONTEXT = 128_000

# Longest prefix first wins; vendors' documentation, 2026-11 (Claude: https://platform.claude.com/docs/en/models/overview).
_CONTEXTS: dict[str, int] = {
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    **dict.fromkeys(("gpt-4-turbo", "gpt-4-0125", "gpt-4-1106", "gpt-4-vision", "gpt-4o", "gpt-4.5"), 128_000),
    "gpt-4.1": 1_047_576,
    "gpt-5": 272_000,  # of the context of 400,000, the rest is for the answer
    **dict.fromkeys(("gpt-5-chat", "gpt-5.1-chat", "gpt-5.2-chat", "gpt-5.3-chat"), 128_000),
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "claude": 200_000,
    **dict.fromkeys(("claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-4-6"), 1_000_000),
    **dict.fromkeys(("claude-opus-5", "claude-sonnet-5", "claude-haiku-5", "claude-fable", "claude-mythos"), 1_000_000),
    "amazon.nova-micro": 128_000,
    "amazon.nova": 300_000,
    "gemini-2": 1_048_576,
    "deepseek": 128_000,
    "mistral-large": 128_000,
    "meta.llama3-1": 128_000,
    "qwen": 128_000,
}


class Budget(NamedTuple):
    """The most tokens that a request may have, and where the number comes from."""

    tokens: int
    source: BudgetSource


def too_small(messages: int, fixed: int, budget: Budget) -> BudgetTooSmallError:
    """Return the error of a too small budget. The least window has ``messages`` and ``fixed`` tokens (tools and system text)."""
    needed = messages + fixed
    place = "the budget is {}" if budget.source == "given" else "output_reserve leaves {} of the model's context"
    message = f"the least window needs {needed} tokens (tools and system text: {fixed}); {place.format(budget.tokens)}"
    return BudgetTooSmallError(message, details={"needed": needed, "fixed": fixed, "budget": budget.tokens})


def budget_for(
    *, budget: int | None, model: str | None, output_reserve: int, own: Mapping[str, int] | None = None
) -> Budget:
    """Return the caller's budget, or the model's context less ``output_reserve`` tokens for its answer.

    A model that is not in the table has `DEFAULT_CONTEXT` tokens. ``own`` adds models to the table.
    """
    if budget is not None:
        return Budget(budget, "given")
    context = context_of(model, own) if model else None
    if context is None:
        return Budget(max(1, DEFAULT_CONTEXT - output_reserve), "default")
    return Budget(max(1, context - output_reserve), "model")


def context_of(model: str, own: Mapping[str, int] | None = None) -> int | None:
    """Return the size of a model's context in tokens; None for an unknown model.

    The longest known prefix of the name decides; region and vendor in front of the name are skipped. ``own`` adds prefixes to
    the table and replaces those it has; it may also have whole names.
    """
    own = {prefix.lower(): context for prefix, context in own.items()} if own else {}
    contexts, name = _CONTEXTS | own, model.rsplit("/", 1)[-1].lower()
    if model.lower() in own:
        return own[model.lower()]
    parts = name.split(".")
    for candidate in (".".join(parts[index:]) for index in range(len(parts))):
        known = [prefix for prefix in contexts if candidate.startswith(prefix)]
        if known:
            return contexts[max(known, key=len)]
    return None
