"""What is known of models: the size of their context. Settings can add to the table, and a call's budget wins over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

DEFAULT_CONTEXT = 128_000
BudgetSource: TypeAlias = Literal["given", "model", "default"]

# Longest prefix first wins; vendors' documentation, 2026-11.
_CONTEXTS: dict[str, int] = {
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "gpt-4-turbo": 128_000,
    "gpt-5": 400_000,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "claude": 200_000,
    "anthropic.claude": 200_000,
    "amazon.nova-micro": 128_000,
    "amazon.nova": 300_000,
    "gemini-2": 1_048_576,
    "deepseek": 128_000,
    "mistral-large": 128_000,
    "meta.llama3-1": 128_000,
    "qwen": 128_000,
}


class Budget(NamedTuple):
    """All that may be sent, in tokens, and how that was found."""

    tokens: int
    source: BudgetSource


def budget_for(
    *, budget: int | None, model: str | None, output_reserve: int, own: Mapping[str, int] | None = None
) -> Budget:
    """The budget given, or the model's context without the reserve for its output; 128,000 for a model we do not know."""
    if budget is not None:
        return Budget(budget, "given")
    context = context_of(model, own) if model else None
    if context is None:
        return Budget(max(1, DEFAULT_CONTEXT - output_reserve), "default")
    return Budget(max(1, context - output_reserve), "model")


def context_of(model: str, own: Mapping[str, int] | None = None) -> int | None:
    """The size of a model's context in tokens, by its name's longest known prefix (a region or vendor before it is skipped).

    ``own`` adds prefixes to the table and replaces those that it has; there the whole name may be one, too.
    """
    own = {prefix.lower(): context for prefix, context in own.items()} if own else {}
    contexts, name = _CONTEXTS | own, model.rsplit("/", 1)[-1].lower()
    if model.lower() in own:
        return own[model.lower()]
    for candidate in (name, name.partition(".")[2]):
        known = [prefix for prefix in contexts if candidate.startswith(prefix)]
        if known:
            return contexts[max(known, key=len)]
    return None
