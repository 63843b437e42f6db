"""How far a summary reaches: up to where a policy's windows show what was said as it was said.

What they show whole stays out of it. So a summary that lands takes the place of digests and of what is left out already, and
what stands behind it in the window is as it was: one break of a provider's prompt cache, where the summary stands.
"""

from __future__ import annotations

from turnlog.domain.values import dataclass
from turnlog.windows.demotions import Crossing, Loops
from turnlog.windows.limits import Recent
from turnlog.windows.policy import Policy
from turnlog.windows.steps import Room
from turnlog.windows.triggers import Counted, any_crossed

KEEP_LOOPS = 2
"""So many closed loops no summary covers, unless a caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Of a policy's windows at a position: ``past`` is all that closed loops have, with ``lead``, which stands before the first
    loop; ``total`` is the log's running total of tokens, ``summary`` what the summary may take in the window."""

    policy: Policy
    room: Room
    lead: Counted
    past: Counted
    total: int
    summary: int

    @property
    def keep_loops(self) -> int:
        """The newest closed loops that no summary covers."""
        whole = [step.whole for step in self.policy.steps if isinstance(step, Loops)]
        return max([KEEP_LOOPS, *whole])

    @property
    def is_endless(self) -> bool:
        """Whether the windows show all that was ever said, so that there is no border to end at yet."""
        return not self.covers(1, self.lead.messages, self.lead.tokens)

    def covers(self, loop: int, messages: int, tokens: int) -> bool:
        """Whether a closed loop is for the summary, with so much of the log before it. Where no step says so, every one is."""
        said = [
            self._says(step, loop, messages, tokens)
            for step in self.policy.steps
            if isinstance(step, Crossing | Recent)
        ]
        return not said or any(said)

    def _says(self, step: Crossing | Recent, loop: int, messages: int, tokens: int) -> bool:
        if isinstance(step, Crossing):
            return tokens < step.border(self.total, self.room, self.summary)
        # From this loop on: whether it is more than what stays, or would be left out of again.
        rest = Counted(self.past.loops - loop + 1, self.past.messages - messages, self.past.tokens - tokens)
        is_over = (step.messages is not None and rest.messages > step.messages) or (
            step.tokens is not None and rest.tokens > step.tokens
        )
        return is_over or (step.once is not None and any_crossed(step.once, rest, budget=self.room.tokens))
