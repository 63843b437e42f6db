"""The rules of preserved thinking: a signed block is valid behind what it was made behind, and nowhere else.

Anthropic and Bedrock compare system text, tools and all content before a block with the request that the block was made by. They
refuse a block behind anything else, and a block whose predecessor is missing while an older one is there
(https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks).

A fingerprint stands for a request. Take it when you send the request, and keep it with the signatures of the answer's blocks.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from turnlog.linter.rules import Findings, Rule, Violation

SIGNED_FORMATS = ("anthropic", "bedrock_converse")
"""The formats with signed thinking."""
_SOURCE = (
    "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/fix-bound-to-a-different-conversation"
)
_ANSWER = (
    "400: messages.….content.…: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
RULES: Mapping[str, Rule] = {
    "thinking_bound_elsewhere": Rule(
        _ANSWER,
        "Send what stood before the block exactly as it was, or leave out this block and all thinking before it; "
        '`"block_binding": {"prefix_mismatch_behavior": "drop_block"}` in `thinking` lets the provider leave it out.',
        _SOURCE,
    ),
    "thinking_left_out": Rule(
        _ANSWER,
        "Send the thinking between the two blocks too, or leave out all thinking before the later one.",
        _SOURCE,
    ),
}


class _Block(NamedTuple):
    """A thinking block of a request: its place, its signature, and the fingerprints that it may have been made behind.

    ``previous`` is the signature of the thinking before it in the request, if any.
    """

    pointer: str
    signature: str
    prefixes: frozenset[str]
    previous: str | None


def fingerprint(messages: object, *, format: str, system: object = None, tools: object = None) -> str | None:
    """Return the fingerprint of a request: what the thinking of its answer is bound to. None for a format without it."""
    if format not in SIGNED_FORMATS:
        return None
    reader = _Reader(system, tools)
    blocks = list(reader.blocks(messages))
    return f"{reader.prefix}.{_digest(blocks[-1].signature) if blocks else ''}"


def check(
    messages: object, made_behind: Mapping[str, str], *, format: str, system: object = None, tools: object = None
) -> list[Violation]:
    """Return a violation for each thinking block that the provider would refuse.

    ``made_behind`` has the fingerprint of the request that each block was made by, by the block's signature (``data`` of a
    redacted one). Blocks that it does not have are not checked.
    """
    findings = Findings(RULES)
    if format not in SIGNED_FORMATS:
        return []
    for block in _Reader(system, tools).blocks(messages):
        fingerprint = made_behind.get(block.signature)
        if fingerprint is None:
            continue
        prefix, _, previous = fingerprint.partition(".")
        if prefix not in block.prefixes:
            message = "the request before this thinking is not the one that it was made behind"
            findings.add("thinking_bound_elsewhere", block.pointer, message)
        elif (
            block.previous is not None
            and fingerprint != made_behind.get(block.previous)
            and previous != _digest(block.previous)
        ):
            message = "thinking that stood before this block is missing, while older thinking is there"
            findings.add("thinking_left_out", block.pointer, message)
    return findings.violations


class _Reader:
    """Reads a request; ``prefix`` is the digest of all that it has read but thinking."""

    def __init__(self, system: object, tools: object) -> None:
        self.prefix = _digest(_canonical([_blocks_of(system), tools or []]))

    def blocks(self, messages: object) -> Iterator[_Block]:
        """Yield the thinking blocks. One that is behind other content of its answer may have been made behind any of it."""
        prefixes, previous, role = set[str](), None, None
        for index, message in enumerate(messages if isinstance(messages, list) else ()):
            if not isinstance(message, Mapping):
                continue
            if message.get("role") != role:
                prefixes, role = {self.prefix}, message.get("role")
            for place, block in enumerate(_blocks_of(message.get("content"))):
                signature = _signature(block)
                if signature is not None:
                    pointer = f"/messages/{index}/content/{place}"
                    yield _Block(pointer, signature, frozenset(prefixes), previous)
                    previous = signature
                elif block is not None:
                    self.prefix = _digest(f"{self.prefix} {role} {_canonical(block)}")
                    prefixes.add(self.prefix)


def _blocks_of(content: object) -> Sequence[Any]:
    """Return content as blocks without marks of the prompt cache; None in the place of a block that is only such a mark."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else []
    return [None if isinstance(block, dict) and "cachePoint" in block else _without_marks(block) for block in blocks]


def _without_marks(block: object) -> object:
    return {key: block[key] for key in block if key != "cache_control"} if isinstance(block, dict) else block


def _signature(block: Any) -> str | None:
    """Return what identifies a signed thinking block; None for another block."""
    if not isinstance(block, dict):
        return None
    if block.get("type") in ("thinking", "redacted_thinking"):
        return _text_of(block.get("signature") or block.get("data"))
    reasoning = block.get("reasoningContent")
    if not isinstance(reasoning, dict):
        return None
    text = reasoning.get("reasoningText")
    return _text_of(text.get("signature") if isinstance(text, dict) else reasoning.get("redactedContent"))


def _text_of(signature: object) -> str | None:
    """Return a signature as text: an SDK gives bytes for what the HTTP API has in base64."""
    if isinstance(signature, bytes):
        return base64.b64encode(signature).decode("ascii")
    return signature if isinstance(signature, str) else None


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
