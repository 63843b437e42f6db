"""Converts Strands messages to messages of the log and back: `bedrock_converse`, with bytes in base64 as in the HTTP API.

Fields that this format lacks are stored in the message's metadata.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, cast

from strands.types.content import Message
from strands.types.session import SessionMessage, decode_bytes_values, encode_bytes_values

from turnlog.agents.graph_state.messages import WITH_IDS
from turnlog.sessions.message_models import StoredMessage

FORMAT = "bedrock_converse"
KEPT = "strands"
assert KEPT in WITH_IDS  # noqa: S101 - alignment knows these messages by their ids
_BODY = ("role", "content")
_MAX_ID = 128
_MEDIA = ("image", "document", "video", "audio")


def body_of(message: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the body of a message for the log, and the metadata that `message_of` needs to restore it."""
    places = list[list[str | int]]()
    body = {name: _plain(message[name], (name,), places) for name in _BODY if name in message}
    rest = {name: value for name, value in message.items() if name not in (*_BODY, "tracking_id")}
    kept: dict[str, Any] = {}
    if places:
        kept["bytes"] = places
    if rest:
        kept["rest"] = encode_bytes_values(rest)
    return body, kept


def meta_of(message: Mapping[str, Any], kept: Mapping[str, Any], agent_id: str) -> dict[str, Any]:
    """Return the fields of a message beside its body: author, metadata, and its tracking id as message id."""
    meta: dict[str, Any] = {"author": agent_id, "metadata": {KEPT: dict(kept)}}
    tracking_id = message.get("tracking_id")
    if isinstance(tracking_id, str) and 0 < len(tracking_id) <= _MAX_ID:
        meta["id"] = tracking_id
    elif tracking_id is not None:
        meta["metadata"][KEPT]["tracking_id"] = tracking_id
    return meta


def message_of(stored: StoredMessage) -> Message:
    """Return a stored message as Strands gave it."""
    kept = (stored.metadata or {}).get(KEPT) or {}
    message: dict[str, Any] = _copied(stored.body)
    for place in kept.get("bytes", ()):
        holder: Any = message
        for step in place[:-1]:
            holder = holder[step]
        holder[place[-1]] = base64.b64decode(holder[place[-1]])
    tracking_id = stored.id if stored.id is not None else kept.get("tracking_id")
    if tracking_id is not None:
        message["tracking_id"] = tracking_id
    return cast("Message", message | decode_bytes_values(kept.get("rest", {})))


def session_message_of(stored: StoredMessage, message_id: int) -> SessionMessage:
    """Return a stored message as a `SessionMessage` of Strands."""
    kept = (stored.metadata or {}).get(KEPT) or {}
    return SessionMessage(
        message_of(stored),
        message_id,
        created_at=kept.get("created_at", stored.created_at),
        updated_at=kept.get("updated_at", stored.created_at),
    )


def sendable(body: Mapping[str, Any]) -> Message:
    """Return a message of a window with its base64 fields decoded to bytes, as Strands sends them."""
    return cast("Message", {**body, "content": [_block(block) for block in body["content"]]})


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    decoded = dict(block)
    for kind in _MEDIA:
        source = (decoded.get(kind) or {}).get("source") or {}
        if isinstance(source.get("bytes"), str):
            decoded[kind] = {**decoded[kind], "source": {**source, "bytes": base64.b64decode(source["bytes"])}}
    reasoning = decoded.get("reasoningContent") or {}
    if isinstance(reasoning.get("redactedContent"), str):
        decoded["reasoningContent"] = {**reasoning, "redactedContent": base64.b64decode(reasoning["redactedContent"])}
    result = decoded.get("toolResult")
    if result is not None:
        decoded["toolResult"] = {**result, "content": [_block(part) for part in result["content"]]}
    return decoded


def _plain(value: Any, place: Sequence[str | int], places: list[list[str | int]]) -> Any:
    if isinstance(value, bytes | bytearray):
        places.append(list(place))
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {name: _plain(member, (*place, name), places) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member, (*place, index), places) for index, member in enumerate(value)]
    return value


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(member) for name, member in value.items()}
    return [_copied(member) for member in value] if isinstance(value, list) else value
