"""A provider's own summary of a conversation is the base of its windows, in its format and while all behind it fits."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.effort import is_full
from tests.properties.building import AMPLE, Asked, recounted, request, stored, window
from tests.properties.histories import Given
from tests.support.epoch_laws import Pages, assert_memory_changes_nothing, assert_W11
from tests.support.prefix_laws import assert_prefix
from turnlog import Turnlog
from turnlog.core.calls import outline_of
from turnlog.core.errors import BudgetTooSmallError
from turnlog.linter.rules import lint
from turnlog.log import lines
from turnlog.log.payloads import make_card, read_card
from turnlog.providers.registry import CODECS
from turnlog.windows.build import Window, build

OWN: tuple[Any, ...] = ("anthropic", "openai_responses")
SUMMARY = "What was said before: nothing that matters."


def user(text: str, format: Any, *, pin: bool = False) -> Given:
    return Given({"role": "user", "content": text}, format, pin=pin)


def said(text: str, format: Any) -> list[Given]:
    return [Given({"role": "assistant", "content": text}, format)]


def compacted(text: str, format: Any) -> list[Given]:
    """Return an answer with a summary of all before it."""
    if format == "anthropic":
        blocks = [{"type": "compaction", "content": SUMMARY}, {"type": "text", "text": text}]
        return [Given({"role": "assistant", "content": blocks}, format)]
    item = {"type": "compaction", "id": f"cmp_{len(text)}_{text[:8]}", "encrypted_content": SUMMARY}
    return [Given(item, format), *said(text, format)]


def step(number: int, result: str, format: Any, *, is_compacted: bool) -> list[Given]:
    """Return a call with its result; the answer may have a summary before its call."""
    call_id = f"call_{number}"
    if format == "anthropic":
        call: Any = {"type": "tool_use", "id": call_id, "name": "look", "input": {"n": number}}
        blocks = [{"type": "compaction", "content": SUMMARY}] if is_compacted else []
        answer = {"type": "tool_result", "tool_use_id": call_id, "content": result}
        bodies = [{"role": "assistant", "content": [*blocks, call]}, {"role": "user", "content": [answer]}]
        return [Given(body, format) for body in bodies]
    item = {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": SUMMARY}
    call = {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": call_id, "output": result}
    return [Given(body, format) for body in (*([item] if is_compacted else []), call, answer)]


def history(seed: int, format: Any) -> list[Given]:
    random = Random(seed)
    messages = list[Given]()
    for number in range(random.randint(1, 14)):
        messages.append(user(f"question {number} " * random.choice((1, 8, 40)), format, pin=random.random() < 0.06))
        for index in range(random.choice((0, 0, 1, 4))):
            result = f"result {number} {index} " * random.choice((1, 20, 120))
            messages += step(100 * number + index, result, format, is_compacted=random.random() < 0.12)
        answer = f"answer {number} " * random.choice((1, 10))
        messages += (compacted if random.random() < 0.2 else said)(answer, format)
    return messages


def asked(seed: int, format: Any) -> Asked:
    random = Random(seed + 1)
    return Asked(
        policy=random.choice(("default", "default", "full", "run_loops", "turns", "classic")),
        budget=random.choice((AMPLE, 3_000, 1_500, 700)),
        format=format,
        answer_open_calls=random.random() < 0.2,
        system=random.choice((None, "Be brief.")),
    )


@pytest.mark.parametrize("format", OWN)
def test_laws_hold_with_summaries_of_the_provider(format: Any) -> None:
    for seed in range(160) if is_full() else (0, 40, 68, 80, 120):
        held, wanted = stored(history(seed, format)), asked(seed, format)
        try:
            made = window(held, wanted)
            assert lint(made.messages, format=format) == []
            assert recounted(made, wanted) <= made.tokens <= wanted.budget
            assert_W11(held, wanted)
            for size in (1, 3, 7):
                assert build(Pages(held, size), request(wanted, held.sources)) == made
            assert_memory_changes_nothing(held, wanted, asked(seed + 1, format))
        except BudgetTooSmallError:
            continue
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {wanted}") from error


@pytest.mark.parametrize("format", OWN)
def test_the_stable_prefix_is_known_where_a_summary_of_the_provider_ends(format: Any) -> None:
    for seed in range(160) if is_full() else (53,) if format == "anthropic" else (2,):
        messages = history(seed, format)
        for count in range(2, len(messages) + 1):
            assert_prefix(stored(messages[:count]), asked(seed, format))


def after(format: Any, *, behind: int = 2, **options: Any) -> Window:
    """Return the window of 20 questions, a summary of the provider's behind the tenth, and ``behind`` calls after that."""
    messages = [user("the task", format, pin=options.pop("pin", False))]
    for number in range(10):
        messages += [*said(f"answer {number}", format), user(f"question {number}", format)]
    messages += [*compacted("compacted", format), user("and now?", format)]
    for number in range(behind):
        messages += step(number, "result " * 50, format, is_compacted=False)
    return window(stored(messages), Asked(**{"format": format, **options}))


@pytest.mark.parametrize("format", OWN)
def test_a_window_begins_with_the_summary_and_the_manifest_says_so(format: Any) -> None:
    made = after(format)
    sent = json.dumps(made.messages)
    assert SUMMARY in sent and "and now?" in sent and "question 8" not in sent
    # OpenAI returns users' messages with the summary.
    assert ("question 9" in sent) == (format == "openai_responses")
    (part,) = (part for part in made.manifest.parts if part.reason == "compaction")
    covered = 20 if format == "openai_responses" else 21
    assert (part.kind, part.level, part.first, part.last) == ("older", "out", 1, covered)
    assert not made.is_partial and lint(made.messages, format=format) == []
    assert "the task" in json.dumps(after(format, pin=True).messages)


@pytest.mark.parametrize("format", OWN)
def test_another_format_has_the_whole_log(format: Any) -> None:
    for other in ("openai_chat", "bedrock_converse", *(own for own in OWN if own != format)):
        messages = [user("the task", format), *compacted("compacted", format), user("and now?", format)]
        sent = json.dumps(window(stored(messages), Asked(format=other)).messages)
        assert "the task" in sent and (SUMMARY in sent) == (format == "anthropic")


@pytest.mark.parametrize("format", OWN)
def test_what_is_behind_a_summary_and_too_large_ends_it(format: Any) -> None:
    small, large = after(format, budget=1_500), after(format, budget=1_500, behind=30)
    assert SUMMARY in json.dumps(small.messages)
    assert "compaction" not in [part.reason for part in large.manifest.parts]
    assert "question 9" in json.dumps(large.messages), "the log is told in short"


def test_a_summary_that_failed_covers_nothing() -> None:
    failed = {"role": "assistant", "content": [{"type": "compaction", "content": None}, {"type": "text", "text": "so"}]}
    messages = [user("the task", "anthropic"), Given(failed, "anthropic"), user("and now?", "anthropic")]
    assert "the task" in json.dumps(window(stored(messages), Asked(format="anthropic")).messages)


SIGNED: Any = {
    "type": "compaction",
    "content": SUMMARY,
    "signature": "c2ln",
    "tool_changes": [{"type": "tool_removal"}],
}


@pytest.mark.parametrize("role", ["assistant", "user"])
def test_a_signed_summary_is_sent_as_it_came_and_first(role: str) -> None:
    behind = Given({"role": role, "content": [SIGNED, {"type": "text", "text": "so"}]}, "anthropic")
    made = window(stored([user("the task", "anthropic"), behind]), Asked(format="anthropic"))
    assert made.messages[0] == behind.body and "the task" not in json.dumps(made.messages)


@pytest.mark.parametrize("first", ["a pinned message", "a text of the same message"])
def test_a_signed_summary_that_cannot_be_first_is_left_out_and_the_manifest_says_so(first: str) -> None:
    task = user("the task", "anthropic", pin=first == "a pinned message")
    text = [{"type": "text", "text": "first"}] if first == "a text of the same message" else []
    behind = Given({"role": "assistant", "content": [*text, SIGNED, {"type": "text", "text": "so"}]}, "anthropic")
    made = window(stored([task, behind, user("and?", "anthropic")]), Asked(format="anthropic"))
    sent = json.dumps(made.messages)
    assert "the task" in sent and "so" in sent and "compaction" not in sent
    assert lint(made.messages, format="anthropic") == []
    assert [(part.first, part.reason) for part in made.manifest.parts if part.kind == "block"] == [(2, "compaction")]


def test_thinking_before_a_summary_that_is_left_out_goes_with_it() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    behind = Given({"role": "assistant", "content": [thinking, SIGNED]}, "anthropic")
    made = window(stored([user("the task", "anthropic"), behind]), Asked(format="anthropic"))
    assert lint(made.messages, format="anthropic") == []
    assert {part.reason for part in made.manifest.parts if part.kind == "block"} == {"thinking", "compaction"}


def test_a_blank_summary_is_left_out() -> None:
    blank = Given(
        {"role": "assistant", "content": [{**SIGNED, "content": ""}, {"type": "text", "text": "so"}]}, "anthropic"
    )
    made = window(stored([user("the task", "anthropic"), blank, user("?", "anthropic")]), Asked(format="anthropic"))
    assert made.messages[1]["content"] == [{"type": "text", "text": "so"}]
    assert "compaction" in [part.reason for part in made.manifest.parts if part.kind == "block"]


def test_a_request_to_compact_is_kept_and_never_sent_again() -> None:
    trigger = Given({"type": "compaction_trigger"}, "openai_responses")
    messages = [user("the task", "openai_responses"), trigger, user("?", "openai_responses")]
    made = window(stored(messages), Asked(format="openai_responses"))
    assert [item.get("content") for item in made.messages] == ["the task", "?"]
    assert [part.reason for part in made.manifest.parts if part.kind == "block"] == ["compaction_trigger"]


@pytest.mark.parametrize("format", OWN)
def test_a_summary_is_known_by_a_card_that_was_stored_before_cards_said_so(
    format: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    large = compacted("x", format)[0].body
    secret = "".join(Random(1).choices("abcdefghijklmnop", k=9_000))
    large = json.loads(json.dumps(large).replace(SUMMARY, secret))
    monkeypatch.setattr(
        lines, "make_card", lambda facts: {k: v for k, v in (make_card(facts) or {}).items() if k != "k"}
    )
    with Turnlog.open(f"sqlite:///{tmp_path / 'log.db'}") as log:
        session = log.sessions.create("a")
        session.append({"role": "user", "content": "the task"}, large, {"role": "user", "content": "?"}, format=format)
    with Turnlog.open(f"sqlite:///{tmp_path / 'log.db'}") as log:
        made = log.sessions.get("a").context(format=format)
    assert secret in json.dumps(made.messages)
    assert "compaction" in [part.reason for part in made.manifest.parts]


@pytest.mark.parametrize("format", OWN)
def test_a_card_says_that_its_message_is_a_summary(format: Any) -> None:
    facts = outline_of(CODECS[format].parse(compacted("x", format)[0].body))
    card = make_card(facts)
    assert card is not None and read_card(card).compacts and facts.compacts
