"""Signed thinking is sent only behind what it was made behind, whatever comes between; and windows need no memory of a process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

import pytest

from turnlog import Turnlog
from turnlog.client.model import Session
from turnlog.sessions.context_models import WindowAnswer


class Provider:
    """A provider whose model thinks in each answer, and that remembers behind which request it did."""

    def __init__(self, log: Turnlog, session: Session, **options: Any) -> None:
        self.log, self.session, self.options = log, session, {"format": "anthropic", **options}
        self.made_behind, self._numbers = dict[str, str](), count(1)

    def window(self) -> WindowAnswer:
        """Return the window, after a look at the thinking in it."""
        window = self.session.context(**self.options)
        found = self.log.lint(
            window.messages, format="anthropic", system=window.system, made_behind=self.made_behind
        ).problems
        assert [problem.rule for problem in found] == []
        return window

    def answer(self, window: WindowAnswer, text: str = "ok", blocks: Sequence[dict[str, Any]] = ()) -> None:
        """Append an answer that was made under a window: thinking, ``blocks`` and a text."""
        sent = self.log.lint(window.messages, format="anthropic", system=window.system)
        signature = f"SIG{next(self._numbers)}"
        assert sent.fingerprint is not None
        self.made_behind[signature] = sent.fingerprint
        thinking = {"type": "thinking", "thinking": "hm", "signature": signature}
        message = {"role": "assistant", "content": [thinking, *blocks, {"type": "text", "text": text}]}
        self.session.append(message, window=window, format="anthropic")


def test_a_message_that_comes_while_the_model_thinks(log: Turnlog) -> None:
    session = log.sessions.create("s", recall="never")
    provider = Provider(log, session, budget=6_000)
    session.append({"role": "user", "content": "q1"})
    first = provider.window()
    provider.answer(first)
    session.append({"role": "user", "content": "q2"})
    asked = provider.window()
    session.append({"role": "user", "content": "and in German, please"})
    provider.answer(asked)
    session.append({"role": "user", "content": "q3"})
    later = provider.window()
    assert "SIG" not in json.dumps(later.messages)
    assert later.prefix.reason == "unprompted"
    assert later.manifest.epoch != asked.manifest.epoch
    provider.answer(later)
    session.append({"role": "user", "content": "q4"})
    newest = provider.window()
    assert newest.manifest.epoch == later.manifest.epoch and newest.prefix.broke_at is None
    assert "SIG3" in json.dumps(newest.messages), "what is made after that is bound to what is sent"


@pytest.mark.parametrize("between", ["system", "result", "rewind"])
def test_what_comes_between_a_window_and_its_answer_parts_them(log: Turnlog, between: str) -> None:
    tools = [{"name": "find", "input_schema": {"type": "object"}}]
    session = log.sessions.create("s", recall="never", tools=tools)
    provider = Provider(log, session, budget=20_000)
    first = session.append({"role": "user", "content": "q1"}).head
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    session.append({"role": "user", "content": "q2"})
    asked = provider.window()
    if between == "rewind":
        session.rewind(first)
    elif between == "system":
        session.append({"role": "system", "content": "The shop closes at 6."})
    else:
        session.append({"role": "tool", "tool_call_id": "c", "content": "at last"})
    provider.answer(asked)
    session.append({"role": "user", "content": "q3"})
    later = provider.window()
    assert "SIG" not in json.dumps(later.messages)
    assert later.prefix.broke_at is not None and later.manifest.epoch != asked.manifest.epoch
    provider.answer(later)
    session.append({"role": "user", "content": "q4"})
    newest = provider.window()
    assert "SIG2" in json.dumps(newest.messages) and newest.prefix.broke_at is None


SEARCHED = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {"type": "web_search_result", "title": "t", "url": "https://example.org", "encrypted_content": "E"}
        ],
    },
]


@pytest.mark.parametrize("blocks", [[], SEARCHED])
@pytest.mark.parametrize("answer_open_calls", [False, True])
def test_an_answer_behind_an_answer_whose_tools_the_provider_ran(
    log: Turnlog, blocks: list[dict[str, Any]], answer_open_calls: bool
) -> None:
    """The results stand within the first answer, so a neutral message prompts the second one. Later windows lack it."""
    session = log.sessions.create("s", recall="never")
    provider = Provider(log, session, budget=20_000, answer_open_calls=answer_open_calls)
    session.append({"role": "user", "content": "q1"})
    provider.answer(provider.window(), blocks=blocks)
    prompted = provider.window()
    provider.answer(prompted)
    session.append({"role": "user", "content": "q2"})
    later = provider.window()
    assert later.messages[: len(prompted.messages)] != prompted.messages
    assert (later.prefix.broke_at, later.prefix.reason) == (3, "unprompted")


@pytest.mark.parametrize("policy", ["default", "classic(5)"])
@pytest.mark.parametrize("budget", [200, 250])
def test_a_summary_that_has_no_room_any_more(log: Turnlog, policy: str, budget: int) -> None:
    for summarised in (3, 5, 6):
        for words in (10, 20, 40):
            session = log.sessions.create(f"{summarised}-{words}", recall="never", policy=policy)
            provider = Provider(log, session, budget=budget)
            for number in range(12):
                session.append({"role": "user", "content": f"u{number} " + "word " * words})
                if number == summarised:
                    session.compress(keep_loops=0)
                provider.answer(provider.window(), f"a{number} " + "word " * (words // 2))


@pytest.mark.parametrize("policy", ["tokens(300)", "messages(3)", "classic", "default"])
@pytest.mark.parametrize("later", [False, True])
def test_a_late_result_that_makes_its_loop_too_large(log: Turnlog, policy: str, later: bool) -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    session = log.sessions.create("s", recall="never", policy=policy, tools=tools)
    provider = Provider(log, session, budget=20_000)
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    session.append({"role": "user", "content": "word " * 5_000})
    session.append({"role": "assistant", "content": [call]}, format="anthropic")
    session.append({"role": "user", "content": "q2"})
    asked = provider.window()
    provider.answer(asked)
    result = {"type": "tool_result", "tool_use_id": "a", "content": "word " * 5_000}
    session.append({"role": "user", "content": [result]}, format="anthropic")
    if later:
        session.append({"role": "user", "content": "q3"})
    window = provider.window()
    is_kept = window.messages[: len(asked.messages)] == asked.messages
    assert is_kept == (window.prefix.broke_at is None)
    assert is_kept == (window.manifest.epoch == asked.manifest.epoch)


@pytest.mark.parametrize("empty", [[], [{"role": "user", "content": []}]])
def test_a_break_is_named_also_where_nothing_thinks(log: Turnlog, empty: list[dict[str, Any]]) -> None:
    """The window of an answer that follows an answer ended with a neutral message. A message without content is not sent."""
    session = log.sessions.create("s", recall="never")
    session.append({"role": "user", "content": "q"}, {"role": "assistant", "content": "a1"}, *empty)
    before = session.context(format="anthropic")
    session.append({"role": "assistant", "content": "a2"})
    after = session.context(format="anthropic")
    assert after.messages[: len(before.messages)] != before.messages
    assert (after.prefix.broke_at, after.prefix.reason) == (4 + len(empty), "unprompted")
    assert after.manifest.epoch != before.manifest.epoch


# ------------------------------------------------------------ a process that has read more

TABLE = "Name" + " " * 300 + "Status" + " " * 300 + "Reason\n"
RANDOM = Random(1)


def noise(words: int) -> list[str]:
    """Return words that do not compress, so that their message is stored out of line."""
    return [f"{RANDOM.getrandbits(64):x}" for _ in range(words)]


def pretty(number: int) -> str:
    deep: Any = {"x": [{"y": word} for word in noise(60)]}
    return json.dumps({"error": {"code": f"E{number}", "detail": [{"field": "a", "why": {"deep": deep}}]}}, indent=8)


@pytest.mark.parametrize(
    ("results", "text", "arguments"),
    [
        (1, pretty, "{}"),
        (3, pretty, "{}"),
        (8, lambda number: f"failed {number}: " + " ".join(noise(300)), "{}"),
        (1, lambda number: TABLE + " ".join(noise(300)), "{}"),
        (1, str, json.dumps({"a": {"b": {"c": noise(300)}}}, indent=60)),
    ],
)
def test_a_digest_is_the_same_whether_a_result_was_read_or_not(
    log: Turnlog, results: int, text: Callable[[int], str], arguments: str
) -> None:
    session = log.sessions.create("s", recall="never")
    function = {"name": "f", "arguments": arguments}
    calls = [{"id": f"t{number}", "type": "function", "function": function} for number in range(results)]
    session.append({"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": calls})
    blocks = [
        {"type": "tool_result", "tool_use_id": f"t{number}", "is_error": True, "content": text(number)}
        for number in range(results)
    ]
    session.append({"role": "user", "content": blocks}, format="anthropic")
    session.append({"role": "assistant", "content": "done"}, {"role": "user", "content": "now"})
    cold = session.context(policy="run_loops", budget=20_000)
    session.context(policy="full", budget=100_000)
    assert session.context(policy="run_loops", budget=20_000).messages == cold.messages
