"""Steps as a user would register them: one that does anything that a step may, drawn by a seed; and those that may not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from turnlog.steps import Loop, Room, Step, Unit, WindowDraft, digest, out, pinned, register_step, unit_out
from turnlog.windows import registry


class Whim(Step):
    """Does with each loop, and each message, one of all the things that a step may do."""

    step: Literal["whim"] = "whim"
    seed: int = 0

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        chance = random.Random(self.seed)
        past = [self._lowered(loop, chance) for loop in view.past]
        current = [
            replace(loop, units=tuple(pinned(unit) if chance.random() < 0.1 else unit for unit in loop.units))
            for loop in view.loops[-1:]
        ]
        return replace(view, loops=(*past, *current))

    def _lowered(self, loop: Loop, chance: random.Random) -> Loop:
        if chance.random() < 0.5:
            loop = self._parted(loop, chance)
        fate = chance.randrange(4)
        if fate == 0:
            return out(loop, "whim")
        if fate == 1:
            return digest(loop, "whim", chance.choice((1, 40, 500, 900)), chance.choice((0, 3, 100)))
        return loop

    def _parted(self, loop: Loop, chance: random.Random) -> Loop:
        if loop.level == "digest":
            return loop
        return replace(loop, units=tuple(self._one(unit, chance) for unit in loop.units))

    def _one(self, unit: Unit, chance: random.Random) -> Unit:
        fate = chance.randrange(6)
        return unit_out(unit, "whim") if fate == 0 else pinned(unit) if fate == 1 else unit


@contextmanager
def registered(*models: type[Step]) -> Iterator[None]:
    """The steps are known inside."""
    before = dict(registry.REGISTERED)
    try:
        for model in models:
            register_step(model)
        yield
    finally:
        registry.REGISTERED.clear()
        registry.REGISTERED.update(before)
