"""Windows in formats of JavaScript libraries obey what those of providers do. No linter has rules for them: codecs read them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from tests.effort import examples, is_full
from tests.properties.building import Asked, stored, texts, window
from tests.properties.histories import Given, History, disorderly
from tests.support.window_laws import asked, assert_budget_is_hard, built
from turnlog.providers.registry import codec_of

JAVASCRIPT: tuple[Any, ...] = ("ai_sdk", "openai_agents_js")
MARK = re.compile(r"(?:user|assistant|system|call|result)#[\d.]+;")
laws = settings(
    max_examples=examples(60),
    derandomize=not is_full(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("format", JAVASCRIPT)
@laws
@given(disorderly(), asked)
def test_each_call_has_its_result_behind_it_within_the_budget(format: Any, history: History, wanted: Asked) -> None:
    held, wanted = stored(history), replace(wanted, format=format, answer_open_calls=True)
    assert_budget_is_hard(held, wanted)
    waiting = dict[str, str]()
    for message in map(codec_of(format).parse, built(held, wanted).messages):
        for result in message.tool_results:
            waiting.pop(result.tool_call_id)
        assert message.tool_calls or message.tool_results or not waiting, "results come before what is said next"
        for call in message.tool_calls:
            assert call.id and call.id not in waiting
            waiting[call.id] = call.name
    assert not waiting


@pytest.mark.parametrize("format", JAVASCRIPT)
@laws
@given(disorderly(fates=False))
@example([Given({"role": "user", "content": ""}, "openai_chat")])
def test_a_window_says_what_one_in_the_plain_format_says_and_is_a_window_again(format: Any, history: History) -> None:
    wanted = Asked("full", format=format, answer_open_calls=True)
    sent, plain = (window(stored(history), replace(wanted, format=name)) for name in (format, "turnlog"))
    assert sorted(MARK.findall(texts(sent))) == sorted(MARK.findall(texts(plain)))
    again = window(stored([Given(body, format) for body in sent.messages]), wanted)
    assert again.messages == sent.messages
