"""W11: within an epoch a window begins with the whole window of the call before, and only appends. W10: nothing is cut that fits.

Windows are built before each answer of a history, as an agent does, and compared block by block.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import (
    AMPLE,
    PRESETS,
    TOOLS,
    Asked,
    Stored,
    first,
    request,
    stored,
    texts,
    window,
    window_by_cards,
)
from tests.properties.histories import (
    FORMATS,
    SHAPES,
    TEXTS,
    Body,
    Format,
    Given,
    History,
    Move,
    disorderly,
    orderly,
    played,
    sample_histories,
    waiting,
)
from tests.support.epoch_laws import Pages, answers, assert_memory_changes_nothing, assert_W11, calls
from tests.support.prefix_laws import Blocks, assert_prefix, built, without_frame
from tests.support.window_laws import assert_budget_is_hard, assert_laws
from turnlog.core.errors import BudgetTooSmallError
from turnlog.linter.thinking import check, fingerprint
from turnlog.providers import Turn
from turnlog.providers.registry import CODECS
from turnlog.windows.assembly import Memory, assemble
from turnlog.windows.build import build
from turnlog.windows.plan import entry_of

laws = settings(
    max_examples=examples(80),
    derandomize=not is_full(),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # every example builds a window for each answer: shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
LONGEST = 30 if is_full() else 15
"""Messages of a log whose every window is built four times."""
LONG = "the quick brown fox jumps over order W-10023 at /srv/app/main.py. " * 12
RECALLING = '{"steps": [{"step": "turns", "n": 1}, {"step": "recall", "share": 0.1, "min_score": 0}]}'
STAYING = '{"steps": [{"step": "digest_when_full"}, {"step": "recall", "share": 0.5, "min_score": 0}]}'
asked = st.builds(
    Asked,
    policy=st.sampled_from((*PRESETS, "turns(1)", "messages(5)", RECALLING, STAYING, STAYING)),
    budget=st.one_of(st.just(AMPLE), st.integers(150, 6000)),
    format=st.sampled_from(FORMATS),
    answer_open_calls=st.booleans(),
    system=st.sampled_from((None, "You are a helpful agent.")),
    tools=st.sampled_from(((), TOOLS)),
    others_calls=st.sampled_from(("calls", "text")),
    recall=st.sampled_from(("never", "auto", "auto")),
)


@laws
@given(orderly(max_size=40), asked)
def test_W11_windows_of_one_epoch_only_append(history: History, wanted: Asked) -> None:
    assert_W11(stored(history), wanted)


@laws
@given(disorderly(max_size=30), asked)
def test_W11_in_disorder_too(history: History, wanted: Asked) -> None:
    assert_W11(stored(history), wanted)


@laws
@given(orderly(max_size=60), asked, st.integers(1, 12))
def test_W12_a_window_is_the_same_however_much_is_read_at_once(history: History, wanted: Asked, size: int) -> None:
    held = stored(history)
    whole, wanted = built(window, held, wanted)
    assert build(Pages(held, size), request(wanted, held.sources)) == whole


@laws
@given(disorderly(max_size=40), asked, st.integers(1, 12))
def test_W12_in_disorder_too(history: History, wanted: Asked, size: int) -> None:
    held = stored(history)
    whole, wanted = built(window, held, wanted)
    assert build(Pages(held, size), request(wanted, held.sources)) == whole


@pytest.mark.parametrize("policy", ["default", "full", "turns"])
def test_W12_the_least_budget_is_the_same_however_much_is_read_at_once(policy: str) -> None:
    short = [Given({"role": role, "content": role[0]}) for role in ("user", "assistant")]
    held = stored([*short * 3, Given({"role": "user", "content": "word " * 60})])
    least = window(held, Asked(policy)).tokens
    assert build(Pages(held, 1), request(Asked(policy, budget=least))) == window(held, Asked(policy, budget=least))
    with pytest.raises(BudgetTooSmallError) as raised:
        build(Pages(held, 1), request(Asked(policy, budget=least - 1)))
    assert raised.value.details["needed"] == least


_NOTHING_TO_DIGEST = {
    "empty": [("user", ""), ("assistant", "")],
    "only its system text is left": [("user", "word"), ("assistant", "Yes."), ("system", "Be brief.")],
}


@pytest.mark.parametrize("step", [{"step": "digest_when_full", "interrupted": "drop"}, {"step": "messages", "n": 1}])
@pytest.mark.parametrize("loop", _NOTHING_TO_DIGEST)
def test_W12_a_loop_whose_digest_would_be_empty_does_not_end_the_reading(loop: str, step: dict[str, Any]) -> None:
    policy = json.dumps({"steps": [step], "preserve_system": False})
    past = [("user", "Hello " * 50), ("assistant", "Yes " * 40), *_NOTHING_TO_DIGEST[loop]]
    held = stored([_said(*each) for each in (*past, *[("user", "more " * size) for size in (30, 90, 60)])])
    for budget in range(147, 300, 5):
        wanted = Asked(policy, budget)
        assert build(Pages(held, 2), request(wanted, held.sources)) == window(held, wanted)


@pytest.mark.parametrize("policy", ["turns(1)", "run_loops(1)", "messages(2)"])
def test_W12_the_call_of_a_pinned_result_is_read_however_far_back_it_is(policy: str) -> None:
    late = replace(_result("a", "late"), pin=True)
    held = stored([*_EXCHANGE, _called("a"), *_EXCHANGE * 6, _EXCHANGE[0], late, *_EXCHANGE[1:]])
    assert build(Pages(held, 1), request(Asked(policy))) == window(held, Asked(policy))


@laws
@given(orderly(max_size=LONGEST), asked, asked)
def test_windows_of_a_growing_log_do_not_depend_on_earlier_ones(history: History, wanted: Asked, other: Asked) -> None:
    assert_memory_changes_nothing(stored(history), wanted, other)


@laws
@given(orderly(max_size=LONGEST), asked)
def test_nor_do_those_of_payloads_that_earlier_ones_have_fetched(history: History, wanted: Asked) -> None:
    held, memory = stored(history), Memory()
    for count in range(1, len(history) + 1):
        begun = first(held, count)
        with suppress(BudgetTooSmallError):
            assert window_by_cards(begun, wanted, memory=memory) == window_by_cards(begun, wanted)


@laws
@given(disorderly(max_size=LONGEST), asked, asked)
def test_nor_do_those_of_a_log_in_disorder(history: History, wanted: Asked, other: Asked) -> None:
    assert_memory_changes_nothing(stored(history), wanted, other)


ASKING = (
    "Which order was it, {0}?",
    "That is fine, {0}. The order may come in the morning or in the evening. Which order was it?",
    "Order W-{0} is the one that had something wrong with it.",
    "Thank you for number {0}, that is all for now.",
)
"""What a user says: a message that only asks, one that asks in passing, and two that do not ask."""


@laws
@given(
    st.lists(st.tuples(st.sampled_from((0, 1, 2, 2, 3, 3, 3)), st.integers(1, 8)), min_size=20, max_size=3 * LONGEST),
    st.integers(700, 2_500),
    st.sampled_from((0.0, 0.15, 0.3)),
)
def test_W11_holds_while_questions_come_and_go(loops: list[tuple[int, int]], budget: int, in_passing: float) -> None:
    history = [
        message
        for number, (kind, length) in enumerate(loops)
        for message in (_said("user", ASKING[kind].format(number)), _said("assistant", LONG[: 40 * length]))
    ]
    step = {"step": "recall", "min_score": 0.01, "neighbours": 1, "in_passing": in_passing}
    assert_W11(stored(history), Asked(json.dumps({"steps": [{"step": "digest_when_full"}, step]}), budget=budget))


@pytest.mark.parametrize("tokens", [300, 600, 900])
def test_W12_the_epoch_behind_a_limit_counts_a_message_that_is_pinned_before_it(tokens: int) -> None:
    lengths = [(90, 20), (60, 60), (60, 60), (60, 60), (100, 50), (300, 150), (200, 100)]
    said = [
        _said(role, "word " * count)
        for pair in lengths
        for role, count in zip(("user", "assistant"), pair, strict=True)
    ]
    held = stored([replace(said[0], pin=True), *said[1:]])
    policy = json.dumps({"steps": [{"step": "tokens", "n": tokens}]})
    for budget in range(460, 1_400, 20):
        wanted = Asked(policy, budget)
        assert build(Pages(held, 1), request(wanted, held.sources)) == window(held, wanted)


def _called(call_id: str) -> Given:
    function = {"name": "look_up", "arguments": "{}"}
    return Given({"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]})


def _result(call_id: str, text: str) -> Given:
    return Given({"role": "tool", "tool_call_id": call_id, "content": text})


def _said(role: str, text: str = "And?", *, interrupted: bool = False) -> Given:
    return Given({"role": role, "content": text}, interrupted=interrupted)


def _item(call_id: str) -> Given:
    return Given(
        {"type": "function_call", "call_id": call_id, "name": "look_up", "arguments": "{}"}, "openai_responses"
    )


def _calls(role: str, *ids: str) -> Given:
    function = {"name": "look_up", "arguments": "{}"}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return Given({"role": role, "content": None, "tool_calls": calls})


WAITED = {
    "a system message and an interrupted answer before the last result": [
        *(_said("system"), _calls("assistant", "a", "b"), _result("a", "first"), _said("system")),
        *(_said("assistant", interrupted=True), _result("b", "second"), _said("assistant"), _said("user")),
        _said("assistant"),
    ],
    "a call before the first loop": [
        *(_calls("system", "a"), _said("assistant"), _result("a", "late"), _said("assistant"), _said("assistant")),
    ],
    "a system message behind a call that is never answered": [
        *(_said("developer"), _called("a"), _said("system"), _said("assistant"), _said("user"), _said("assistant")),
    ],
    "items of two answers, of which the one between was interrupted": [
        *(_said("user"), _item("a"), _said("assistant", interrupted=True), _item("b"), _said("assistant")),
        _said("assistant"),
    ],
    "items that wait for results as one answer": [
        *(_calls("assistant", "a", "b"), _item("b"), _item("c"), _result("a", "late"), _said("assistant")),
        *(_called("d"), _said("assistant")),
    ],
    "an answer while a call waits": [_called("a"), _said("assistant"), _said("user"), _said("assistant")],
}


@pytest.mark.parametrize("answer_open_calls", [False, True])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", WAITED)
def test_W11_and_W6_hold_where_calls_wait(name: str, format: Format, answer_open_calls: bool) -> None:
    wanted = Asked("full", format=format, answer_open_calls=answer_open_calls, system="You are an agent.")
    assert_W11(stored(WAITED[name]), wanted)
    for count in range(1, len(WAITED[name]) + 1):
        assert_prefix(stored(WAITED[name][:count]), wanted)


def steered(seed: int) -> History:
    """Return a loop of calls between which the user says much, some of it pinned."""
    choices = random.Random(seed)
    history = [_said("user", "go " + "word " * choices.choice([5, 50]))]
    for number in range(choices.choice([8, 14])):
        if choices.random() < 0.35:
            text = "also " + "word " * choices.choice([10, 60, 150, 250])
            history.append(replace(_said("user", text), pin=choices.random() < 0.3))
        history += [_called(f"c{number}"), _result(f"c{number}", "word " * choices.choice([5, 30, 120]))]
    return tuple(history)


@pytest.mark.parametrize("seed", [72, 81, 297, 419, 673, *(pytest.param(n, marks=pytest.mark.full) for n in range(60))])
def test_W11_holds_where_the_base_grows_with_the_border(seed: int) -> None:
    """A border behind a large message of the user needs a larger base, so one before it may have fitted longer."""
    for budget in (600, 800, 1_000, 1_300):
        with suppress(BudgetTooSmallError):
            assert_W11(stored(steered(seed)), Asked("default", budget))


@laws
@given(waiting(), asked)
def test_W11_holds_in_all_histories_with_calls_that_wait(history: History, wanted: Asked) -> None:
    assert_W11(stored(history), wanted)


_EXCHANGE = (Given({"role": "user", "content": "And?"}), Given({"role": "assistant", "content": "So."}))


@pytest.mark.parametrize("answer_open_calls", [False, True])
@pytest.mark.parametrize(
    "history",
    [
        [_EXCHANGE[0], _called("a"), *_EXCHANGE, *_EXCHANGE, _result("a", "late"), *_EXCHANGE],
        [_EXCHANGE[0], _called("a"), _result("a", "first"), *_EXCHANGE, *_EXCHANGE, _result("a", "second"), *_EXCHANGE],
        [_EXCHANGE[0], _called("a"), *_EXCHANGE, _called("a"), *_EXCHANGE, _result("a", "whose?"), *_EXCHANGE],
        [_EXCHANGE[0], _called("a"), _called("b"), _result("b", "b"), _called("c"), _result("a", "a"), *_EXCHANGE],
        [*_EXCHANGE, _result("a", "of nothing"), *_EXCHANGE, _called("a"), _result("a", "it"), *_EXCHANGE],
    ],
    ids=["late", "second", "two calls of one id", "in another order", "orphan"],
)
def test_late_and_second_results_change_what_was_assembled(history: list[Given], answer_open_calls: bool) -> None:
    wanted = Asked("default", answer_open_calls=answer_open_calls)
    assert_memory_changes_nothing(stored(history), wanted, replace(wanted, answer_open_calls=not answer_open_calls))
    assert_memory_changes_nothing(stored(history), wanted, wanted)


def test_settled_loops_are_assembled_once() -> None:
    memory, held = Memory(), stored(list(_EXCHANGE) * 4)
    entries = [entry_of(source) for source in held.sources]
    totals = list(accumulate(entry.event.tokens for entry in entries))
    views = [assemble(entries[:count], total=totals[count - 1], memory=memory) for count in (4, 6, 8)]
    assert views[1].loops[0] is views[2].loops[0]
    assert [len(view.loops) for view in views] == [2, 3, 4]


@pytest.mark.parametrize(
    ("count", "budget"),
    [(1_000, 2_000), (4_000, 2_000), *([(1_000, 8_000), (1_000, 32_000), (4_000, 8_000), (4_000, 32_000)] * is_full())],
)
def test_W12_what_is_read_depends_on_the_budget_alone(count: int, budget: int) -> None:
    turns = [
        Given({"role": role, "content": f"{number}. {LONG[: 100 + number % 7 * 50]}"})
        for number in range(count // 2)
        for role in ("user", "assistant")
    ]
    held = stored([*turns, Given({"role": "user", "content": "And now?"})])
    for policy in ("default", "run_loops", "turns", "classic", "recall"):
        pages = Pages(held, 20)
        made = build(pages, request(Asked(policy, budget=budget), held.sources))
        read = sum(source.event.tokens for source in pages.sources)
        assert read <= 4 * budget + 2_000, policy
        assert made == window(held, Asked(policy, budget=budget))


SAMPLES = list(sample_histories())
ASKED_OF_SAMPLES = [
    *((policy, format, part) for policy in ("default", "recall") for format in FORMATS for part in (0, 2, 4)),
    *((policy, "openai_chat", part) for policy in ("run_loops", "turns(2)", "buffer", "classic") for part in (0, 2, 5)),
]
"""Policy, format and part of the whole that is the budget, 0 for one that has room for everything."""


@pytest.mark.parametrize("at", range(len(SAMPLES)), ids=[name for name, _ in SAMPLES])
def test_W11_holds_on_the_projects_own_conversations(at: int) -> None:
    """Each conversation with some of the requests, so that all of them are tried; each with all of them in `make full`."""
    held = stored(SAMPLES[at][1])
    for policy, format, part in ASKED_OF_SAMPLES if is_full() else ASKED_OF_SAMPLES[at :: len(SAMPLES)]:
        assert_W11(held, Asked(policy, max(200, held.total // part) if part else AMPLE, format))


SHORT = 120 if is_full() else 50
"""Messages of a real conversation whose windows are built at each of its answers."""


def test_W11_holds_on_a_sample_of_real_conversations(real_histories: list[tuple[str, History]]) -> None:
    for index, (_, history) in enumerate(real_histories):
        if len(history) <= SHORT:
            held = stored(history)
            assert_W11(held, Asked("default", max(300, held.total // 3), FORMATS[index % len(FORMATS)]))


def test_W12_holds_on_a_sample_of_real_conversations(real_histories: list[tuple[str, History]]) -> None:
    for index, (_, history) in enumerate(real_histories):
        policy = ("default", "run_loops", "classic", "turns(3)")[index % 4]
        held, wanted = stored(history), Asked(policy, 8_000 if index % 2 else 2_000, FORMATS[index % len(FORMATS)])
        whole, wanted = built(window, held, wanted)
        assert build(Pages(held, index % 20 + 1), request(wanted, held.sources)) == whole


@pytest.mark.full
def test_W11_holds_on_all_real_conversations(all_real_histories: list[tuple[str, History]]) -> None:
    for _, history in all_real_histories:
        for budget in (AMPLE, 32_000, 8_000, 4_000):
            assert_W11(stored(history), Asked("default", budget, "anthropic"))


# ---------------------------------------------------------------- signed thinking


def with_thinking(history: History) -> History:
    """The same conversation with a signed thinking block at the beginning of each answer, as Claude gives them."""
    thought = list[Given]()
    for number, message in enumerate(history):
        content = message.body.get("content")
        if message.format == "anthropic" and message.body.get("role") == "assistant":
            blocks: list[Any] = content if isinstance(content, list) else [{"type": "text", "text": content or "-"}]
            signature = f"signature-{number}"
            thinking: Body = {"type": "thinking", "thinking": f"thought {number}", "signature": signature}
            others = [block for block in blocks if block.get("type") not in ("thinking", "redacted_thinking")]
            thought.append(replace(message, body={**message.body, "content": [thinking, *others]}))
        else:
            thought.append(message)
    return tuple(thought)


def assert_bound(held: Stored, wanted: Asked) -> None:
    """Each thinking block stands behind what it was made under, and none is missing between two that are sent."""
    made_under = dict[str, bytes]()
    for call in calls(held, wanted):
        blocks = Blocks(without_frame(call.window.messages, wanted)).flat()
        signatures = [_signature(block[2]) for block in blocks]
        kept = [number for number, signature in enumerate(signatures) if signature]
        for number in kept:
            signature = signatures[number]
            beginning = repr((call.window.system, call.window.tools, [block[1:] for block in blocks[:number]])).encode()
            assert made_under.get(signature, beginning) == beginning, f"{signature} is bound elsewhere, at {call.count}"
        made_under[f"signature-{call.count}"] = repr(
            (call.window.system, call.window.tools, [block[1:] for block in blocks])
        ).encode()
        numbers = [int(signatures[number].removeprefix("signature-")) for number in kept]
        between = [count for count in answers(held.history) if numbers and numbers[0] <= count <= numbers[-1]]
        assert numbers == [count for count in between if count in numbers]


def as_claude(history: History) -> History:
    """The same conversation as Anthropic's messages, as far as they can say it, with thinking in each answer."""
    messages = list[Given]()
    for stored_message in history:
        message = CODECS[stored_message.format].parse(stored_message.body)
        call_ids = tuple(call.id for call in message.tool_calls)
        turn = Turn(
            message, call_ids=call_ids, result_ids=tuple(result.tool_call_id for result in message.tool_results)
        )
        bodies = CODECS["anthropic"].bodies(turn)
        messages += [replace(stored_message, body=body, format="anthropic") for body in bodies]
    return with_thinking(tuple(messages))


def epochs_with_all_thinking_bound(held: Stored, wanted: Asked) -> tuple[int, int]:
    """Return the calls and the epochs of a conversation. The linter knows what each block was made behind."""
    made_behind, epochs, count = dict[str, str](), set[str](), 0
    for call in calls(held, wanted):
        request: dict[str, Any] = {"format": "anthropic", "system": call.window.system, "tools": call.window.tools}
        violations = check(call.window.messages, made_behind, **request)
        assert violations == [], call.count
        made_behind[f"signature-{call.count}"] = str(fingerprint(call.window.messages, **request))
        epochs.add(call.window.epoch)
        count += 1
    return count, len(epochs)


def test_no_thinking_of_a_sample_of_real_conversations_is_bound_elsewhere(
    real_histories: list[tuple[str, History]],
) -> None:
    for index, (_, history) in enumerate(real_histories):
        if len(history) <= SHORT:
            held = stored(as_claude(history))
            wanted = Asked("default", max(300, held.total // (index % 4 + 1)), "anthropic")
            epochs_with_all_thinking_bound(held, wanted)
            assert_W11(held, wanted)


@pytest.mark.full
@pytest.mark.parametrize("budget", [AMPLE, 32_000, 8_000, 4_000])
def test_no_thinking_of_all_real_conversations_is_bound_elsewhere(
    all_real_histories: list[tuple[str, History]], budget: int
) -> None:
    counts = list[tuple[int, int]]()
    for _, history in all_real_histories:
        held, wanted = stored(as_claude(history)), Asked("default", budget, "anthropic")
        counts.append(epochs_with_all_thinking_bound(held, wanted))
        assert_W11(held, wanted)
    made, epochs = (sum(column) for column in zip(*counts, strict=True))
    print(f"budget {budget}: {made} calls, {epochs} epochs")
    assert made > 0


def _signature(block: bytes) -> str:
    import json

    value = json.loads(block)
    is_thinking = isinstance(value, dict) and value.get("type") == "thinking"
    return str(value.get("signature", "")) if is_thinking else ""


def steps(count: int, *, result: str = LONG, remark: str = "", task: str = "Fix the bug.") -> Stored:
    """A loop of so many calls with a result each."""
    moves = [Move("user", text=task)]
    for number in range(count):
        moves += [Move("calls", text=remark), Move("result_late_first", text=f"{number} {result}", pick=1)]
    return stored(played(moves))


@pytest.mark.parametrize("budget", [AMPLE, 4000, 1500, 700])
@pytest.mark.parametrize("policy", ["default", "run_loops", "turns(2)"])
def test_a_signed_thinking_block_stands_behind_what_it_was_made_under(policy: str, budget: int) -> None:
    assert_bound(stored(with_thinking(claude(6, 3))), Asked(policy, budget, "anthropic"))
    assert_bound(stored(with_thinking(claude(1, 25))), Asked(policy, budget, "anthropic"))


def claude(loops: int, calls: int) -> History:
    """Loops of some calls each, as Anthropic's messages."""
    messages = list[Body]()
    for loop in range(loops):
        messages.append({"role": "user", "content": f"Question {loop}: what about item {loop}?"})
        for number in range(calls):
            name = f"toolu_{loop}_{number}"
            use = {"type": "tool_use", "id": name, "name": "get", "input": {"id": number}}
            answer = {"type": "tool_result", "tool_use_id": name, "content": f"row {number} of W-{loop}. " * 30}
            messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]
        messages.append({"role": "assistant", "content": [{"type": "text", "text": f"Answer {loop}."}]})
    return tuple(Given(message, "anthropic") for message in messages)


def test_thinking_that_is_still_bound_stays() -> None:
    made = window(stored(with_thinking(claude(4, 3))), Asked("default", AMPLE, "anthropic"))
    assert texts(made).count("thought ") == 16


# ---------------------------------------------------------------- long loops


@st.composite
def long_loops(draw: st.DrawFn) -> History:
    """Past loops or none, then a loop of 4 to 16 steps."""
    shape = draw(st.sampled_from(SHAPES))
    moves = [
        Move(kind, text=text, pick=1)
        for text in draw(st.lists(st.sampled_from(TEXTS[1:]), max_size=3))
        for kind in ("user", "calls", "result_late_first", "result_late_first", "assistant")
    ]
    moves += [Move("user", text=draw(st.sampled_from(TEXTS)))] * draw(st.integers(1, 2))
    for _ in range(draw(st.integers(4, 16))):
        moves += _step(draw, shape)
    return played(moves)


def _step(draw: st.DrawFn, shape: Format | None) -> list[Move]:
    remark, pick = draw(st.sampled_from((*TEXTS, LONG))), draw(st.integers(0, 2))
    fate = draw(st.sampled_from(("", "", "", "", "", "", "pinned", "interrupted")))
    calls = Move("calls", text=remark, pick=pick, shape=shape, fate=fate)
    results = [
        Move("result_late_first", text=draw(st.sampled_from((LONG, LONG * 3, *TEXTS))), pick=1, shape=shape)
        for _ in range(pick + 1)
    ]
    between = draw(st.sampled_from(((), (), (), ("assistant",), ("system",))))
    return [calls, *results, *(Move(kind, text=remark, shape=shape) for kind in between)]


@laws
@given(long_loops(), asked)
def test_W1_to_W5_hold_in_long_loops(history: History, wanted: Asked) -> None:
    held = stored(history)
    try:
        window(held, wanted)
    except BudgetTooSmallError as error:
        wanted = replace(wanted, budget=int(error.details["needed"]))
    assert_laws(held, wanted)


@laws
@given(long_loops(), asked)
def test_W3_the_least_window_of_a_long_loop_is_what_the_error_names(history: History, wanted: Asked) -> None:
    assert_budget_is_hard(stored(history), wanted)


@laws
@given(long_loops(), asked)
def test_W11_in_long_loops_too(history: History, wanted: Asked) -> None:
    assert_W11(stored(history), wanted)


@pytest.mark.parametrize(("result", "remark"), [(LONG, ""), ("ok", LONG), (LONG, LONG)])
def test_a_long_loop_has_few_epochs(result: str, remark: str) -> None:
    held = steps(60, result=result, remark=remark)
    budget = held.total // 6
    assert assert_W11(held, Asked("default", budget)) <= 2 + held.total / (0.3 * budget)


def test_steps_before_the_border_are_told_in_notes_and_the_task_stays() -> None:
    held = steps(30, result="created ticket TCK-88341 for ada@example.com", remark=LONG)
    made = window(held, Asked(budget=held.total // 4))
    folded = [part for part in made.manifest.parts if part.reason == "fold"]
    assert folded[0].first == 2
    assert "notes on earlier steps of exchange 1" in texts(made)
    assert "Fix the bug." in texts(made)
    assert "TCK-88341" in texts(made)


def test_the_manifest_of_a_long_loop_is_as_short_as_its_window() -> None:
    held, longer = steps(60, result=LONG, remark=""), steps(240, result=LONG, remark="")
    budget = held.total // 6
    made, of_longer = window(held, Asked(budget=budget)), window(longer, Asked(budget=budget))
    assert sum(part.reason == "fold" for part in of_longer.manifest.parts) < 10
    size = len(of_longer.messages)
    assert len(of_longer.manifest.parts) - size <= len(made.manifest.parts) - len(made.messages) + 3
    (loop,) = [part for part in of_longer.manifest.parts if part.kind == "loop"]
    assert len(loop.refs) < size, "refs of folded steps are not listed"


# ---------------------------------------------------------------- large results


def reading(lines: int, *, before: int = 0) -> Stored:
    """A loop in which an agent reads a long file, after so many smaller results."""
    text = "\n".join(
        f"{number:05d} def function_{number}(self) -> None: return self.call({number})" for number in range(lines)
    )
    moves = [Move("user", text="Fix it.")]
    for number in range(before):
        moves += [Move("calls"), Move("result_late_first", text=f"{number} {LONG}", pick=1)]
    return stored(played([*moves, Move("calls"), Move("result_late_first", text=text + "\nerror: the end", pick=1)]))


@pytest.mark.parametrize("budget", [2_000, 8_000, 32_000])
@pytest.mark.parametrize("before", [0, 6, 40])
def test_W10_a_large_result_takes_the_room_that_there_is(budget: int, before: int) -> None:
    held = reading(2000, before=before)
    made = window(held, Asked(budget=budget))
    sent = texts(made)
    assert "00000 def function_0" in sent
    assert "error: the end" in sent
    assert "left out here; ref" in sent
    assert made.tokens >= 0.85 * budget
    assert_budget_is_hard(held, Asked(budget=budget))


def test_W10_a_result_that_fits_is_whole() -> None:
    held = reading(100)
    made = window(held, Asked(budget=held.total + 50))
    assert {part.level for part in made.manifest.parts} == {"whole"}


def test_a_large_result_is_smaller_once_it_is_older_and_says_so() -> None:
    held = reading(2000)
    longer = stored((*held.history, *played([Move("calls"), Move("result_late_first", text=LONG * 6, pick=1)])))
    made = window(longer, Asked(budget=4_000))
    assert "00000 def function_0" in texts(made)
    assert LONG.strip() in texts(made)


# ---------------------------------------------------------------- a group chat


def test_a_group_chat_that_nobody_answers_keeps_its_first_and_its_newest_message() -> None:
    held = stored(played([Move("user", text=f"number {number} " + LONG) for number in range(60)]))
    made = window(held, Asked(budget=4_000))
    assert "number 0 " in texts(made)
    assert "number 59 " in texts(made)
    assert "earlier messages of this conversation not shown here" in texts(made)
