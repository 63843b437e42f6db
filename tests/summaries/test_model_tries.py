"""A model's summary: how long is waited between tries, when no other begins, what is asked for, and what is paid."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from turnlog.core.errors import SummaryRefusedError, ThrottledError, UnavailableError
from turnlog.core.summaries import LoopText, SummaryRequest
from turnlog.engines.token_estimate import EstimateCounter
from turnlog.ports import ModelAnswer, Prompt
from turnlog.summaries.summarisers import ModelSummariser, prompt_for
from turnlog.testing.fixed import FixedClock, SequentialIds

TEXT = "The person asked where order ORD-00017 is. The agent found that it left the warehouse on Tuesday."
LOOPS = (LoopText(3, "Where is order ORD-00017? It should have come days ago. " * 9, "It left on Tuesday. " * 9),)
COUNTER = EstimateCounter()


class Model:
    """A chat model that answers or fails by its script, the last entry again and again."""

    name = "scripted"

    def __init__(self, clock: FixedClock, script: Sequence[ModelAnswer | UnavailableError], seconds: float = 0) -> None:
        self.clock, self.script, self.seconds = clock, script, seconds
        self.asked = list[tuple[Prompt, int]]()

    def answer(self, prompt: Prompt, *, max_tokens: int) -> ModelAnswer:
        answer = self.script[min(len(self.asked), len(self.script) - 1)]
        self.asked.append((prompt, max_tokens))
        self.clock.advance(self.seconds)
        if isinstance(answer, UnavailableError):
            raise answer
        return answer


class Clock(FixedClock):
    """A clock that keeps the pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = list[float]()

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        super().sleep(seconds)


def attempt(
    *script: ModelAnswer | UnavailableError, seconds: float = 0, timeout_seconds: float = 100
) -> tuple[Model, Clock]:
    clock = Clock()
    model = Model(clock, script, seconds)
    summariser = ModelSummariser(model, COUNTER, clock, SequentialIds(), timeout_seconds=timeout_seconds)
    with suppress(UnavailableError):
        summariser.summarise(SummaryRequest("", LOOPS, 200))
    return model, clock


def test_the_pause_doubles_with_each_try_and_there_are_three() -> None:
    model, clock = attempt(UnavailableError("down"))
    assert (len(model.asked), clock.pauses) == (3, [0.5, 1.0])


@pytest.mark.parametrize(("retry_after", "pause"), [(0, 0.5), (1, 1), (20, 20)])
def test_a_provider_that_says_when_is_asked_then_and_never_sooner(retry_after: int, pause: float) -> None:
    _, clock = attempt(ThrottledError("slow", retry_after_seconds=retry_after), ModelAnswer(TEXT))
    assert clock.pauses == [pause]


@pytest.mark.parametrize(("seconds", "tries"), [(24.5, 2), (24.501, 1)])
def test_no_try_begins_behind_a_quarter_of_the_time_out(seconds: float, tries: int) -> None:
    model, _ = attempt(UnavailableError("down"), ModelAnswer(TEXT), seconds=seconds)
    assert len(model.asked) == tries


@pytest.mark.parametrize(
    ("max_tokens", "asked"), [(10, 1_044), (200, 1_424), (1_536, 4_096), (1_537, 4_096), (4_096, 4_096), (5_000, 5_000)]
)
def test_the_output_limit_has_room_for_reasoning_up_to_what_models_accept(max_tokens: int, asked: int) -> None:
    clock = FixedClock()
    model = Model(clock, [ModelAnswer(TEXT)])
    summariser = ModelSummariser(model, COUNTER, clock, SequentialIds(), timeout_seconds=9)
    try:
        summariser.summarise(SummaryRequest("", LOOPS, max_tokens))
    except SummaryRefusedError as error:
        assert error.details["reason"] == "too_long"
    assert model.asked[0][1] == asked


def refused(request: SummaryRequest, answer: ModelAnswer) -> dict[str, Any]:
    clock = FixedClock()
    with pytest.raises(SummaryRefusedError) as raised:
        ModelSummariser(Model(clock, [answer]), COUNTER, clock, SequentialIds(), timeout_seconds=9).summarise(request)
    return dict(raised.value.details)


def test_without_counts_of_the_provider_the_prompt_and_the_answer_are_counted() -> None:
    request = SummaryRequest("", LOOPS, 200)
    prompt = prompt_for(request, COUNTER)
    assert prompt is not None
    clock = FixedClock()
    summariser = ModelSummariser(Model(clock, [ModelAnswer(TEXT)]), COUNTER, clock, SequentialIds(), timeout_seconds=9)
    summary = summariser.summarise(request)
    assert summary.input_tokens == COUNTER.count(prompt.system) + COUNTER.count(prompt.record)
    assert summary.output_tokens == COUNTER.count(TEXT)
    free = refused(request, ModelAnswer("", input_tokens=0, output_tokens=0))
    assert free == {"reason": "empty", "input_tokens": 0, "output_tokens": 0}, "a count of 0 is a count"


@pytest.mark.parametrize("chars", [64 * 20, 64 * 20 + 1])
def test_an_answer_of_more_than_64_characters_a_token_is_too_long_uncounted(chars: int) -> None:
    """The tokens in the error tell which: one more than the limit stands for an answer that was not counted."""
    text = "=" * chars
    assert COUNTER.count(text) > 21
    details = refused(SummaryRequest("", LOOPS, 20), ModelAnswer(text))
    assert details["reason"] == "too_long"
    assert details["output_tokens"] == (COUNTER.count(text) if chars == 64 * 20 else 21)


def test_an_answer_is_taken_without_white_space_around_it() -> None:
    clock = FixedClock()
    summariser = ModelSummariser(
        Model(clock, [ModelAnswer(f"\n {TEXT}\n")]), COUNTER, clock, SequentialIds(), timeout_seconds=9
    )
    assert summariser.summarise(SummaryRequest("", LOOPS, 200)).text == TEXT


@pytest.mark.parametrize("ending", ["cut_off", "filtered"])
def test_how_an_answer_ended_is_told_before_what_is_wrong_with_its_text(ending: Any) -> None:
    assert refused(SummaryRequest("", LOOPS, 200), ModelAnswer("", ending))["reason"] == ending


# ------------------------------------------------------------ the prompt


@pytest.mark.parametrize(("max_tokens", "words"), [(10, "10 words"), (200, "100 words"), (1_000, "520 words")])
def test_the_prompt_names_seven_tenths_of_the_room_in_words(max_tokens: int, words: str) -> None:
    prompt = prompt_for(SummaryRequest("", LOOPS, max_tokens), COUNTER)
    assert prompt is not None
    assert words in prompt.system


@pytest.mark.parametrize(("max_tokens", "characters"), [(10, "20 characters"), (200, "180 characters")])
def test_the_prompt_counts_characters_in_chinese(max_tokens: int, characters: str) -> None:
    loops = (LoopText(1, "去东京的机票多少钱？" * 5, "往返四千元，已经订好了。" * 5),)
    prompt = prompt_for(SummaryRequest("", loops, max_tokens), COUNTER)
    assert prompt is not None
    assert characters in prompt.system


@pytest.mark.parametrize(("chars", "is_cut"), [(600, False), (601, True)])
def test_a_text_of_600_characters_is_in_the_record_whole(chars: int, is_cut: bool) -> None:
    prompt = prompt_for(SummaryRequest("", (LoopText(1, "x" * chars, ""),), 200), COUNTER)
    assert prompt is not None
    assert ("x" * 600 + "..." in prompt.record) is is_cut
    assert "x" * 600 in prompt.record


@pytest.mark.parametrize(("calls", "more"), [(40, None), (41, 1), (45, 5)])
def test_the_record_has_40_calls_of_a_loop_and_counts_the_others(calls: int, more: int | None) -> None:
    loop = LoopText(1, "go", "done", tuple(f"call_{index} {{}}" for index in range(calls)))
    prompt = prompt_for(SummaryRequest("", (loop,), 200), COUNTER)
    assert prompt is not None
    assert prompt.record.count("exchange 1, called: call_") == 40
    assert (f"exchange 1, called: {more} more" in prompt.record) is (more is not None)
    assert ("more" in prompt.record) is (more is not None)


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_record_says_which_loop_was_interrupted(*, interrupted: bool) -> None:
    prompt = prompt_for(SummaryRequest("", (LoopText(1, "go", "", interrupted=interrupted),), 200), COUNTER)
    assert prompt is not None
    assert ("exchange 1 was interrupted before an answer" in prompt.record) is interrupted


def test_parts_are_numbered_and_an_empty_record_of_loops_is_left_out() -> None:
    prompt = prompt_for(SummaryRequest("before", (), 200, parts=("first", "second")), COUNTER)
    assert prompt is not None
    assert "part 1 of 2" in prompt.record and "part 2 of 2" in prompt.record
    assert prompt.record.count("<turnlog-data") == 3
    assert prompt.record_tokens == sum(COUNTER.count(text) for text in ("before", "first", "second"))
