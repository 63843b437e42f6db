"""The reader of stored lines of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnlog.core.events import (
    NO_ENVELOPE,
    CloseEvent,
    CreateEvent,
    DiscardEvent,
    Envelope,
    Event,
    ForkEvent,
    KeptMessage,
    MessageEvent,
    NoteEvent,
    Notes,
    Payload,
    Recall,
    RewindEvent,
    SettingsEvent,
    StateEvent,
    SummaryEvent,
)
from turnlog.core.positions import Stretch
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import Branch
from turnlog.core.times import MINUTES_A_DAY
from turnlog.log.lines import ENVELOPE
from turnlog.log.payloads import read_card


def summary_from(line: dict[str, Any], *, position: int, parts: dict[str, Any] | None = None) -> SummaryEvent:
    """Return the summary in a stored line. ``parts`` is the content of its payload when that is out of line."""
    contents = parts if parts is not None else line
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
        text=contents.get("x", ""),
        facts=tuple((place, value) for place, value in contents.get("fx", ())),
        tokens=line["t"],
        source_tokens=source_tokens,
        messages=messages,
        summariser=line["by"],
        kept=tuple(KeptMessage(commit, place) for commit, place in contents.get("kp", ())),
        outline=contents.get("ow", ""),
        level=level,
        tree=tuple(Branch(*branch) for branch in tree),
        payload=payload_of(line),
        parted=tuple(KeptMessage(*place) for place in contents["pk"]) if "pk" in contents else None,
    )


def settings_from(fields: dict[str, Any]) -> SessionSettings:
    """Return the settings in a stored object. Unknown fields are ignored. Early objects have ``inactive_after_days``."""
    known = {name: fields[name] for name in SessionSettings.__slots__ if name in fields}
    if fields.get("inactive_after_days"):
        known.setdefault("inactive_after_minutes", fields["inactive_after_days"] * MINUTES_A_DAY)
    if "tools" in known:
        known["tools"] = tuple(known["tools"])
    return SessionSettings(**known)


def payload_of(line: dict[str, Any]) -> Payload | None:
    """Return the address of a line's out-of-line payload, or None."""
    address = line.get("@")
    return Payload(*address) if address else None


def read_event(line: dict[str, Any], *, position: int, payload: Payload | None, parts: dict[str, Any] | None) -> Event:
    """Return the event in a stored line. ``parts`` is the content of its ``payload`` when that has been fetched."""
    if line["k"] == "y":
        return summary_from(line, position=position, parts=parts)
    contents = parts if payload is not None else line
    if line["k"] == "m":
        return MessageEvent(
            position=position,
            format=line["f"],
            tokens=line["t"],
            envelope=_read_envelope(line, contents),
            body=contents["b"] if contents is not None else None,
            opens_loop=line.get("o", 0),
            head_tokens=line.get("h"),
            facts=read_card(line["c"]) if "c" in line else None,
            payload=payload,
            notes=_read_notes(line),
            redacted="rx" in line,
            recall=Recall(*map(tuple, line["rc"])) if "rc" in line else None,
        )
    return _READERS[line["k"]](line, contents or {}, position, payload)


def _read_state(line: dict[str, Any], contents: dict[str, Any], position: int, payload: Payload | None) -> StateEvent:
    after = tuple(contents["ka"]) if "ka" in contents else None
    return StateEvent(
        position=position,
        action=line["a"],
        patch=contents.get("p"),
        previous=line["q"],
        count=line["n"],
        agent_id=line.get("g"),
        full=contents.get("full"),
        payload=payload,
        keys_before=tuple(contents["kb"]) if "kb" in contents else after,
        keys_after=after,
    )


_READERS: Mapping[str, Callable[[dict[str, Any], dict[str, Any], int, Payload | None], Event]] = {
    "s": _read_state,
    "h": lambda line, contents, position, payload: NoteEvent(
        position, line["a"], line.get("g"), contents.get("md"), tuple(contents.get("ka", ())), payload
    ),
    "d": lambda line, _contents, position, _payload: DiscardEvent(position, line["bs"]),
    "e": lambda _line, _contents, position, _payload: CloseEvent(position),
    "r": lambda line, _contents, position, _payload: RewindEvent(
        position, line["to"], _stretches(line), line.get("sn")
    ),
    "f": lambda line, contents, position, payload: ForkEvent(
        position, line["sid"], line["of"], line["at"], settings_from(contents.get("set", {})), _stretches(line), payload
    ),
    "p": lambda line, contents, position, payload: SettingsEvent(
        position, settings_from(contents.get("set", {})), tuple(line["ch"]), payload
    ),
    "c": lambda line, contents, position, payload: CreateEvent(
        position, line["sid"], settings_from(contents.get("set", {})), contents.get("state"), payload
    ),
}
"""Kind of a line, messages and summaries apart -> function of line, contents, position and payload that returns the event."""


def _stretches(line: dict[str, Any]) -> tuple[Stretch, ...]:
    return tuple((first, last) for first, last in line["vw"])


def _read_envelope(line: dict[str, Any], contents: dict[str, Any] | None) -> Envelope:
    if ENVELOPE.keys().isdisjoint(line) and (contents is None or "md" not in contents):
        return NO_ENVELOPE
    fields = {name: line[short] for short, name in ENVELOPE.items() if short in line}
    if contents is not None and "md" in contents:
        fields["metadata"] = contents["md"]
    return Envelope(**fields)


def _read_notes(line: dict[str, Any]) -> Notes | None:
    if not ("w" in line or "u" in line or "wn" in line):
        return None
    return Notes(
        warnings=tuple((code, position, pointer) for code, position, pointer in line.get("w", ())),
        usage=tuple(line["u"]) if "u" in line else None,
        window=tuple(line["wn"]) if "wn" in line else None,
        epoch=line.get("we"),
    )
