"""The laws of windows over histories with all the disorder of real transcripts: W1 valid, W2 pairs, W3 budget, W4 the task
stays, W5 no silent hole, W7 deterministic. (W6 is in test_prefix.py and test_window_growth.py, W8 in test_exact_rebuild.py.)
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.building import (
    AMPLE,
    COUNTER,
    PRESETS,
    TOOLS,
    Asked,
    Stored,
    as_bytes,
    first,
    recounted,
    stored,
    texts,
    window,
    window_by_cards,
)
from tests.properties.histories import (
    FORMATS,
    ROOT,
    Format,
    Given,
    History,
    disorderly,
    given_openai,
    marked,
    sample_histories,
)
from tests.properties.own_steps import Whim, registered
from tests.properties.pipelines import STEPS, options_made, pipelines
from tests.properties.plain_pairing import plainly_paired, role_of
from tests.support.window_laws import (
    asked,
    assert_budget_is_hard,
    assert_laws,
    assert_no_silent_hole,
    assert_pairs_are_kept,
    assert_task_is_in,
    assert_valid,
    built,
    content_of,
    laws,
    mark_of,
    without_notes,
)
from turnlog.core.errors import BudgetTooSmallError
from turnlog.providers.token_rules import count_tools
from turnlog.windows.build import Window
from turnlog.windows.text import SETTLEMENT

# ---------------------------------------------------------------- W1


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "turnlog"])
@laws
@given(disorderly(), asked)
def test_W1_every_window_passes_the_linter(format: Format, history: History, wanted: Asked) -> None:
    assert_valid(built(stored(history), replace(wanted, format=format)), format)


# ---------------------------------------------------------------- W2


def assert_unanswered_are_settled(history: History, wanted: Asked, found: Window) -> None:
    """In an openai_chat window: each unanswered call that is sent has the neutral text for a result."""
    plain, sent = plainly_paired(history), without_notes(texts(found))
    unanswered = sum(
        len(plain.unanswered(position)) for position in plain.calls if mark_of("call", (position, 0)) in sent
    )
    assert sent.count(SETTLEMENT) == unanswered
    for at, message in enumerate(found.messages):
        for offset, call in enumerate(message.get("tool_calls") or []):  # type: ignore[arg-type,var-annotated]
            mark = re.search(r"call#(\d+)\.(\d+);", str(call))
            assert mark is not None
            ref = (int(mark[1]), int(mark[2]))
            answers = [other for other in found.messages[at + 1 :] if other.get("tool_call_id") == call["id"]]
            assert len(answers) == 1, f"call {offset} of message {at} has {len(answers)} results"
            wanted_text = mark_of("result", plain.result_of[ref]) if ref in plain.result_of else SETTLEMENT
            assert wanted_text in texts(replace(found, messages=answers))


@laws
@given(disorderly(), asked)
def test_W2_a_call_and_its_results_are_in_or_out_together(history: History, wanted: Asked) -> None:
    assert_pairs_are_kept(history, wanted, built(stored(history), wanted))


@laws
@given(disorderly(), asked)
def test_W2_an_unanswered_call_is_settled_and_every_other_has_its_own_result(history: History, wanted: Asked) -> None:
    wanted = replace(wanted, format="openai_chat")
    assert_unanswered_are_settled(history, wanted, built(stored(history), wanted))


# ---------------------------------------------------------------- W3


@laws
@given(disorderly(), asked)
def test_W3_what_is_sent_counted_afresh_is_within_the_tokens_named_and_these_within_the_budget(
    history: History, wanted: Asked
) -> None:
    assert_budget_is_hard(stored(history), wanted)


@pytest.mark.parametrize("policy", ["full", "run_loops"])
def test_W3_at_every_budget_that_is_a_little_too_small(policy: str) -> None:
    """Where a budget is off, it is off by little."""
    held = stored(min((history for _, history in sample_histories() if len(history) > 8), key=len))
    whole = window(held, Asked(policy))
    for budget in range(whole.tokens - 8, whole.tokens + 1, 2):
        assert_budget_is_hard(held, Asked(policy, budget))


@laws
@given(disorderly(max_size=20), asked)
def test_W3_payloads_out_of_line_keep_the_budget_too_and_give_the_same_window(history: History, wanted: Asked) -> None:
    held = stored(history)
    # What a card does not tell (separators between blocks) may be found missing at the second try, never at a third.
    for _ in range(2):
        with contextlib.suppress(BudgetTooSmallError):
            window_by_cards(held, wanted)
            break
        wanted = replace(wanted, budget=_needed(held, wanted))
    result = window_by_cards(held, wanted)
    assert recounted(result, wanted) <= result.tokens <= wanted.budget
    if wanted.budget == AMPLE and wanted.policy.startswith(("full", "turns", "messages", "buffer")):
        assert result.messages == window(held, wanted).messages


def _needed(held: Stored, wanted: Asked) -> int:
    with pytest.raises(BudgetTooSmallError) as raised:
        window_by_cards(held, wanted)
    return int(raised.value.details["needed"])


# ---------------------------------------------------------------- W4


@laws
@given(disorderly(), asked)
def test_W4_the_user_messages_before_the_first_assistant_message_of_the_current_loop_are_in_uncut(
    history: History, wanted: Asked
) -> None:
    held = stored(history)
    assert_task_is_in(held, built(held, wanted))


# ---------------------------------------------------------------- W5


@laws
@given(disorderly(), asked)
def test_W5_every_message_is_accounted_for_once_and_what_is_left_out_is_declared(
    history: History, wanted: Asked
) -> None:
    held = stored(history)
    assert_no_silent_hole(held, built(held, wanted))


@pytest.mark.parametrize("shown", [1, 2, 3])
def test_W5_the_line_counts_what_is_not_shown(shown: int) -> None:
    said = [{"role": role, "content": f"{role} {at}"} for at in range(5) for role in ("user", "assistant")]
    result = window(stored(given_openai(said)), Asked(f"turns({shown})"))
    lines = [text for message in result.messages if "not shown here]" in (text := content_of(message))]
    missing = 5 - (len(result.messages) - 1) // 2
    exchanges = f"{missing} earlier exchange{'s' if missing > 1 else ''}"
    assert lines == [f"[{2 * missing} earlier messages ({exchanges}) of this conversation not shown here]"]
    assert result.messages[1:] == said[2 * missing :]


# ---------------------------------------------------------------- W7


@laws
@given(disorderly(), asked)
def test_W7_the_same_input_gives_the_same_bytes(history: History, wanted: Asked) -> None:
    assert as_bytes(built(stored(history), wanted)) == as_bytes(built(stored(history), wanted))


IN_A_PROCESS = """
import hashlib
from tests.effort import is_full
from tests.properties.building import Asked, PRESETS, as_bytes, stored, window
from tests.properties.histories import DISORDERLY, FORMATS, Move, played, sample_histories
held = [stored(history) for _, history in sample_histories()]
held.append(stored(played([Move(DISORDERLY[at * 7 % len(DISORDERLY)], at % 12, turnlog=at % 3 == 0) for at in range(60)])))
digest = hashlib.sha256()
for at, one in enumerate(held):
    for number, policy in enumerate(PRESETS):
        for format in FORMATS if is_full() else [FORMATS[(at + number) % len(FORMATS)]]:
            digest.update(as_bytes(window(one, Asked(policy, 50_000, format))))
print(digest.hexdigest())
"""


def test_W7_processes_with_different_hash_seeds_give_the_same_bytes() -> None:
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    digests = {
        subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


# ---------------------------------------------------------------- all of them on real conversations


REAL_ASKED = tuple(
    Asked(policy, budget, format, answer_open_calls, "You are an agent.", TOOLS)
    for policy, (budget, format, answer_open_calls) in zip(
        (*PRESETS, "turns(2)", "messages(7)", "tokens(900)") * 2,
        (
            (AMPLE, "openai_chat", False),
            (4000, "anthropic", True),
            (2500, "bedrock_converse", False),
            (AMPLE, "openai_responses", True),
            (3000, "turnlog", False),
        )
        * 4,
        strict=False,
    )
)


@pytest.mark.parametrize(
    ("name", "history"), [pytest.param(*sample_history, id=sample_history[0]) for sample_history in sample_histories()]
)
def test_W1_to_W5_hold_on_the_projects_own_conversations(name: str, history: History) -> None:
    for wanted in REAL_ASKED:
        assert_laws(stored(marked(history)), wanted)
    assert_budget_is_hard(stored(history), Asked(budget=1))


many = settings(laws, max_examples=examples(300))


PINNED_IN_OLDER = tuple(
    Given({"role": role, "content": f"{role}#{number};"}, pin=number == 3)
    for number, role in enumerate(("user", "user", "user", "assistant", "user"), start=1)
)


SHORTENED_BEFORE_ITS_MARK = (
    *(Given({"role": "user", "content": f"user#{number};"}) for number in range(1, 26)),
    Given(
        {
            "role": "user",
            "content": "user#26;",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "search", "arguments": '{"q": "call#26.0;"}'}}
            ],
        }
    ),
    Given({"role": "tool", "tool_call_id": "a", "content": "the quick brown fox jumps. " * 50 + "\nresult#27.0;"}),
)


TRACE = {"x_trace": {"n": 1}}


def _called(number: int) -> History:
    """Return an answer with a call."""
    function = {"name": "search", "arguments": f'{{"q": "call#{number}.0;", "v": ""}}'}
    call = {"id": f"id-{number}-0", "type": "function", "function": function}
    return (Given({"role": "assistant", "content": f"\nassistant#{number};", "tool_calls": [call]}),)


FOLDED_AROUND_A_RESULT = (
    *(Given({"role": "user", "content": f"\nuser#{number};", **TRACE}) for number in range(1, 36)),
    *(Given({"role": "assistant", "content": f"\nassistant#{number};", **TRACE}) for number in range(36, 39)),
    *_called(39),
    Given({"role": "assistant", "content": "\nassistant#40;", **TRACE}),
    Given({"role": "tool", "tool_call_id": "id-39-0", "content": "\nresult#41.0;"}, pin=True),
    Given(
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "\nassistant#42;"}],
            "reasoning_content": "let me see",
        }
    ),
)


FOLDED_AROUND_A_LATE_RESULT = (
    *(Given({"role": "user", "content": f"\nuser#{number};", **TRACE}) for number in range(1, 15)),
    *_called(15),
    *(Given({"role": role, "content": f"\n{role}#{at};", **TRACE}) for at, role in ((16, "user"), (17, "assistant"))),
    *_called(18),
    Given({"role": "tool", "tool_call_id": "id-18-0", "content": "\nresult#19.0;"}),
    Given({"role": "tool", "tool_call_id": "id-15-0", "content": "\nresult#20.0;"}, pin=True),
    Given({"role": "assistant", "content": "\nassistant#21;", **TRACE}),
)


@many
@example(FOLDED_AROUND_A_LATE_RESULT, Asked('{"steps": []}', 1))
@example(FOLDED_AROUND_A_RESULT, Asked('{"steps": []}', 1))
@example(PINNED_IN_OLDER, Asked('{"steps": [{"step": "recent", "messages": 0, "tokens": 0}]}', AMPLE))
@example(SHORTENED_BEFORE_ITS_MARK, Asked('{"steps": []}', 1))
@given(disorderly(), st.builds(replace, asked, policy=st.one_of(pipelines(max_size=6), options_made)))
def test_W1_to_W5_hold_for_any_pipeline_of_steps(history: History, wanted: Asked) -> None:
    assert_laws(stored(history), wanted)


@many
@given(
    disorderly(),
    st.builds(replace, asked, policy=pipelines((*STEPS, *["whim"] * len(STEPS)), max_size=4)),
)
def test_W1_to_W5_hold_with_steps_of_a_user_s_own(history: History, wanted: Asked) -> None:
    with registered(Whim):
        held = stored(history)
        assert_laws(held, wanted)
        assert as_bytes(built(held, wanted)) == as_bytes(built(held, wanted))


def assert_laws_on_real(histories: list[tuple[str, History]], *, calls: int | None, each: int) -> None:
    """At the model calls of every conversation, or so many of them, each with ``each`` of the things that can be asked."""
    turn = 0
    for name, history in histories:
        held = stored(marked(history))
        answered = [at for at, value in enumerate(history) if at and role_of(value) == "assistant"]
        for count in answered[:: max(1, -(-len(answered) // calls))] if calls else answered:
            so_far = first(held, count)
            for _ in range(each):
                turn += 1
                wanted = REAL_ASKED[turn % len(REAL_ASKED)]
                try:
                    assert_laws(so_far, wanted)
                    assert as_bytes(built(so_far, wanted)) == as_bytes(built(first(held, count), wanted)), "W7"
                except AssertionError as error:
                    raise AssertionError(f"{name}, {count} messages, with {wanted}") from error


def test_W1_to_W5_and_W7_hold_at_the_model_calls_of_a_sample_of_real_conversations(
    real_histories: list[tuple[str, History]],
) -> None:
    assert_laws_on_real(real_histories, calls=3, each=1)


@pytest.mark.full
def test_W1_to_W5_and_W7_hold_at_all_model_calls_of_all_real_conversations(
    all_real_histories: list[tuple[str, History]],
) -> None:
    assert_laws_on_real(all_real_histories, calls=None, each=4)


def test_the_tools_are_counted_as_they_are_sent() -> None:
    wanted = Asked(tools=TOOLS)
    assert window(stored(()), wanted).tokens - window(stored(()), Asked()).tokens == count_tools(TOOLS, COUNTER)
