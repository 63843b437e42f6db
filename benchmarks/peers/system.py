"""What a system must offer to be measured, and the emulated world that it lives in."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest import mock

import botocore.session

from benchmarks.peers.dynamodb import Shadow
from benchmarks.peers.meter import Meter
from benchmarks.peers.prices import REGION
from benchmarks.peers.turns import Turn

SESSION = "session-0001"
TABLE, BUCKET = "sessions", "session-blobs"
Thinking = Callable[[], None]
"""Called once in a turn, while the model would be asked."""


def nothing() -> None:
    """Do nothing, for a model that nobody interrupts."""


class Writer(ABC):
    """One process with the session open."""

    @abstractmethod
    def run(self, turn: Turn, thinking: Thinking = nothing) -> None:
        """Take one turn, in the way that the system's documentation shows."""

    def fill(self, turns: Sequence[Turn]) -> None:
        """Brings the session to the state that these turns leave, by the quickest way that reaches the same state."""
        for turn in turns:
            self.run(turn)

    @abstractmethod
    def restore(self) -> int:
        """Reads what the next model call is given; the number of its messages."""

    @abstractmethod
    def stored(self) -> str:
        """Return all messages that a reader of the session gets, as text."""


class System(ABC):
    """One way to keep sessions. Class fields are for the report."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    turn: ClassVar[str]
    guarded: ClassVar[bool] = False
    turn_reads: ClassVar[bool] = True
    """A turn reads what it needs of the history; else a new process pays the restore beside its turn."""
    bulk: ClassVar[bool] = False
    """`Writer.fill` is not turn by turn: the run proves that it ends in the same costs."""

    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow

    @abstractmethod
    def set_up(self) -> None:
        """Make the tables and buckets that the documentation asks for, and an empty session if one must be made."""

    @abstractmethod
    def _open(self) -> Writer: ...

    def meter(self) -> Meter:
        return Meter(self._shadow, guarded=self.guarded)

    def open(self, meter: Meter) -> Writer:
        """Open a new process: new clients, which are the meter's, and nothing in memory."""
        with meter.clients():
            return self._open()


@contextmanager
def world() -> Iterator[Shadow]:
    """Yield an empty account of moto, with the real limit of an item in place of moto's."""
    from moto import mock_aws

    from turnlog.testing.aws import real_item_limit

    credentials = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": REGION}
    with mock.patch.dict(os.environ, credentials), mock_aws(), real_item_limit():
        os.environ.pop("AWS_PROFILE", None)
        yield Shadow(client("dynamodb"))


def client(service: str) -> Any:
    """Return a client that nobody meters."""
    return botocore.session.get_session().create_client(service, region_name=REGION)
