"""The least that each provider demands of a request's messages, as plain assertions: nothing of Turnlog is used here."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, TypeAlias

Messages: TypeAlias = list[dict[str, Any]]
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def assert_anthropic(messages: Messages) -> None:
    _assert_turns(messages)
    _assert_pairs(
        [(message["role"], _anthropic_blocks(message)) for message in messages],
    )


def assert_converse(messages: Messages) -> None:
    _assert_turns(messages)
    roles = [message["role"] for message in messages]
    assert all(item != other for item, other in pairwise(roles)), "roles alternate"
    _assert_pairs([(message["role"], _converse_blocks(message)) for message in messages])


def assert_responses(items: Messages) -> None:
    assert items
    called = dict[str, str]()
    answered = set[str]()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            assert 0 < len(item["call_id"]) <= 64
            assert item["call_id"] not in called
            assert _ID.fullmatch(item["name"])
            assert isinstance(item["arguments" if kind == "function_call" else "input"], str)
            called[item["call_id"]] = kind
        elif kind.endswith("_call") and "call_id" in item:
            assert item["call_id"] not in called
            called[item["call_id"]] = kind
        elif kind.endswith("_output"):
            assert called[item["call_id"]] == kind.removesuffix("_output")
            assert item["call_id"] not in answered
            assert isinstance(item["output"], str | list)
            answered.add(item["call_id"])
        elif kind == "reasoning":
            after = items[at + 1]
            is_own = after.get("role") == "assistant" or after.get("type", "message").endswith(("_call", "reasoning"))
            assert is_own, "reasoning is followed by its item"
        elif kind == "message":
            assert item["role"] in ("system", "developer", "user", "assistant")
            assert isinstance(item["content"], str) or item["content"]
    assert answered == set(called)


def _assert_turns(messages: Messages) -> None:
    assert messages
    assert messages[0]["role"] == "user"
    assert messages[-1]["role"] == "user"
    assert {message["role"] for message in messages} <= {"user", "assistant"}


Block: TypeAlias = tuple[str, Any]


def _assert_pairs(messages: list[tuple[str, list[Block]]]) -> None:
    """Every call's result is in the next user message, before anything else; no other results; ids are used once."""
    used, waiting = set[str](), set[str]()
    for role, blocks in messages:
        assert blocks, "content is not empty"
        kinds = [kind for kind, _ in blocks]
        if role == "assistant":
            assert "result" not in kinds
            assert kinds[-1] != "thinking"
            for kind, value in blocks:
                if kind == "call":
                    assert _ID.fullmatch(value["id"])
                    assert _ID.fullmatch(value["name"])
                    assert isinstance(value["input"], dict)
                    assert value["id"] not in used
                    used.add(value["id"])
                    waiting.add(value["id"])
            continue
        assert "call" not in kinds
        assert "thinking" not in kinds
        results = [value for kind, value in blocks if kind == "result"]
        assert kinds[: len(results)] == ["result"] * len(results), "results come first"
        assert sorted(results) == sorted(waiting), "all results of a turn are in the next user message"
        waiting = set()
    assert not waiting


def _anthropic_blocks(message: dict[str, Any]) -> list[Block]:
    if isinstance(message["content"], str):
        assert message["content"].strip()
        return [("text", message["content"])]
    result = list[Block]()
    for block in message["content"]:
        kind = block["type"]
        if kind == "text":
            assert block["text"].strip(), "text is not blank"
        if kind == "tool_use":
            result.append(("call", block))
        elif kind == "tool_result":
            inner = block.get("content", "")
            assert isinstance(inner, str) or all(item["type"] != "text" or item["text"].strip() for item in inner)
            result.append(("result", block["tool_use_id"]))
        else:
            result.append(("thinking" if kind.endswith("thinking") else kind, block))
    return result


def _converse_blocks(message: dict[str, Any]) -> list[Block]:
    result, names = list[Block](), list[str]()
    for block in message["content"]:
        if "text" in block:
            assert block["text"].strip(), "text is not blank"
        if "toolUse" in block:
            use = block["toolUse"]
            result.append(("call", {**use, "id": use["toolUseId"]}))
        elif "toolResult" in block:
            assert block["toolResult"]["content"]
            assert all("text" not in item or item["text"].strip() for item in block["toolResult"]["content"])
            result.append(("result", block["toolResult"]["toolUseId"]))
        else:
            result.append(("thinking" if "reasoningContent" in block else "other", block))
        if "document" in block:
            names.append(block["document"]["name"])
            assert re.fullmatch(r"[A-Za-z0-9()\[\]\- ]{1,200}", names[-1])
            assert "  " not in names[-1]
            assert any("text" in item for item in message["content"])
    assert len(names) == len(set(names))
    return result


RULES = {"anthropic": assert_anthropic, "bedrock_converse": assert_converse, "openai_responses": assert_responses}
