"""The stored form of events: a line of JSON with short keys for each. Only `turnlog.log.read_lines` reads it."""

from __future__ import annotations

from dataclasses import replace

from turnlog.core.calls import MessageOutline
from turnlog.core.events import (
    CloseEvent,
    CreateEvent,
    DiscardEvent,
    Envelope,
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
from turnlog.core.json_values import JsonObject, JsonValue, encode_json
from turnlog.core.session_settings import SessionSettings
from turnlog.log.cards import make_card

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
}


def message_line(event: MessageEvent, *, card: JsonObject | None = None) -> JsonObject:
    """Return the stored form of a message: with its body, or with its payload's place and card."""
    line: JsonObject = {"k": "m", "f": event.format, "t": event.tokens}
    default = Envelope()
    for short, name in ENVELOPE.items():
        value = getattr(event.envelope, name)
        if value != getattr(default, name) and not (short == "md" and event.payload):
            line[short] = value
    if event.opens_loop:
        line["o"] = event.opens_loop
    if event.head_tokens is not None:
        line["h"] = event.head_tokens
    if event.notes is not None:
        line |= _notes_fields(event.notes)
    if event.recall is not None:
        line["rc"] = [list(event.recall.answers), list(event.recall.places)]
    if event.payload is None:
        line["b"] = event.body
    else:
        line |= payload_fields(event.payload) | ({"c": card} if card is not None else {})
    return line


def message_payload(event: MessageEvent) -> bytes:
    """Return the payload of a message: its body and metadata, which may be large."""
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
    """Return the stored form of a summary, which `summary_from` reads."""
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


def payload_content(event: Event) -> bytes:
    """Return the payload of an event that is stored out of line when it is large; empty for events without one."""
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


def stored_line(  # noqa: C901 - a case for each kind of event
    event: Event, payload: Payload | None, facts: MessageOutline | None
) -> JsonObject:
    """Return the stored line of an event. With ``payload``, the line has its address instead of the contents."""
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
