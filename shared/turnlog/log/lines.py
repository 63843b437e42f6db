"""The stored form of events: one line of JSON with short keys each. This module is the only one that knows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from turnlog.domain.events import (
    CloseEvent,
    CreateEvent,
    DiscardEvent,
    Envelope,
    Event,
    ForkEvent,
    Kept,
    MessageEvent,
    NoteEvent,
    Notes,
    Payload,
    RewindEvent,
    SettingsEvent,
    StateEvent,
    SummaryEvent,
)
from turnlog.domain.facts import Facts
from turnlog.domain.jsonvalue import JsonObject, JsonValue, encode_json
from turnlog.domain.rounds import Branch
from turnlog.domain.session import SCHEMA_VERSION, Settings
from turnlog.domain.view import Stretch
from turnlog.log.cards import make_card

_ENVELOPE = {
    "i": "id",
    "st": "status",
    "pi": "pin",
    "au": "author",
    "ca": "created_at",
    "md": "metadata",
    "fr": "finish_reason",
    "er": "is_error",
    "or": "origin",
}


def message_line(event: MessageEvent, *, card: JsonObject | None = None) -> JsonObject:
    """The stored form of a message: with its body, or with its payload's place and card."""
    line: JsonObject = {"k": "m", "f": event.format, "t": event.tokens}
    default = Envelope()
    for short, name in _ENVELOPE.items():
        value = getattr(event.envelope, name)
        if value != getattr(default, name) and not (short == "md" and event.payload):
            line[short] = value
    if event.opens_loop:
        line["o"] = event.opens_loop
    if event.head_tokens is not None:
        line["h"] = event.head_tokens
    if event.notes is not None:
        line |= _notes_fields(event.notes)
    if event.payload is None:
        line["b"] = event.body
    else:
        line |= payload_fields(event.payload) | ({"c": card} if card is not None else {})
    return line


def message_payload(event: MessageEvent) -> bytes:
    """What is stored out of line: the parts of a message that may be large."""
    parts: JsonObject = {"b": event.body}
    if event.envelope.metadata is not None:
        parts["md"] = event.envelope.metadata
    return encode_json(parts)


def state_line(event: StateEvent) -> JsonObject:
    line: JsonObject = {"k": "s", "a": event.action, "q": event.previous, "n": event.count}
    if event.agent_id is not None:
        line["g"] = event.agent_id
    return line | (payload_fields(event.payload) if event.payload else _state_parts(event))


def state_payload(event: StateEvent) -> bytes:
    return encode_json(_state_parts(event))


def _state_parts(event: StateEvent) -> JsonObject:
    parts: JsonObject = {}
    if event.patch is not None:
        parts["p"] = event.patch
    if event.full is not None:
        parts["full"] = event.full
    if event.keys_after is not None and event.keys_before is not None:
        parts["ka"] = list(event.keys_after)
        if event.keys_before != event.keys_after:
            parts["kb"] = list(event.keys_before)
    return parts


def create_line(event: CreateEvent) -> JsonObject:
    line: JsonObject = {"k": "c", "sid": event.session_id}
    return line | (payload_fields(event.payload) if event.payload else _create_parts(event))


def create_payload(event: CreateEvent) -> bytes:
    return encode_json(_create_parts(event))


def _create_parts(event: CreateEvent) -> JsonObject:
    parts: JsonObject = {"set": settings_object(event.settings)}
    if event.state is not None:
        parts["state"] = event.state
    return parts


def settings_line(event: SettingsEvent) -> JsonObject:
    line: JsonObject = {"k": "p", "ch": list(event.changed)}
    return line | (payload_fields(event.payload) if event.payload else _settings_parts(event))


def settings_payload(event: SettingsEvent) -> bytes:
    return encode_json(_settings_parts(event))


def _settings_parts(event: SettingsEvent) -> JsonObject:
    return {"set": settings_object(event.settings)}


def summary_line(event: SummaryEvent) -> JsonObject:
    """The stored form of a summary; `summary_from` reads it back."""
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
    return line | (payload_fields(event.payload) if event.payload else _summary_parts(event))


def discard_line(event: DiscardEvent) -> JsonObject:
    return {"k": "d", "bs": event.summary}


def close_line() -> JsonObject:
    return {"k": "e"}


def rewind_line(event: RewindEvent) -> JsonObject:
    line: JsonObject = {"k": "r", "to": event.to, "vw": [list(stretch) for stretch in event.closed]}
    return line | ({"sn": event.snapshot_id} if event.snapshot_id is not None else {})


def fork_line(event: ForkEvent) -> JsonObject:
    line: JsonObject = {
        "k": "f",
        "sid": event.session_id,
        "of": event.parent,
        "at": event.at,
        "vw": [list(stretch) for stretch in event.closed],
    }
    return line | (payload_fields(event.payload) if event.payload else _fork_parts(event))


def fork_payload(event: ForkEvent) -> bytes:
    return encode_json(_fork_parts(event))


def _fork_parts(event: ForkEvent) -> JsonObject:
    return {"set": settings_object(event.settings)}


def summary_payload(event: SummaryEvent) -> bytes:
    return encode_json(_summary_parts(event))


def _summary_parts(event: SummaryEvent) -> JsonObject:
    parts: JsonObject = {"x": event.text, "fx": [list(fact) for fact in event.facts]}
    if event.kept:
        parts["kp"] = [[kept.commit, kept.position] for kept in event.kept]
    if event.outline:
        parts["ow"] = event.outline
    return parts


def summary_from(line: dict[str, Any], *, position: int, parts: dict[str, Any] | None = None) -> SummaryEvent:
    """A summary from its stored line, and its payload's content where that is out of line."""
    held = parts if parts is not None else line
    first, last, first_loop, last_loop = line["r"]
    messages, source_tokens = line["ct"]
    level, *tree = line.get("tr", (0,))
    return SummaryEvent(
        position=position,
        first=first,
        last=last,
        first_loop=first_loop,
        last_loop=last_loop,
        base=line["bs"],
        covers=line["hc"],
        text=held.get("x", ""),
        facts=tuple((place, value) for place, value in held.get("fx", ())),
        tokens=line["t"],
        source_tokens=source_tokens,
        messages=messages,
        summariser=line["by"],
        kept=tuple(Kept(commit, place) for commit, place in held.get("kp", ())),
        outline=held.get("ow", ""),
        level=level,
        tree=tuple(Branch(*branch) for branch in tree),
        payload=payload_of(line),
    )


def note_line(event: NoteEvent) -> JsonObject:
    line: JsonObject = {"k": "h", "a": event.action}
    if event.agent_id is not None:
        line["g"] = event.agent_id
    return line | (payload_fields(event.payload) if event.payload else _note_parts(event))


def note_payload(event: NoteEvent) -> bytes:
    return encode_json(_note_parts(event))


def _note_parts(event: NoteEvent) -> JsonObject:
    parts: JsonObject = {"ka": list(event.keys)}
    return parts | ({"md": event.metadata} if event.metadata is not None else {})


def settings_object(settings: Settings) -> JsonObject:
    """Settings as JSON, what is default left out."""
    default, found = Settings(), dict[str, JsonValue]()
    for name in Settings.__slots__:
        value = getattr(settings, name)
        if value != getattr(default, name):
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def settings_from(found: dict[str, Any]) -> Settings:
    known = {name: found[name] for name in Settings.__slots__ if name in found}
    if "tools" in known:
        known["tools"] = tuple(known["tools"])
    return Settings(**known)


def payload_fields(payload: Payload) -> JsonObject:
    return {"@": [payload.place, payload.size_bytes, payload.digest]}


def payload_of(line: dict[str, Any]) -> Payload | None:
    found = line.get("@")
    return Payload(*found) if found else None


Upcaster: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTERS: dict[int, Upcaster] = {}
"""From each older schema version to the next. Version 1 is the first: the log of 2026-11."""


def upcast(line: dict[str, Any], version: int) -> dict[str, Any]:
    """A stored line of an older schema version, as this version writes it."""
    while version < SCHEMA_VERSION:
        line = UPCASTERS[version](line)
        version += 1
    return line


def read_event(
    line: dict[str, Any],
    *,
    position: int,
    payload: Payload | None,
    parts: dict[str, Any] | None,
    card: Callable[[dict[str, Any]], Facts],
) -> Event:
    """An event from its stored line. ``parts`` is the content of its ``payload`` when that has been fetched."""
    held = parts if payload is not None else line
    kind = line["k"]
    if kind == "m":
        return MessageEvent(
            position=position,
            format=line["f"],
            tokens=line["t"],
            envelope=_read_envelope(line, held),
            body=held["b"] if held is not None else None,
            opens_loop=line.get("o", 0),
            head_tokens=line.get("h"),
            facts=card(line["c"]) if "c" in line else None,
            payload=payload,
            notes=_read_notes(line),
            redacted="rx" in line,
        )
    if kind == "s":
        return _read_state(line, held or {}, position, payload)
    if kind == "h":
        held = held or {}
        return NoteEvent(position, line["a"], line.get("g"), held.get("md"), tuple(held.get("ka", ())), payload)
    if kind == "y":
        return summary_from(line, position=position, parts=parts)
    if kind == "d":
        return DiscardEvent(position, line["bs"])
    if kind == "e":
        return CloseEvent(position)
    if kind == "r":
        return RewindEvent(position, line["to"], _stretches(line), line.get("sn"))
    held = held or {}
    if kind == "f":
        settings = settings_from(held.get("set", {}))
        return ForkEvent(position, line["sid"], line["of"], line["at"], settings, _stretches(line), payload)
    if kind == "p":
        return SettingsEvent(position, settings_from(held.get("set", {})), tuple(line["ch"]), payload)
    return CreateEvent(position, line["sid"], settings_from(held.get("set", {})), held.get("state"), payload)


def _read_state(line: dict[str, Any], held: dict[str, Any], position: int, payload: Payload | None) -> StateEvent:
    after = tuple(held["ka"]) if "ka" in held else None
    return StateEvent(
        position=position,
        action=line["a"],
        patch=held.get("p"),
        previous=line["q"],
        count=line["n"],
        agent_id=line.get("g"),
        full=held.get("full"),
        payload=payload,
        keys_before=tuple(held["kb"]) if "kb" in held else after,
        keys_after=after,
    )


def _stretches(line: dict[str, Any]) -> tuple[Stretch, ...]:
    return tuple((first, last) for first, last in line["vw"])


def _read_envelope(line: dict[str, Any], held: dict[str, Any] | None) -> Envelope:
    found = {name: line[short] for short, name in _ENVELOPE.items() if short in line}
    if held is not None and "md" in held:
        found["metadata"] = held["md"]
    return Envelope(**found)


def parse_lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.decode("utf-8", "surrogatepass").split("\n")]


def opened_loops(lines: Sequence[dict[str, Any]]) -> list[int]:
    """The numbers of the loops that begin in a commit with these lines."""
    return [line["o"] for line in lines if line["k"] == "m" and "o" in line]


def _notes_fields(notes: Notes) -> JsonObject:
    fields: JsonObject = {}
    if notes.warnings:
        fields["w"] = [list(warning) for warning in notes.warnings]
    if notes.usage:
        fields["u"] = list(notes.usage)
    if notes.window:
        fields["wn"] = list(notes.window)
    return fields


def _read_notes(line: dict[str, Any]) -> Notes | None:
    if not ("w" in line or "u" in line or "wn" in line):
        return None
    return Notes(
        warnings=tuple((code, position, pointer) for code, position, pointer in line.get("w", ())),
        usage=tuple(line["u"]) if "u" in line else None,
        window=tuple(line["wn"]) if "wn" in line else None,
    )


def payload_content(event: Event) -> bytes:
    """What of an event may be stored out of line."""
    match event:
        case MessageEvent():
            return message_payload(event)
        case StateEvent():
            return state_payload(event)
        case SummaryEvent():
            return summary_payload(event)
        case CreateEvent():
            return create_payload(event)
        case SettingsEvent():
            return settings_payload(event)
        case NoteEvent():
            return note_payload(event)
        case ForkEvent():
            return fork_payload(event)
        case DiscardEvent() | CloseEvent() | RewindEvent():
            return b""


def stored_line(event: Event, payload: Payload | None, facts: Facts | None) -> JsonObject:
    """The line of an event, whose payload is out of line where one is given."""
    match event:
        case MessageEvent():
            card = make_card(facts) if payload is not None and facts is not None else None
            return message_line(replace(event, payload=payload), card=card)
        case StateEvent():
            return state_line(replace(event, payload=payload))
        case SummaryEvent():
            return summary_line(replace(event, payload=payload))
        case CreateEvent():
            return create_line(replace(event, payload=payload))
        case SettingsEvent():
            return settings_line(replace(event, payload=payload))
        case NoteEvent():
            return note_line(replace(event, payload=payload))
        case ForkEvent():
            return fork_line(replace(event, payload=payload))
        case DiscardEvent():
            return discard_line(event)
        case CloseEvent():
            return close_line()
        case RewindEvent():
            return rewind_line(event)
