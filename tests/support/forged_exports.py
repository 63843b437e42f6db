"""Exports with forged lines."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from tests.support.exports import exported, members, zipped
from turnlog import Turnlog
from turnlog.core.json_values import encode_json
from turnlog.log.headers import GENESIS, chain_hash, hashed_header
from turnlog.log.keys import commit_sort_key
from turnlog.log.packing import line_digest
from turnlog.log.payloads import digest_of

NOISE = "".join(f"{number * 7919 % 1_000_003:06x}" for number in range(2_000))
"""What can't be packed is stored out of line."""


@cache
def world() -> dict[str, bytes]:
    """The members of an export with every kind of event, in view and rewound, in the log and out of line."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"path": "a"}'}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with Turnlog.open("memory://") as log:
        first = log.sessions.create(
            "first",
            system="Be brief.",
            state={"a": 1},
            ttl_days=30,
            inactive_after_minutes=10080,
            tools=[tool],
            model="m",
        )
        first.append({"role": "user", "content": "hi"}, {"role": "assistant", "content": "ok"}, idempotency_key="k")
        session = first.fork("s")
        for number in range(3):
            session.append(
                {"role": "user", "content": [{"type": "text", "text": f"Find A-{number}417."}, image]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                meta=[{"pin": number == 0, "author": "ada", "metadata": {"a": 1}}, {"finish_reason": "tool_calls"}],
                usage={"input_tokens": 9, "output_tokens": 2},
                run={"iteration": number},
                run_id=f"r{number}",
            )
            session.append(
                {
                    "role": "tool",
                    "tool_call_id": "c",
                    "content": f"A-{number}417 is there. " * (1, 80, 4_000)[number] + NOISE[: 6_000 * number],
                },
                {"role": "assistant", "content": "It is there.", "reasoning_content": "hm"},
            )
        session.append({"role": "user", "content": [{"text": "and now"}]}, format="bedrock_converse")
        session.append({"role": "assistant", "content": [{"type": "text", "text": "so"}]}, format="anthropic")
        session.compress(keep_loops=1)
        session.patch_agent({"iteration": 9, "pending_action": {"tool": "x"}})
        session.decide_pending("approve")
        session.put_state({"replaced": [None]}, action="handover")
        session.patch_state([{"op": "add", "path": "/b", "value": 2}])
        session.record("noted", agent_id="main", metadata={"why": None})
        session.update(title="Renamed", policy="run_loops")
        session.rewind(9)
        session.append({"role": "user", "content": "more"})
        session.compress(keep_loops=0)
        session.redact(5)
        log.run_jobs()
        session.discard_summary()
        log.run_jobs()
        session.patch_agent({"pending_action": {"tool": "y"}})
        return members(exported(session))


@cache
def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in world()["sessions/s/log.jsonl"].splitlines()]


def forged(change: Callable[[list[dict[str, Any]]], None]) -> bytes:
    """The file with another log, whose hashes all follow."""
    result, changed = world(), copy.deepcopy(lines())
    change(changed)
    previous = GENESIS
    for line in changed:
        for place, event in _held_again(line):
            content = encode_json(line["payloads"][place])
            event["@"] = [place, len(content), digest_of(content)]
        item = {"sk": commit_sort_key(line["position"]), **line["header"]}
        item |= {name: bytes.fromhex(value) for name, value in line["bytes"].items()}
        events = [line_digest(encode_json(event)) for event in line["events"]]
        previous = chain_hash(previous, hashed_header(str(item["sk"]), item), events)
        line["bytes"]["h"] = previous.hex()
    manifest = json.loads(result["manifest.json"])
    manifest["sessions"][0]["hash"] = previous.hex()
    log = b"".join(json.dumps(line).encode() + b"\n" for line in changed)
    return zipped({**result, "sessions/s/log.jsonl": log, "manifest.json": json.dumps(manifest).encode()})


def held_payloads(line: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for event in line["events"]:
        result = event.get("@") if isinstance(event, dict) else None
        if (
            isinstance(result, list)
            and [type(item) for item in result] == [str, int, str]
            and result[0] in line["payloads"]
        ):
            yield result[0], event


_held_again = held_payloads
"""Payloads whose digests a forgery gets right."""
