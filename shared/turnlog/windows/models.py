"""What is known of models: the size of their context. A table that a caller can override by giving a budget."""

from __future__ import annotations

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


def budget_for(*, budget: int | None, model: str | None, output_reserve: int) -> Budget:
    """The budget given, or the model's context without the reserve for its output; 128,000 for a model we do not know."""
    if budget is not None:
        return Budget(budget, "given")
    context = context_of(model) if model else None
    if context is None:
        return Budget(max(1, DEFAULT_CONTEXT - output_reserve), "default")
    return Budget(max(1, context - output_reserve), "model")


def context_of(model: str) -> int | None:
    """The size of a model's context in tokens, by its name's longest known prefix (a region or vendor before it is skipped)."""
    name = model.rsplit("/", 1)[-1].lower()
    for candidate in (name, name.partition(".")[2]):
        known = [prefix for prefix in _CONTEXTS if candidate.startswith(prefix)]
        if known:
            return _CONTEXTS[max(known, key=len)]
    return None
