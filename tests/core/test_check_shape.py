"""What is held against a class: every type that events and headers have, and a name for what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.core.errors import MalformedError
from turnlog.core.events import Envelope, KeptMessage, MessageEvent, Notes, Payload, StateEvent, SummaryEvent
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import Branch
from turnlog.snapshots.exchange import check_shape

MESSAGE = MessageEvent(
    1,
    "openai_chat",
    3,
    Envelope(),
    {"role": "user"},
    payload=Payload("R#1", 3, "ab"),
    notes=Notes((("a", 1, "/b"),), (1, 2)),
)
SUMMARY = SummaryEvent(
    *(9, 2, 3, 1, 1, 0, "ab", "text", ((2, "A-1"),), 3, 4, 2, "extractive"),
    kept=(KeptMessage(2, 2),),
    tree=(Branch(0, 9),),
)
STATE = StateEvent(4, "patch", [{"op": "add"}], 0, 1, keys_after=("a",))


def of(event: Any, **change: Any) -> Any:
    values = {name: getattr(event, name) for name in type(event).__slots__} | change
    return type(event)(**values)


@pytest.mark.parametrize("value", [MESSAGE, SUMMARY, STATE, of(STATE, patch={"a": 1}), SessionSettings(title="\ud83d")])
def test_what_is_as_its_class_says_is_taken(value: Any) -> None:
    check_shape(value, type(value))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (of(MESSAGE, tokens="3"), "tokens"),
        (of(MESSAGE, tokens=True), "tokens"),
        (of(MESSAGE, tokens=3.0), "tokens"),
        (of(MESSAGE, body=["role"]), "body"),
        (of(MESSAGE, envelope=None), "envelope"),
        (of(MESSAGE, envelope=Envelope(pin=1)), "envelope.pin"),  # type: ignore[arg-type]
        (of(MESSAGE, envelope=Envelope(status="lost")), "envelope.status"),  # type: ignore[arg-type]
        (of(MESSAGE, payload=Payload("R#1", None, "ab")), "payload.size_bytes"),  # type: ignore[arg-type]
        (of(MESSAGE, notes=Notes((("a", "1", "/b"),))), "notes.warnings"),  # type: ignore[arg-type]
        (of(MESSAGE, notes=Notes((), (1, 2, 3))), "notes.usage"),  # type: ignore[arg-type]
        (of(SUMMARY, facts=((2,),)), "facts"),
        (of(SUMMARY, kept=(KeptMessage(2, None),)), "kept.position"),  # type: ignore[arg-type]
        (of(SUMMARY, tree=(None,)), "tree"),
        (of(STATE, patch="x"), "patch"),
        (of(STATE, keys_after=["a"]), "keys_after"),
        (SessionSettings(recall="sometimes"), "recall"),  # type: ignore[arg-type]
        (SessionSettings(tools=("x",)), "tools"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_is_named(value: Any, name: str) -> None:
    with pytest.raises(MalformedError, match=rf"^{name} is not of type "):
        check_shape(value, type(value))
