"""Real conversations: after a rewind, and in a fork, the window is that of the moment, and both go on alike."""

from __future__ import annotations

import random
import warnings
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import DATA, Harness
from tests.effort import examples
from turnlog.client.model import Session
from turnlog.linter.rules import lint

BUDGET = 20_000
GO_ON = {"role": "user", "content": "Please go on."}


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_some_of_them_go_back_and_in_forks(harness: Harness, real_data: ModuleType) -> None:
    rng, log = random.Random(25), harness.log()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the loader leaves its files to the garbage collector
        sessions = list(real_data.iter_sessions(str(DATA / "dev")))
    for at, item in enumerate(rng.sample(sessions, examples(30))):
        session = log.sessions.create(f"c{at}", policy=("default", "run_loops", "full")[at % 3])
        said(session, item["messages"][:60], rng)
        if at % 2:
            session.compress(keep_loops=1)
        for time in range(2):
            position = rng.randrange(1, session.info().head + 1)
            wanted = window(session, at=position)
            session.rewind(position)
            fork = session.fork(f"f{at}-{time}", at=position)
            assert window(session) == window(fork) == wanted, (at, position)
            assert [message.position for message in session.messages(in_view=True)] == [
                message.position for message in fork.messages(in_view=True)
            ]
            fork.append(GO_ON)
            session.append(GO_ON)
            gone_on = window(session)
            assert window(fork) == gone_on
            assert not lint(gone_on, format="openai_chat")


def said(session: Session, messages: list[dict[str, Any]], rng: random.Random) -> None:
    """One to three messages a commit."""
    rest = list(messages)
    while rest:
        count = rng.choice([1, 1, 2, 3])
        session.append(*rest[:count])
        rest = rest[count:]


def window(session: Session, **options: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = session.context(budget=BUDGET, answer_open_calls=True, **options).messages
    return result
