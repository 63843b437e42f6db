"""Random sessions that recall: a process that remembers what it read and one that does not give the same windows and searches.

Nothing that was redacted is in them, or is found by its words, whatever was sealed, rewound or forked meanwhile.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.support.recalls import calls, result, user
from turnlog import Session, Turnlog
from turnlog.core import positions as borders
from turnlog.core.errors import TurnlogError
from turnlog.core.identity import Owner

OWNER = Owner.of("local", "me")
WORDS = [f"{start}{number}" for start in ("bar", "den", "fil", "gon", "kel") for number in range(40)]
STEPS = "say say say say say many call long late late huge named dated rewind fork redact seal seal ask ask ask jobs"


class Sessions:
    """A few sessions of a file, the steps that may happen to them, and what was redacted."""

    def __init__(self, log: Turnlog, url: str, chance: random.Random) -> None:
        self.log, self.url, self.chance = log, url, chance
        self.sessions = [log.sessions.create("s0", policy="recall", recall=chance.choice(["never", "auto"]))]
        self.redacted = list[str]()
        self.number = 0

    def step(self) -> None:
        session, name = self.chance.choice(self.sessions), self.chance.choice(STEPS.split())
        self.number += 1
        act: Callable[[Session], object] = getattr(self, name)
        with suppress(TurnlogError):  # a call that is answered already, a position that is out of view
            act(session)

    def text(self, words: int) -> str:
        return " ".join(self.chance.choice(WORDS) for _ in range(words))

    def say(self, session: Session) -> None:
        session.append(user(f"{self.number}: {self.text(12)}"), {"role": "assistant", "content": self.text(15)})

    def many(self, session: Session) -> None:
        for _ in range(5):
            self.say(session)

    def call(self, session: Session, words: int = 10) -> None:
        key = f"c{self.chance.choice([self.number, 1, 2])}"
        session.append(user(f"go {self.text(4)}"), calls(key, name="look", arguments=json.dumps({"q": self.text(3)})))
        session.append(result(key, self.text(words)), {"role": "assistant", "content": self.text(6)})

    def long(self, session: Session) -> None:
        self.call(session, 400)

    def late(self, session: Session) -> None:
        """Call a tool, and answer the newest call that a window shows, which may be another one."""
        key = f"c{self.chance.choice([self.number, 1, 2])}"
        session.append(user(f"go {self.text(4)}"), calls(key, name="look"))
        messages = session.context(budget=100_000).messages
        shown = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
        answer = result((shown or [key])[-1], self.text(self.chance.choice([10, 400])))
        session.append(answer, {"role": "assistant", "content": "ok"})

    def huge(self, session: Session) -> None:
        session.append(user(self.text(6_000)), {"role": "assistant", "content": self.text(5)})

    def named(self, session: Session) -> None:
        session.append({**user(self.text(9)), "name": "Ann"}, {"role": "assistant", "content": self.text(5)})

    def dated(self, session: Session) -> None:
        session.append(user(f"yesterday {self.text(9)}"), meta=[{"created_at": "2025-03-11T10:00:00+05:00"}])

    def rewind(self, session: Session) -> None:
        session.rewind(to=self.chance.randint(1, session.info().head))

    def fork(self, session: Session) -> None:
        if len(self.sessions) < 4:
            self.sessions.append(session.fork(f"f{self.number}", at=self.chance.randint(1, session.info().head)))

    def redact(self, session: Session) -> None:
        secret = f"zz{self.number}secret"
        session.append(user(f"{secret} {self.text(5)}"), {"role": "assistant", "content": "ok"})
        if self.chance.random() < 0.5:
            self.seal(session)
        session.search(secret)
        session.redact(session.info().head - 1)
        self.redacted.append(secret)

    def seal(self, session: Session) -> None:
        app = self.log.backend.app  # type: ignore[attr-defined]
        while app.seal_session.run(OWNER, session.id, {})["segments"]:
            pass

    def jobs(self, _session: Session) -> None:
        self.log.run_jobs()

    def ask(self, session: Session) -> None:
        session.append(user(f"What about {self.text(3)}?"))
        budget, words = self.chance.choice([700, 1_000, 1_500, 2_500]), self.text(2)
        window, hits = session.context(budget=budget), session.search(words, limit=30)
        with Turnlog.open(self.url, worker=False) as other:
            fresh = other.sessions.of(session.id)
            cold = fresh.context(budget=budget)
            assert (window.messages, window.manifest.recalled) == (cold.messages, cold.manifest.recalled)
            assert hits == fresh.search(words, limit=30)
            shown = json.dumps(window.messages) + hits.model_dump_json()
            for secret in self.redacted:
                assert secret not in shown
                assert session.search(secret).results == fresh.search(secret).results == []
        session.append({"role": "assistant", "content": self.text(4)})


@settings(max_examples=examples(400), deadline=None, database=None)
@given(st.integers(0, 2**32))
@example(0)
def test_a_process_that_remembers_gives_what_one_does_that_does_not(seed: int) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(borders, "SEGMENT_POSITIONS", 16)
        url = f"sqlite:///{Path(folder) / 't.db'}"
        with Turnlog.open(url, worker=False) as log:
            sessions = Sessions(log, url, chance)
            for _ in range(chance.randint(20, 60)):
                sessions.step()
