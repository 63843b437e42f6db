"""Cards: extracts of out-of-line payloads that commits hold.

A window is planned from cards and fetches only the payloads that it renders in full. A card has the first 700 characters of
the text, the calls with shortened arguments, the beginnings of the results, and the ledger. Its size is limited. A message
with too many calls has no card (``None``) and is always fetched.
"""

from __future__ import annotations

from typing import Any

from turnlog.core.calls import CallOutline, MessageOutline, ResultOutline
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.windows.ledger import EXTRACTOR_VERSION, bounded, ledger_of_facts

HEAD_CHARS = 700
MAX_CARD_BYTES = 8 * 1024
_MAX_CALLS = 64
_MAX_NAME = 128
_ARGUMENT_CHARS = (200, 60, 16)


def make_card(facts: MessageOutline) -> JsonObject | None:
    """Return the card for a message's outline, of at most `MAX_CARD_BYTES`.

    Returns None when the message has too many calls or results.
    """
    if len(facts.calls) > _MAX_CALLS or len(facts.results) > _MAX_CALLS:
        return None
    ledger = bounded(ledger_of_facts(facts))
    for arguments in _ARGUMENT_CHARS:
        card = _card(facts, ledger, arguments)
        if len(encode_json(card)) <= MAX_CARD_BYTES:
            return card
        ledger = ledger[: len(ledger) // 4]
    return None


def read_card(card: dict[str, Any]) -> MessageOutline:
    """Return the outline that a card holds."""
    return MessageOutline(
        role=card["r"],
        head=card.get("x", ""),
        chars=card.get("n", 0),
        calls=tuple(CallOutline(key, name, arguments) for key, name, arguments in card.get("c", ())),
        results=tuple(
            ResultOutline(key, name, bool(flags & 1), bool(flags & 2), text, chars)
            for key, name, flags, text, chars in card.get("o", ())
        ),
        ledger=tuple(card.get("l", ())),
        given_role=card.get("g", card["r"]),
        name=card.get("a", ""),
    )


def _card(facts: MessageOutline, ledger: tuple[str, ...], argument_chars: int) -> JsonObject:
    preview = HEAD_CHARS // max(1, len(facts.results))
    card: JsonObject = {"r": facts.role, "n": facts.chars}
    if facts.given_role != facts.role:
        card["g"] = facts.given_role[:_MAX_NAME]
    if facts.name:
        card["a"] = facts.name[:_MAX_NAME]
    if facts.head:
        card["x"] = facts.head[:HEAD_CHARS]
    if facts.calls:
        card["c"] = [
            [call.key, call.name[:_MAX_NAME], shortened(call.arguments, argument_chars)] for call in facts.calls
        ]
    if facts.results:
        card["o"] = [
            [
                result.key,
                result.name[:_MAX_NAME],
                result.by_name + 2 * result.is_error,
                result.text[:preview],
                result.chars,
            ]
            for result in facts.results
        ]
    if ledger:
        card["l"] = list(ledger)
        card["lv"] = EXTRACTOR_VERSION
    return card


def shortened(text: str, chars: int) -> str:
    """Return the text, cut to ``chars`` characters and an ellipsis when it is longer."""
    return text if len(text) <= chars else text[:chars] + "…"
