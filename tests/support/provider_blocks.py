"""Made-up histories of each provider's format: legal blocks of its newest reference, odd ones, and damaged ones.

The shapes are those of https://platform.claude.com/docs/en/api/messages/create, of the model of Bedrock Runtime in botocore, and of
the types ``ChatCompletionMessageParam`` and ``ResponseInputItemParam`` in OpenAI's SDK; calls that the provider runs itself are
among them. A history follows from its seed, so a failure is repeated by its number.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

Body = dict[str, Any]
FORMATS = ("openai_chat", "openai_responses", "anthropic", "bedrock_converse")
TEXTS = ("", " \n", "Look at order W-10023.", "查询一下北京的天气", "a lone \ud83d surrogate", "x" * 700, "[error] no")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WRONG: tuple[Any, ...] = (None, "", "  ", 7, True, [], {}, [{}], [None], "x", ["x"], {"x": 1}, "é " * 60)
KEYS = ("id", "timestamp", "name", "created_at", "metadata", "type", "status", "cache_control", "x_unknown", "index")


_SUMMARIES: tuple[Body, ...] = (
    {"content": "What was said before: nothing."},
    {"content": "What was said before: little.", "encrypted_content": "c2ln"},
    {
        "content": "Signed: it stands first.",
        "signature": "c2ln",
        "tool_changes": [{"type": "tool_removal", "name": "search"}],
    },
    {"content": None},
    {"content": ""},
    {},
)


def history(seed: int, format: str) -> list[Body]:
    """Return up to 14 messages of one format."""
    writer = _Writer(Random(f"{format} {seed}"), format)
    return [body for _ in range(writer.random.randint(1, 9)) for body in writer.turn()][:14]


class _Writer:
    """Writes turns, remembers calls without a result, and damages some of what it has written."""

    def __init__(self, random: Random, format: str) -> None:
        self.random, self.format = random, format
        self.open: list[tuple[str, str]] = []
        self.count = 0
        self.damage = random.choice((0.0, 0.1, 0.4))

    def turn(self) -> Iterator[Body]:
        """Yield what comes next: a user's word, results, or an answer."""
        if self.open and self.random.random() < 0.7:
            answered = [call for call in self.open if self.random.random() < 0.85]
            self.open = [call for call in self.open if call not in answered]
            bodies = self._results(answered)
        elif self.random.random() < 0.45:
            bodies = self._user()
        else:
            bodies = self._answer()
        for body in bodies:
            yield self._damaged(body) if self.random.random() < self.damage else body

    def _text(self) -> str:
        return self.random.choice(TEXTS) if self.random.random() < 0.3 else f"text {self.random.randint(0, 99)}"

    def _some(self, makers: Sequence[Callable[[], Any]], most: int = 3) -> list[Any]:
        return [self.random.choice(makers)() for _ in range(self.random.randint(0, most))]

    def _id(self, prefix: str) -> str:
        self.count += 1
        return self.random.choice(
            (f"{prefix}_{self.count}",) * 12 + ("", f"{prefix}_1", f"{prefix} {self.count}", "y" * 80)
        )

    def _user(self) -> list[Body]:
        role = self.random.choice(("user",) * 8 + ("system", "developer", "tool"))
        if self.random.random() < 0.4:
            return [{"role": role, "content": self._text()}]
        return [{"role": role, "content": self._some(getattr(self, f"_{self.format}_user_blocks")())}]

    def _answer(self) -> list[Body]:
        bodies: list[Body] = getattr(self, f"_{self.format}_answer")()
        return bodies

    def _results(self, calls: Sequence[tuple[str, str]]) -> list[Body]:
        bodies: list[Body] = getattr(self, f"_{self.format}_results")(calls)
        return bodies

    def _called(self, call_id: str, kind: str = "") -> str:
        self.open.append((call_id, kind))
        return call_id

    def _input(self) -> Any:
        return self.random.choice(({"q": "x", "n": 1}, {}, {"query": "news", "path": "src/app.py"}))

    def _tool(self) -> str:
        return self.random.choice(("search", "get_weather", "search", "a.b/c", "n" * 90, ""))

    # ------------------------------------------------------------ Anthropic

    def _anthropic_user_blocks(self) -> list[Callable[[], Any]]:
        image = {"type": "base64", "media_type": "image/png", "data": PNG}
        return [
            lambda: {"type": "text", "text": self._text()},
            lambda: {"type": "text", "text": self._text(), "cache_control": {"type": "ephemeral"}},
            lambda: {"type": "text", "text": "cited", "citations": []},
            lambda: {"type": "image", "source": copy.deepcopy(image)},
            lambda: {"type": "image", "source": {**image, "media_type": "image/svg+xml"}},
            lambda: {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            lambda: {"type": "document", "source": {"type": "file", "file_id": "file_1"}, "title": "a"},
            lambda: {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": self._text()}},
            lambda: {
                "type": "document",
                "source": {"type": "content", "content": [{"type": "text", "text": self._text()}]},
                "citations": {"enabled": True},
            },
            lambda: {
                "type": "search_result",
                "source": "https://example.com",
                "title": "t",
                "content": [{"type": "text", "text": self._text()}],
            },
            lambda: {"type": "container_upload", "file_id": "file_1"},
            lambda: {"type": "compaction", **self.random.choice(_SUMMARIES)},
            lambda: {"type": "hologram", "data": [1]},
            lambda: {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        ]

    def _anthropic_answer(self) -> list[Body]:
        blocks = [self._anthropic_thinking()] if self.random.random() < 0.3 else []
        blocks += self._some(
            [
                lambda: {"type": "text", "text": self._text()},
                lambda: {"type": "text", "text": self._text(), "citations": None},
                self._anthropic_thinking,
                self._anthropic_call,
                self._anthropic_call,
                self._anthropic_server_call,
                self._anthropic_mcp_call,
                lambda: {"type": "compaction", **self.random.choice(_SUMMARIES)},
                lambda: {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            ],
            most=4,
        )
        return [
            {
                "role": "assistant",
                "content": [item for block in blocks for item in (block if isinstance(block, list) else [block])],
            }
        ]

    def _anthropic_thinking(self) -> Body:
        return self.random.choice(
            (
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "thinking", "thinking": "hm"},
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "redacted_thinking", "data": "c2ln"},
            )
        )

    def _anthropic_call(self) -> Body:
        return {"type": "tool_use", "id": self._called(self._id("toolu")), "name": self._tool(), "input": self._input()}

    def _anthropic_server_call(self) -> list[Body]:
        name, call_id = self.random.choice(("web_search", "web_fetch", "code_execution")), self._id("srvtoolu")
        call = {"type": "server_tool_use", "id": call_id, "name": name, "input": self._input()}
        content: Any = {
            "web_search": [
                {"type": "web_search_result", "url": "https://e.com", "title": "t", "encrypted_content": "x"}
            ],
            "web_fetch": {"type": "web_fetch_tool_result_error", "error_code": "unavailable"},
            "code_execution": {
                "type": "code_execution_result",
                "stdout": "1",
                "stderr": "",
                "return_code": 0,
                "content": [],
            },
        }[name]
        return self._cut_off(call, {"type": f"{name}_tool_result", "tool_use_id": call_id, "content": content})

    def _anthropic_mcp_call(self) -> list[Body]:
        call_id = self._id("mcptoolu")
        call = {"type": "mcp_tool_use", "id": call_id, "name": "echo", "server_name": "srv", "input": self._input()}
        result = {
            "type": "mcp_tool_result",
            "tool_use_id": call_id,
            "is_error": False,
            "content": [{"type": "text", "text": "x"}],
        }
        return self._cut_off(call, result)

    def _cut_off(self, call: Body, result: Body) -> list[Body]:
        """Return a call with its result; now and then one of them is missing."""
        return self.random.choice(([call, result],) * 5 + ([call], [result]))

    def _anthropic_results(self, calls: Sequence[tuple[str, str]]) -> list[Body]:
        blocks: list[Any] = [
            {"type": "tool_result", "tool_use_id": call_id, "content": self._anthropic_output()}
            | self.random.choice(({}, {"is_error": True}, {"is_error": False}))
            for call_id, _ in calls
        ]
        blocks += self._some(self._anthropic_user_blocks(), 1)
        return [{"role": "user", "content": blocks}]

    def _anthropic_output(self) -> Any:
        return self.random.choice((self._text(), "", None, [], self._some(self._anthropic_user_blocks(), 2)))

    # ------------------------------------------------------------ Bedrock Converse

    def _bedrock_converse_user_blocks(self) -> list[Callable[[], Any]]:
        source = {"bytes": PNG}
        return [
            lambda: {"text": self._text()},
            lambda: {"text": self._text()},
            lambda: {"image": {"format": "png", "source": copy.deepcopy(source)}},
            lambda: {"document": {"format": "pdf", "name": self._text(), "source": copy.deepcopy(source)}},
            lambda: {"document": {"name": "a.b", "source": {"text": "hi"}}},
            lambda: {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://bucket/key"}}}},
            lambda: {"cachePoint": {"type": "default"}},
            lambda: {"guardContent": {"text": {"text": "x", "qualifiers": ["query"]}}},
            lambda: {"searchResult": {"source": "a", "title": "b", "content": [{"text": "c"}]}},
            lambda: {"SDK_UNKNOWN_MEMBER": {"name": "newThing"}},
            lambda: {"text": "two", "image": {"format": "png", "source": copy.deepcopy(source)}},
            lambda: {"type": "text", "text": "anthropic's"},
        ]

    def _bedrock_converse_answer(self) -> list[Body]:
        def call() -> Body:
            use = {"toolUseId": self._called(self._id("tooluse")), "name": self._tool(), "input": self._input()}
            return {"toolUse": use}

        def server_call() -> list[Body]:
            call_id = self._id("srv")
            use = {"toolUseId": call_id, "name": "nova_grounding", "input": {}, "type": "server_tool_use"}
            result = {"toolUseId": call_id, "content": [{"text": "x"}], "type": "nova_grounding_result"}
            return self._cut_off({"toolUse": use}, {"toolResult": result})

        blocks = self._some(
            [
                lambda: {"text": self._text()},
                lambda: {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
                lambda: {"reasoningContent": {"redactedContent": "c2ln"}},
                lambda: {"reasoningContent": {"SDK_UNKNOWN_MEMBER": {"name": "x"}}},
                lambda: {"citationsContent": {"content": [{"text": "x"}], "citations": [{"title": "t"}]}},
                lambda: {"SDK_UNKNOWN_MEMBER": {"name": "newThing"}},
                lambda: {"image": {"format": "png", "source": {"bytes": PNG}}},
                call,
                call,
                server_call,
            ],
            most=4,
        )
        return [
            {
                "role": "assistant",
                "content": [item for block in blocks for item in (block if isinstance(block, list) else [block])],
            }
        ]

    def _bedrock_converse_results(self, calls: Sequence[tuple[str, str]]) -> list[Body]:
        def part() -> Any:
            return self.random.choice(
                (
                    {"text": self._text()},
                    {"json": {"a": 1}},
                    {"json": [1]},
                    {"image": {"format": "png", "source": {"bytes": PNG}}},
                )
            )

        blocks: list[Any] = [
            {
                "toolResult": {"toolUseId": call_id, "content": [part() for _ in range(self.random.randint(0, 2))]}
                | self.random.choice(({}, {"status": "error"}, {"status": "success"}))
            }
            for call_id, _ in calls
        ]
        return [{"role": "user", "content": [*blocks, *self._some(self._bedrock_converse_user_blocks(), 1)]}]

    # ------------------------------------------------------------ OpenAI Chat

    def _openai_chat_user_blocks(self) -> list[Callable[[], Any]]:
        return [
            lambda: {"type": "text", "text": self._text()},
            lambda: {"type": "text", "text": "cached", "cache_control": {"type": "ephemeral"}},
            lambda: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
            lambda: {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            lambda: {"type": "file", "file": {"file_id": "file-1"}},
            lambda: {"type": "file", "file": {}},
            lambda: {"type": "refusal", "refusal": "no"},
            lambda: "a bare string",
            lambda: {"type": "hologram", "data": [1]},
        ]

    def _openai_chat_answer(self) -> list[Body]:
        body: Body = {
            "role": "assistant",
            "content": self.random.choice((self._text(), None, [{"type": "text", "text": "x"}])),
        }
        if self.random.random() < 0.5:
            body["tool_calls"] = [self._chat_call() for _ in range(self.random.randint(0, 3))]
        extras: tuple[Body, ...] = (
            {},
            {"refusal": None, "annotations": [], "audio": None, "function_call": None},
            {"reasoning_content": "hm"},
            {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
            {"function_call": {"name": "search", "arguments": "{}"}},
            {"audio": {"id": "audio_1", "data": "AAAA"}},
            {"refusal": "no"},
        )
        return [body | self.random.choice(extras)]

    def _chat_call(self) -> Body:
        call_id, name = self._called(self._id("call")), self._tool()
        shapes: tuple[Body, ...] = (
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(self._input())}},
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": '{"q": NaN', "parsed_arguments": None},
            },
            {"id": call_id, "type": "custom", "custom": {"name": name, "input": "ls"}},
            {"id": call_id, "type": "function", "index": 0, "function": {"name": name, "arguments": "{}"}},
            {"id": call_id, "name": name, "args": self._input()},
        )
        return self.random.choice(shapes)

    def _openai_chat_results(self, calls: Sequence[tuple[str, str]]) -> list[Body]:
        return [
            {
                "role": "tool",
                "tool_call_id": call_id,
                "content": self.random.choice((self._text(), None, [], "[error] no")),
            }
            | self.random.choice(({}, {"name": "search"}, {"is_error": True}))
            for call_id, _ in calls
        ]

    # ------------------------------------------------------------ OpenAI Responses

    def _openai_responses_user_blocks(self) -> list[Callable[[], Any]]:
        return [
            lambda: {"type": "input_text", "text": self._text()},
            lambda: {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
            lambda: {"type": "input_image", "detail": None},
            lambda: {"type": "input_file", "file_id": "file-1"},
            lambda: {"type": "input_file", "file_data": "data:text/plain;base64,aGk=", "filename": "a.txt"},
            lambda: {"type": "output_text", "text": "of the assistant"},
            lambda: {"type": "hologram"},
        ]

    def _openai_responses_answer(self) -> list[Body]:
        items = [{"type": "reasoning", "id": self._id("rs"), "summary": [], "encrypted_content": "x"}]
        items = items if self.random.random() < 0.4 else []
        for _ in range(self.random.randint(1, 3)):
            items.append(self.random.choice((self._said_item, self._call_item, self._hosted_item))())
        return items

    def _said_item(self) -> Body:
        parts = [{"type": "output_text", "text": self._text(), "annotations": [], "logprobs": []}]
        return {"type": "message", "id": self._id("msg"), "role": "assistant", "status": "completed", "content": parts}

    def _call_item(self) -> Body:
        kind, key = self.random.choice((("function_call", "arguments"), ("custom_tool_call", "input")))
        call_id = self._called(self._id("call"), kind)
        item_id = self._id("fc" if kind == "function_call" else "ctc")
        return {"type": kind, "id": item_id, "call_id": call_id, "name": self._tool(), key: "{}", "status": "completed"}

    def _hosted_item(self) -> Body:
        """Return a call of a tool that OpenAI defines: some it runs itself, others are answered by the caller."""
        kind, fields = self.random.choice(list(HOSTED.items()))
        item: Body = {"type": kind, "id": self._id(kind[:2]), **copy.deepcopy(fields)}
        if kind in ANSWERED:
            item["call_id"] = self._called(self._id("call"), kind)
        return item

    def _openai_responses_results(self, calls: Sequence[tuple[str, str]]) -> list[Body]:
        return [
            {"type": f"{kind}_output", "call_id": call_id, "output": copy.deepcopy(OUTPUTS.get(kind, self._text()))}
            for call_id, kind in calls
        ]

    # ------------------------------------------------------------ damage

    def _damaged(self, body: Body) -> Body:
        """Return the body with one to three faults at any depth."""
        body = copy.deepcopy(body)
        for _ in range(self.random.randint(1, 3)):
            places = list(_places(body))
            holder, key = self.random.choice(places)
            fault = self.random.randrange(4)
            if fault == 0 and isinstance(holder, dict):
                holder[self.random.choice(KEYS)] = copy.deepcopy(self.random.choice((*WRONG, "msg-1", 1)))
            elif fault == 1:
                del holder[key]
            elif fault == 2 and isinstance(holder, list):
                holder.insert(0, copy.deepcopy(holder[key]))
            else:
                holder[key] = copy.deepcopy(self.random.choice(WRONG))
            if not body:
                break
        return body


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


HOSTED: Mapping[str, Body] = {
    "web_search_call": {"status": "completed", "action": {"type": "search", "query": "news", "queries": ["news"]}},
    "file_search_call": {"status": "completed", "queries": ["x"], "results": None},
    "code_interpreter_call": {"status": "completed", "code": "1", "container_id": "cntr_1", "outputs": []},
    "image_generation_call": {"status": "completed", "result": PNG},
    "mcp_call": {"server_label": "s", "name": "echo", "arguments": "{}", "output": "x", "error": None},
    "mcp_list_tools": {"server_label": "s", "tools": []},
    "mcp_approval_request": {"server_label": "s", "name": "echo", "arguments": "{}"},
    "compaction": {"encrypted_content": "x"},
    "compaction_trigger": {},
    "shell_call": {
        "status": "completed",
        "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None},
    },
    # H "local_shell_call": {"status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
    # H "apply_patch_call": {"status": "completed", "operation": {"type": "delete_file", "path": "src/app.py"}},
    # H "computer_call": {"status": "completed", "action": {"type": "screenshot"}, "pending_safety_checks": []},
}
ANSWERED = ("shell_call", "local_shell_call", "apply_patch_call", "computer_call")
OUTPUTS: Mapping[str, Any] = {
    "shell_call": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    "local_shell_call": "a",
    "apply_patch_call": "done",
    "computer_call": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"},
}
