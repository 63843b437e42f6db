"""Turnlog: the append-only log on DynamoDB, payloads in S3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers.prices import REGION
from benchmarks.peers.system import BUCKET, SESSION, TABLE, System, Thinking, Writer, client, nothing
from benchmarks.peers.turns import TOOL, Turn
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.identity import Owner
from turnlog.engines import Engine, RandomIds
from turnlog.engines.aws_clients import Clients
from turnlog.engines.dynamodb import DynamoItemTable
from turnlog.engines.s3 import S3BlobStore
from turnlog.ports import Clock
from turnlog.settings import Settings
from turnlog.testing.aws import create_bucket, create_table
from turnlog.testing.fixed import FixedClock

_OWNER = ("tenant-00001", "user-0000001")
_MINUTES = 5


def open_log(clock: Clock) -> Turnlog:
    """Return what `Turnlog.open` makes of the table and the bucket, with a clock of the caller's."""
    clients = Clients(REGION)
    for service in ("dynamodb", "s3"):  # made at first use otherwise, when the meter no longer looks
        clients.open(service, read_timeout_seconds=5)
    engine = Engine(
        "dynamodb", DynamoItemTable(clients.dynamodb, TABLE), S3BlobStore(clients.s3, BUCKET), None, nothing
    )
    app = Application(engine, Settings(), clock=clock, ids=RandomIds())
    return Turnlog(InProcessBackend(app, Owner.of(*_OWNER)))


def make_stores() -> None:
    """Make the template's table and bucket."""
    create_table(client("dynamodb"), TABLE)
    create_bucket(client("s3"), BUCKET)


class TurnlogWriter(Writer):
    """A session with a clock of its own: two processes do not wait for each other's turns."""

    def __init__(self) -> None:
        self._clock = FixedClock()
        self._log = open_log(self._clock)
        self._session = Session(self._log.backend, SESSION)  # by its id, without a request

    def create(self) -> None:
        self._log.sessions.create(SESSION)

    def run(self, turn: Turn, thinking: Thinking = nothing) -> None:
        session = self._session
        self._clock.advance(60 * _MINUTES)
        session.append({"role": "user", "content": turn.user})
        session.context()
        thinking()
        for messages in _after_user(turn):
            session.append(*messages)
            if messages[0]["role"] == "tool":
                session.context()

    def fill(self, turns: Sequence[Turn]) -> None:
        session = self._session
        for turn in turns:
            self._clock.advance(60 * _MINUTES)
            session.append({"role": "user", "content": turn.user})
            for messages in _after_user(turn):
                session.append(*messages)

    def restore(self) -> int:
        return len(self._session.context().messages)

    def stored(self) -> str:
        return "\n".join(str(message.body) for message in self._session.messages())


class TurnlogSystem(System):
    name = "Turnlog"
    packages = ("turnlog",)
    turn = (
        "append(user), context(), append(reply); with tools append(user), context(), append(calls), append(results), context(), "
        f"append(reply). The clock moves {_MINUTES} minutes a turn, so that each turn pays the touch of the session list, "
        "which comes at most once in 5 minutes. Restore: context() of a new process."
    )
    guarded = True
    bulk = True

    def set_up(self) -> None:
        make_stores()
        TurnlogWriter().create()

    def _open(self) -> TurnlogWriter:
        return TurnlogWriter()


def _after_user(turn: Turn) -> list[list[Mapping[str, Any]]]:
    """Return the appends of a turn after the user's: each is one commit."""
    reply = {"role": "assistant", "content": turn.reply}
    if not turn.calls:
        return [[reply]]
    calls = [
        {"id": call.id, "type": "function", "function": {"name": TOOL, "arguments": call.arguments}}
        for call in turn.calls
    ]
    results = [{"role": "tool", "tool_call_id": call.id, "content": call.result} for call in turn.calls]
    return [[{"role": "assistant", "content": None, "tool_calls": calls}], results, [reply]]
