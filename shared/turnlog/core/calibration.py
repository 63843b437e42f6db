"""The calibration factor: how many tokens a provider counts for each token that Turnlog estimates.

The factor is a pure fold over commits, so any old window can be built again. It follows the median of the last five
ratios, in steps of 5 %. It changes seldom, because each change may shift a window that the provider has cached:

- It rises as soon as the median is above it, because the provider would refuse a window that is too large.
- It falls only when a run loop begins and the factor is at least 15 points too high.
"""

from __future__ import annotations

from turnlog.core.lazy_dataclass import lazy_dataclass

KEPT = 5
FEWEST = 3
"""Ratios that are needed before the factor changes: the median of three ignores one outlier."""
STEP = 5
SLACK = 15
LOWEST, HIGHEST = 50, 300
LEAST_TOKENS = 256
"""Smaller windows are ignored: the tokens that a provider adds to every call would distort the ratio."""
_PLAUSIBLE = range(20, 501)


@lazy_dataclass(frozen=True, slots=True)
class Calibration:
    """The current factor and the ratios it follows.

    ``percent`` is the factor in hundredths. ``ratios`` are the last five, in hundredths, rounded up, oldest first.
    """

    percent: int = 100
    ratios: tuple[int, ...] = ()

    def after(self, ratio: int | None, *, opens_loop: bool) -> Calibration:
        """Return the calibration after one more commit.

        ``ratio`` is the ratio that the commit reports, or None. ``opens_loop`` says whether the commit opens a run loop.
        """
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
    """Return ``counted`` (the provider's tokens) over ``ours`` in hundredths, rounded up.

    Returns None for a window of fewer than `LEAST_TOKENS` tokens. Raises `ValueError` for counts of 0 and for an
    implausible ratio.
    """
    if counted <= 0 or ours <= 0:
        raise ValueError("a count of 0")
    if ours < LEAST_TOKENS:
        return None
    ratio = -(-counted * 100 // ours)
    if ratio not in _PLAUSIBLE:
        raise ValueError("an implausible ratio of token counts")
    return ratio
