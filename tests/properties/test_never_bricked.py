"""No append makes a session unsendable: whatever an append takes, the window of its own format has no lint problem."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import pytest

from tests.effort import is_full
from tests.properties.building import AMPLE, TOOLS, Asked, stored, window
from tests.properties.histories import Given
from tests.support.provider_blocks import FORMATS, Body, history
from turnlog.core.errors import BudgetTooSmallError, InvalidInputError
from turnlog.linter.rules import lint
from turnlog.providers.registry import CODECS

WINDOWS = 5_000 if is_full() else 75
"""Windows of each format."""


def taken(bodies: Iterable[Body], format: Any) -> list[Given]:
    """Return the messages that an append takes."""
    messages = list[Given]()
    for body in bodies:
        try:
            CODECS[format].parse(body)
        except InvalidInputError:
            continue
        messages.append(Given(body, format))
    return messages


def problems(messages: list[Given], format: Any, seed: int) -> list[str]:
    asked = Asked(
        format=format,
        budget=(AMPLE, AMPLE, 900)[seed % 3],
        answer_open_calls=seed % 5 == 0,
        tools=TOOLS,
        others_calls="text" if seed % 2 else "calls",
    )
    try:
        sent = window(stored(messages), asked).messages
    except BudgetTooSmallError:
        return []
    return [f"{problem.rule} {problem.pointer}: {problem.message}" for problem in lint(sent, format=format)]


@pytest.mark.parametrize("format", FORMATS)
def test_W1_no_append_makes_a_session_unsendable_in_its_own_format(format: str) -> None:
    first = 0 if is_full() else int.from_bytes(os.urandom(3))
    for seed in range(first, first + WINDOWS):
        messages = taken(history(seed, format), format)
        if problems(messages, format, seed):
            pytest.fail(f"seed {seed}: {told(messages, format, seed)}")


def told(messages: list[Given], format: str, seed: int) -> str:
    """Return the fewest messages that still have a problem, and the problem."""
    for index in reversed(range(len(messages))):
        fewer = messages[:index] + messages[index + 1 :]
        if problems(fewer, format, seed):
            return told(fewer, format, seed)
    bodies = [given.body for given in messages]
    return "\n".join([*problems(messages, format, seed), json.dumps(bodies)])
