"""What is learned of a provider's token counts: how many it counts for one of ours.

A pure fold over commits, so that any old window can be built again. To keep what a provider has cached, the factor in force
moves seldom: it stands on steps of 5 %, follows the median of the last five ratios, goes up as soon as that is above it (a
window that is too large would be refused), and comes down only when a run loop begins and it is 15 % or more too high.
"""

from __future__ import annotations

from turnlog.core.lazy_dataclass import lazy_dataclass

KEPT = 5
FEWEST = 3
"""So many ratios are needed before the factor moves: one outlier among three is outvoted."""
STEP = 5
SLACK = 15
LOWEST, HIGHEST = 50, 300
LEAST_TOKENS = 256
"""Smaller windows teach nothing: what a provider adds to every call would be taken for a factor."""
_PLAUSIBLE = range(20, 501)


@lazy_dataclass(frozen=True, slots=True)
class Calibration:
    """``percent`` is the factor in force, in hundredths; ``ratios`` are the last five, oldest first, rounded up."""

    percent: int = 100
    ratios: tuple[int, ...] = ()

    def after(self, ratio: int | None, *, opens_loop: bool) -> Calibration:
        """The calibration after a commit that brought this ratio, if any, and opened a run loop or not."""
        ratios = (*self.ratios, ratio)[-KEPT:] if ratio is not None else self.ratios
        if len(ratios) < FEWEST:
            return Calibration(self.percent, ratios)
        median = sorted(ratios)[len(ratios) // 2]
        step = -(-min(max(median, LOWEST), HIGHEST) // STEP) * STEP
        is_moved = step > self.percent or (opens_loop and step <= self.percent - SLACK)
        return Calibration(step if is_moved else self.percent, ratios)

    @property
    def factor(self) -> float:
        return self.percent / 100

    def encode(self) -> str:
        return " ".join(str(number) for number in (self.percent, *self.ratios)) if self != Calibration() else ""

    @classmethod
    def decode(cls, text: str) -> Calibration:
        percent, *ratios = (int(number) for number in text.split(" "))
        return cls(percent, tuple(ratios))


def ratio_of(counted: int, ours: int) -> int | None:
    """Hundredths of the provider's tokens for one of ours, rounded up; None where the window is too small to tell.

    Raises `ValueError` for counts that can't be of one window.
    """
    if counted <= 0 or ours <= 0:
        raise ValueError("a count of 0")
    if ours < LEAST_TOKENS:
        return None
    ratio = -(-counted * 100 // ours)
    if ratio not in _PLAUSIBLE:
        raise ValueError("a ratio beyond what any tokeniser makes")
    return ratio
