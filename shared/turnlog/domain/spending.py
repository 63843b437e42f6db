"""How many tokens a tenant's summaries have taken on a day. Pure: what is stored of it is `turnlog.log.spending`'s.

Tokens are reserved before a model is called and settled after it, so calls at the same time can't spend a budget twice.
"""

from __future__ import annotations

from dataclasses import replace

from turnlog.domain.values import dataclass


@dataclass(frozen=True, slots=True)
class Spent:
    """``reserved`` are tokens of calls that are under way, or whose end was never told: they count as spent."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reserved: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.reserved

    def reserve(self, tokens: int, *, limit: int) -> Spent | None:
        """With a call of about so many tokens begun; None when that would be over the limit."""
        return replace(self, reserved=self.reserved + tokens) if self.tokens + tokens <= limit else None

    def settle(self, tokens: int, *, input_tokens: int, output_tokens: int) -> Spent:
        """With that call ended: what it really took. Without tokens it was none."""
        return Spent(
            self.calls + (input_tokens + output_tokens > 0),
            self.input_tokens + input_tokens,
            self.output_tokens + output_tokens,
            max(0, self.reserved - tokens),
        )
