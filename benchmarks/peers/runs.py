"""The two runs: what a turn costs by length of the session, and what two writers lose."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from botocore.exceptions import ClientError

from benchmarks.peers.meter import Spent
from benchmarks.peers.system import System, nothing, world
from benchmarks.peers.turns import CHAT, Profile, Turn, marks, marks_of

SIZES = (10, 100, 250, 500, 1_000)
ROUNDS = 5
_CHECKED_AT = 30
_SILENT = "no error came out of the turn"
SystemType: TypeAlias = type[System]


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn, and one restore, of a session with so many messages before it."""

    messages: int
    turn: Spent
    restore: Spent
    given: int


@dataclass
class Costs:
    """A system's samples. ``breaks_at``: the messages of the session whose next turn is refused for its size.

    ``breaks_silently``: the application is not told, the turn returns as if it were stored.
    """

    system: str
    profile: str
    turn_reads: bool
    samples: list[Sample] = field(default_factory=list)
    breaks_at: int | None = None
    breaks_silently: bool = False
    bulk_is_same: bool | None = None


@dataclass(frozen=True, slots=True)
class Losses:
    """Of two writers on one session."""

    system: str
    schedule: str
    acknowledged: int
    lost: int


class _Broken(Exception):  # noqa: N818 - an outcome
    """The next turn is refused: an item would be over the limit."""


class _Filler:
    """A session that grows by the turns of a profile."""

    def __init__(self, system: System, profile: Profile) -> None:
        self._system = system
        self.meter = system.meter()
        self.writer = system.open(self.meter)
        self._turns: Iterator[Turn] = profile.turns()
        self._per_turn = profile.messages_per_turn
        self.messages = 0

    def fill(self, messages: int, *, by_turns: bool = False) -> None:
        """Fill the session in bulk as long as that is taken; then turn by turn, to the last that is."""
        turns = list(itertools.islice(self._turns, (messages - self.messages) // self._per_turn))
        chunk = 1 if by_turns or not self._system.bulk else len(turns)
        while turns:
            if chunk <= 1:
                self.run(turns[0])
                turns = turns[1:]
                continue
            try:
                self.writer.fill(turns[:chunk])
            except ClientError:
                if not self._was_refused():
                    raise
                chunk //= 2
                continue
            self.messages += chunk * self._per_turn
            turns = turns[chunk:]

    def run(self, turn: Turn | None = None) -> None:
        """Take one turn, as an application would; raise `_Broken` when it is refused."""
        try:
            self.writer.run(turn or next(self._turns))
        except ClientError as error:
            if not self._was_refused():
                raise
            raise _Broken from error
        if self._was_refused():
            raise _Broken(_SILENT)
        self.messages += self._per_turn

    def _was_refused(self) -> bool:
        refused, self.meter.refused = self.meter.refused, 0
        return bool(refused)


def costs_of(kind: SystemType, profile: Profile, sizes: Sequence[int] = SIZES) -> Costs:
    """Runs one session of the profile through the system."""
    costs = Costs(kind.name, profile.name, kind.turn_reads)
    with world() as shadow:
        system = kind(shadow)
        system.set_up()
        session = _Filler(system, profile)
        try:
            for size in sizes:
                session.fill(size)
                costs.samples.append(_sample(system, session))
        except _Broken as broken:
            costs.breaks_at = session.messages
            costs.breaks_silently = broken.args == (_SILENT,)
    if kind.bulk:
        costs.bulk_is_same = _agree(*(_turn_at(kind, profile, _CHECKED_AT, by_turns=way) for way in (True, False)))
    return costs


def _sample(system: System, session: _Filler) -> Sample:
    messages, cold = session.messages, system.meter()
    with cold.measure() as restore:
        result = system.open(cold).restore()
    with session.meter.measure() as turn:
        session.run()
    return Sample(messages, turn, restore, result)


def _turn_at(kind: SystemType, profile: Profile, messages: int, *, by_turns: bool) -> Spent:
    with world() as shadow:
        system = kind(shadow)
        system.set_up()
        session = _Filler(system, profile)
        session.fill(messages, by_turns=by_turns)
        return _sample(system, session).turn


def _agree(one: Spent, other: Spent) -> bool:
    """Return whether requests and units are the same. Times and random ids may be of another length by some bytes."""
    same = (one.requests, one.read_units, one.write_units) == (other.requests, other.read_units, other.write_units)
    return same and abs(one.bytes_moved - other.bytes_moved) <= 0.01 * one.bytes_moved


BETWEEN_READ_AND_WRITE = "between the other's read and its first write"
WHILE_THE_MODEL_THINKS = "while the other's model is asked"
SCHEDULES = (BETWEEN_READ_AND_WRITE, WHILE_THE_MODEL_THINKS)


def losses_of(kind: SystemType, schedule: str, rounds: int = ROUNDS) -> Losses:
    """Count losses: each round two new processes take a turn, one's whole turn within the other's, at the schedule's place."""
    acknowledged = set[str]()
    with world() as shadow:
        system = kind(shadow)
        system.set_up()
        turns = CHAT.turns()
        system.open(system.meter()).run(next(turns))
        for _ in range(rounds):
            meter = system.meter()
            slow, step = system.open(meter), _Step(system, next(turns))
            turn = next(turns)
            if schedule == BETWEEN_READ_AND_WRITE:
                meter.before_write = step
            slow.run(turn, step if schedule == WHILE_THE_MODEL_THINKS else nothing)
            assert step.done
            acknowledged |= marks_of(turn) | marks_of(step.turn)
        values = set(marks(system.open(system.meter()).stored()))
    return Losses(kind.name, schedule, len(acknowledged), len(acknowledged - values))


class _Step:
    """The other writer's whole turn. Both turns are acknowledged when they return; an error ends the run."""

    def __init__(self, system: System, turn: Turn) -> None:
        self._system = system
        self.turn = turn
        self.done = False

    def __call__(self) -> None:
        self._system.open(self._system.meter()).run(self.turn)
        self.done = True
