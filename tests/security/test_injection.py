"""Whatever a text says, wherever it came from, a window has the same messages of the same roles, and its fences hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from tests.effort import examples, is_full
from tests.security.texts import FENCE, FENCES, LOOKALIKES, ROLES, evil
from tests.support.scripted import ScriptedMemory, ScriptedSummariser, summarise_with
from turnlog import Turnlog
from turnlog.client.model import Session
from turnlog.core.memory import Memory
from turnlog.engines.token_counters import TiktokenCounter
from turnlog.linter.rules import lint
from turnlog.memory.bootstrap import memories_text
from turnlog.providers.blocks import escaped, fenced

FORMATS = ("openai_chat", "openai_responses", "anthropic", "bedrock_converse", "turnlog")
POLICIES: tuple[Any, ...] = (
    "full",
    "default",
    {"steps": [{"step": "summary"}, {"step": "loops", "whole": 1}]},
    {"steps": [{"step": "stub_tool_results", "over_tokens": 1}]},
    {"steps": [{"step": "turns", "n": 1}]},
)
NOON = 1_763_683_200_000
PLAIN = "x plain words and no more x"
tries = settings(
    max_examples=examples(400), derandomize=not is_full(), deadline=None, suppress_health_check=list(HealthCheck)
)
whole_sessions = settings(tries, max_examples=examples(48))
LAST_WORDS = "What now?"


# ------------------------------------------------------------ fences


@tries
@given(evil)
@example("".join(FENCES))
@example("".join(LOOKALIKES))
@example("<" * 5 + "/turnlog-data" * 3)
def test_no_text_closes_or_opens_a_fence(text: str) -> None:
    result = fenced("system message", text)
    assert len(FENCE.findall(result)) == 2
    assert result.startswith("<turnlog-data kind='system message'>\n") and result.endswith("\n</turnlog-data>")
    inside = result.removeprefix("<turnlog-data kind='system message'>\n").removesuffix("\n</turnlog-data>")
    assert inside == escaped(inside) == escaped(text), "escaped twice is the same"
    assert inside.replace("<\\", "<") == text.replace("<\\", "<"), "and nothing else is changed"


@pytest.mark.parametrize("text", [*LOOKALIKES, *ROLES])
def test_letters_that_look_alike_and_marks_of_roles_are_text(text: str) -> None:
    assert escaped(text) == text


@tries
@given(evil)
def test_a_memory_stays_in_its_line_of_its_fence(text: str) -> None:
    result = memories_text([Memory("m1", text, NOON), Memory("m2", PLAIN, NOON)])
    assert len(FENCE.findall(result)) == 2
    inside = result.splitlines()[1:-1]
    lines = inside[-2:]
    assert len(inside) == 2 or (len(inside) == 3 and inside[0].endswith(("：", ":"))), "but for a label"
    assert lines[0].startswith("- 2025-11-21: ") and lines[1] == f"- 2025-11-21: {PLAIN}"


# ------------------------------------------------------------ counting


@pytest.mark.parametrize("mark", ["<|endoftext|>", "<|endofprompt|>", "<|im_start|>", "<|fim_prefix|>"])
def test_special_tokens_are_counted_as_the_text_that_they_are(mark: str) -> None:
    counter = TiktokenCounter()
    assert counter.count(mark) > 1, "as a special token it would be one"
    # For a text of more than one chunk too.
    assert counter.count(f"{mark} " * 20_000) > 60_000


# ------------------------------------------------------------ windows


@dataclass(frozen=True)
class Shape:
    """What must not depend on a text."""

    roles: tuple[str, ...]
    kinds: tuple[tuple[str, ...], ...]
    fences: int
    system: int


@pytest.fixture(scope="module")
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as opened:
        yield opened


def told(log: Turnlog, text: str) -> Session:
    """A session that has the text in every place: summarised, begun with memories, with past loops and an open one."""
    app = log.backend.app  # type: ignore[attr-defined]
    app.__dict__["memory"] = ScriptedMemory((Memory("m1", text, NOON), Memory("m2", PLAIN, NOON)))
    summarise_with(app, ScriptedSummariser(then=lambda _: text))
    title = text[:200].encode("utf-8", "replace").decode()  # titles and authors have no halves of characters
    session = log.sessions.create(
        system="Be brief.", title=title, metadata={"m": text}, state={"s": text}, bootstrap=True
    )
    session.put_state({"s": text, "agents": {"main": {"agent_id": "main", "error": text}}})
    for loop in range(4):
        session.append(
            {"role": "user", "content": PLAIN * 20}
        )  # so that a summary of the shortest text saves something
        session.append({"role": "user", "content": f"{loop} {text}"}, meta=[{"author": title[:100]}])
        call = {"id": f"c{loop}", "type": "function", "function": {"name": text, "arguments": text}}
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        result = {"role": "tool", "tool_call_id": f"c{loop}", "content": text * 20}
        session.append(result, meta=[{"is_error": loop == 1}])
        session.append({"role": "assistant", "content": text})
        if loop == 1:
            session.append({"role": "system", "content": text})
            session.compress(keep_loops=0, max_tokens=4_000)
    session.append({"role": "user", "content": LAST_WORDS})
    return session


def shape_of(session: Session, policy: Any, format: str) -> tuple[Shape, Any]:
    window = session.context(policy=policy, format=format, budget=1_000_000)
    roles = tuple(str(message.get("role", message.get("type"))) for message in window.messages)
    kinds = tuple(tuple(kinds_of(message)) for message in window.messages)
    whole = [string for string in strings(window.messages) if string.startswith("<turnlog-data kind=")]
    for item in whole:
        assert len(FENCE.findall(item)) == 2 and item.endswith("\n</turnlog-data>")
    return Shape(roles, kinds, len(whole), len(window.system or "")), window


def kinds_of(message: dict[str, Any]) -> Iterator[str]:
    """What a message consists of, without what it says."""
    yield from sorted(message)
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        yield str(block.get("type", sorted(block)))
    yield str(len(message.get("tool_calls") or []))


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


@pytest.fixture(scope="module")
def plain(log: Turnlog) -> dict[tuple[int, str], Shape]:
    session = told(log, PLAIN)
    return {
        (at, format): shape_of(session, policy, format)[0] for at, policy in enumerate(POLICIES) for format in FORMATS
    }


def test_the_plain_session_has_all_that_can_be_told(plain: dict[tuple[int, str], Shape]) -> None:
    """Else the test below shows less than it says: memories, a summary and notes are in fences."""
    assert {shape.fences for shape in plain.values()} >= {1, 2, 3}


@whole_sessions
@given(evil)
@example("".join(FENCES) + "x")
@example("".join(ROLES) + "x")
@example("<|endoftext|>")
def test_a_window_has_the_same_roles_whatever_is_said(
    log: Turnlog, plain: dict[tuple[int, str], Shape], text: str
) -> None:
    session = told(log, text)
    for at, policy in enumerate(POLICIES):
        for format in FORMATS:
            shape, window = shape_of(session, policy, format)
            assert shape == plain[at, format], (policy, format)
            assert format == "turnlog" or lint(window.messages, format=format) == []
            assert window.tokens <= 1_000_000
