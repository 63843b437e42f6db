"""The stored form of events: a line of JSON with short keys for each. Only `turnlog.log.read_lines` reads it.

The line of a redacted event begins with the digest of the original line; no other line begins so. The chain hash covers digests
of lines, so the chain of a redacted log can still be verified.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnlog.core.events import (
    NO_ENVELOPE,
    CloseEvent,
    CreateEvent,
    DiscardEvent,
    Event,
    ForkEvent,
    MessageEvent,
    NoteEvent,
    Notes,
    Payload,
    RewindEvent,
    SettingsEvent,
    StateEvent,
    SummaryEvent,
)
from turnlog.core.json_values import JsonObject, JsonValue, encode_json, without_none
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_POSITION
from turnlog.core.messages import REDACTED
from turnlog.core.session_settings import SessionSettings
from turnlog.log.packing import REDACTED_LINE, line_digest
from turnlog.log.payloads import make_card

ENVELOPE = {
    "i": "id",
    "st": "status",
    "pi": "pin",
    "au": "author",
    "ca": "created_at",
    "md": "metadata",
    "fr": "finish_reason",
    "er": "is_error",
    "or": "origin",
    "pt": "parent",
    "ag": "agent_id",
}
_SUMMARY = b'{"k":"y"'
_OF_A_MESSAGE = ("t", "st", "pi", "er", "o", "h", "w", "u", "wn", "we", "rc", "pt", "ag")
_OF_A_HIDDEN_MESSAGE = ("t", "o", "pt", "ag")
_CONTENTS_OF_A_SUMMARY = ("x", "fx", "ow", "@")


def _message_line(event: MessageEvent, payload: Payload | None) -> JsonObject:
    """Return the stored form of a message: with its body, or with its payload's place and the card of its outline."""
    line: JsonObject = {"k": "m", "f": event.format, "t": event.tokens}
    for short, name in ENVELOPE.items() if event.envelope is not NO_ENVELOPE else ():
        value = getattr(event.envelope, name)
        if value != getattr(NO_ENVELOPE, name) and not (short == "md" and payload):
            line[short] = value
    if event.opens_loop:
        line["o"] = event.opens_loop
    if event.head_tokens is not None:
        line["h"] = event.head_tokens
    if event.notes is not None:
        line |= _notes_fields(event.notes)
    if event.recall is not None:
        line["rc"] = [list(event.recall.answers), list(event.recall.places)]
    if payload is None:
        line["b"] = event.body
    else:
        card = make_card(event.facts) if event.facts is not None else None
        line |= payload_fields(payload) | ({"c": card} if card is not None else {})
    return line


def _state_parts(event: StateEvent) -> JsonObject:
    parts: JsonObject = without_none({"p": event.patch, "full": event.full})
    if event.keys_after is not None and event.keys_before is not None:
        parts["ka"] = list(event.keys_after)
        if event.keys_before != event.keys_after:
            parts["kb"] = list(event.keys_before)
    return parts


def _settings_parts(event: SettingsEvent | ForkEvent) -> JsonObject:
    return {"set": settings_object(event.settings)}


def _summary_head(event: SummaryEvent) -> JsonObject:
    line: JsonObject = {
        "k": "y",
        "r": [event.first, event.last, event.first_loop, event.last_loop],
        "bs": event.base,
        "hc": event.covers,
        "t": event.tokens,
        "ct": [event.messages, event.source_tokens],
        "by": event.summariser,
    }
    if event.level or event.tree:
        branches: list[JsonValue] = [[branch.level, branch.position] for branch in event.tree]
        line["tr"] = [event.level, *branches]
    return line


def _summary_parts(event: SummaryEvent) -> JsonObject:
    parts: JsonObject = {"x": event.text, "fx": [list(fact) for fact in event.facts]}
    if event.kept:
        parts["kp"] = [[kept.commit, kept.position] for kept in event.kept]
    if event.parted is not None:
        parts["pk"] = [[kept.commit, kept.position] for kept in event.parted]
    if event.outline:
        parts["ow"] = event.outline
    return parts


def settings_object(settings: SessionSettings) -> JsonObject:
    """Return settings as JSON, without the fields that have their default."""
    default, fields = SessionSettings(), dict[str, JsonValue]()
    for name in SessionSettings.__slots__:
        value = getattr(settings, name)
        if value != getattr(default, name):
            fields[name] = list(value) if isinstance(value, tuple) else value
    return fields


def payload_fields(payload: Payload) -> JsonObject:
    return {"@": [payload.place, payload.size_bytes, payload.digest]}


def _notes_fields(notes: Notes) -> JsonObject:
    fields: JsonObject = {}
    if notes.warnings:
        fields["w"] = [list(warning) for warning in notes.warnings]
    if notes.usage:
        fields["u"] = list(notes.usage)
    if notes.window:
        fields["wn"] = list(notes.window)
    if notes.epoch:
        fields["we"] = notes.epoch
    return fields


_PARTS: Mapping[type[Event], Callable[[Any], JsonObject]] = {
    MessageEvent: lambda event: without_none({"md": event.envelope.metadata}) | {"b": event.body},
    StateEvent: _state_parts,
    SummaryEvent: _summary_parts,
    CreateEvent: lambda event: without_none({"set": settings_object(event.settings), "state": event.state}),
    SettingsEvent: _settings_parts,
    NoteEvent: lambda event: without_none({"ka": list(event.keys), "md": event.metadata}),
    ForkEvent: _settings_parts,
}
"""Type of event -> function that returns what a payload of one has, which is in its line when it is not large."""
_HEADS: Mapping[type[Event], Callable[[Any], JsonObject]] = {
    StateEvent: lambda event: without_none(
        {"k": "s", "a": event.action, "q": event.previous, "n": event.count, "g": event.agent_id}
    ),
    SummaryEvent: _summary_head,
    CreateEvent: lambda event: {"k": "c", "sid": event.session_id},
    SettingsEvent: lambda event: {"k": "p", "ch": list(event.changed)},
    NoteEvent: lambda event: without_none({"k": "h", "a": event.action, "g": event.agent_id}),
    ForkEvent: lambda event: {
        "k": "f",
        "sid": event.session_id,
        "of": event.parent,
        "at": event.at,
        "vw": list(map(list, event.closed)),
    },
    DiscardEvent: lambda event: {"k": "d", "bs": event.summary},
    CloseEvent: lambda _event: {"k": "e"},
    RewindEvent: lambda event: without_none(
        {"k": "r", "to": event.to, "vw": list(map(list, event.closed)), "sn": event.snapshot_id}
    ),
}
"""Type of event, messages apart -> function that returns what is always in the stored line of one."""


def _parts(event: Event) -> JsonObject:
    return _PARTS[type(event)](event) if type(event) in _PARTS else {}


def payload_content(event: Event, body: bytes | None = None) -> bytes:
    """Return an event's payload, stored out of line when it is large; empty for events without one. ``body``: see `encode_line`."""
    parts = _parts(event)
    return encode_line(parts, body) if parts else b""


def encode_line(line: JsonObject, body: bytes | None = None) -> bytes:
    """Encode a stored line. ``body`` is the JSON of a message's body, the line's last field, where it is known."""
    if body is None:
        return encode_json(line)
    before = encode_json({name: value for name, value in line.items() if name != "b"})[1:-1]
    return b"{" + (before + b"," if before else b"") + b'"b":' + body + b"}"


def stored_line(event: Event, payload: Payload | None) -> JsonObject:
    """Return the stored line of an event. With ``payload``, the line has its address instead of the contents."""
    if isinstance(event, MessageEvent):
        return _message_line(event, payload)
    return _HEADS[type(event)](event) | (payload_fields(payload) if payload is not None else _parts(event))


@lazy_dataclass(frozen=True, slots=True)
class Redacted:
    """A redaction of a message: its position, the digest of its original line, and the line that replaces it.

    Summaries behind ``noted``, the position of its entry in a log, were made without the text.
    """

    position: int
    digest: bytes
    line: bytes
    is_done: bool = False
    """Whether the message is overwritten already."""
    noted: int = MAX_POSITION

    def redact_lines(self, lines: Sequence[bytes], first: int) -> list[bytes]:
        """Return the lines of a commit that begins at ``first``, with the message and the summaries of it redacted."""
        return [self._of(line, first + index) for index, line in enumerate(lines)]

    def _of(self, line: bytes, position: int) -> bytes:
        if position == self.position:
            return self.line if line_digest(line) == self.digest else line
        if not self.position < position < self.noted or not line.startswith(_SUMMARY):
            return line
        parsed: dict[str, Any] = json.loads(line)
        if not parsed["r"][0] <= self.position <= parsed["r"][1]:
            return line
        kept = {name: parsed[name] for name in parsed if name not in _CONTENTS_OF_A_SUMMARY}
        return _redacted(line, kept | {"x": REDACTED, "fx": []}, parsed)


def redacted_message(line: bytes, format: str, body: JsonObject) -> bytes:
    """Return the redacted line of a message, with another body.

    Of the caller's fields only those stay that affect how the message is shown.
    """
    if line.startswith(REDACTED_LINE):
        return line
    parsed: dict[str, Any] = json.loads(line)
    kept = {name: parsed[name] for name in _OF_A_MESSAGE if name in parsed}
    return _redacted(line, {"k": "m", "f": format, **kept, "b": body}, parsed)


def hidden(line: bytes) -> bytes:
    """Return the redacted line of an event that is never visible; only its share of the totals stays."""
    if line.startswith(REDACTED_LINE):
        return line
    parsed: dict[str, Any] = json.loads(line)
    if parsed["k"] != "m":
        return _redacted(line, {"k": parsed["k"]}, {})
    kept = {name: parsed[name] for name in _OF_A_HIDDEN_MESSAGE if name in parsed}
    return _redacted(line, {"k": "m", "f": "turnlog", **kept, "b": {}}, {})


def place_left(line: bytes) -> str:
    """Return the place of a redacted event's former payload; empty when it had none."""
    return str(json.loads(line).get("rp", "")) if line.startswith(REDACTED_LINE) else ""


def _redacted(line: bytes, kept: JsonObject, before: dict[str, Any]) -> bytes:
    """Return a redacted line. ``rp`` keeps the payload's place, so that an interrupted deletion can be repeated."""
    left: JsonObject = {"rx": line_digest(line).hex(), **kept}
    return encode_json(left | ({"rp": before["@"][0]} if "@" in before else {}))
