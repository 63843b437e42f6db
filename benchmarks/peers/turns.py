"""The conversations: the same turns for every system, made from a fixed seed.

Texts are distinct sentences and records, not one line repeated: some systems compress, and a repeated line would flatter
them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

USER_BYTES, REPLY_BYTES, RESULT_BYTES = 300, 600, 3_000
CALLS_PER_TURN = 2
TOOL = "look_up_orders"
_MARK = re.compile(r"\[m\d{6}\]")

_OPENINGS = """Could you check whether|I was told last week that|Please find out why|It seems to me that|As far as I can see,
My colleague in the warehouse says|According to the confirmation,|The page still claims that|Before we go on, remember that
Since yesterday morning|What puzzles me is that|The carrier wrote to us that|In your last message you said|For the record,
If nothing else helps,|Unlike the previous order,|Our bookkeeping insists that|The customer on the phone believes
To be fair,|Judging by the tracking number,"""
_MIDDLES = """the parcel with the two lamps|invoice 4711 of the spring order|the replacement for the broken kettle
the second half of my delivery|a refund of the shipping costs|the address of the new office in Leeds|our discount for old buyers
the warranty of the coffee machine|the pallet that went to Rotterdam|the gift card from December|the subscription for filters
the courier's note about the gate|the spare part for the dishwasher|the signature on the receipt|the blue chair without armrests
the customs form for Norway|my request to change the date|the box that arrived wet|the voucher in the mail|the missing manual"""
_ENDINGS = """has not been entered in the system yet.|was sent back without any explanation.|should be settled before Friday noon.
needs a second look by somebody senior.|can be picked up at the counter from nine.|is on its way and due within three days.
was booked twice by mistake.|must carry the name of the company.|will be replaced at no charge.|got lost between two depots.
is cheaper than what was agreed.|arrived one day earlier than promised.|cannot be changed after dispatch.
was confirmed by telephone this morning.|depends on the stock in the northern hub.|is waiting for the payment to clear.
has to be signed for in person.|does not match the photograph.|was cancelled and ordered again.|went to the neighbour below."""
_CITIES = [
    "Leeds",
    "Lyon",
    "Turin",
    "Porto",
    "Gdansk",
    "Malmo",
    "Basel",
    "Ghent",
    "Bergen",
    "Split",
    "Cork",
    "Graz",
    "Brno",
    "Tartu",
    "Vigo",
    "Essen",
]
_STATES = [
    "packed",
    "shipped",
    "delivered",
    "returned",
    "held_at_customs",
    "awaiting_payment",
    "cancelled",
    "in_transit",
]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call and what the tool answers."""

    id: str
    query: str
    result: str

    @property
    def arguments(self) -> str:
        return json.dumps({"query": self.query})


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message, perhaps one reply that calls tools and their results, and the final reply."""

    user: str
    calls: tuple[Call, ...]
    reply: str

    @property
    def messages(self) -> int:
        """As a chat-completions client counts: the calling message and every result are messages."""
        return 2 + (1 + len(self.calls) if self.calls else 0)


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of conversation."""

    name: str
    title: str
    messages_per_turn: int
    calls: int

    def turns(self) -> Iterator[Turn]:
        """Yield turns without end, the same at each call."""
        texts, number = random.Random(7), 0
        while True:
            yield _turn(texts, number, self.calls)
            number += 1


CHAT = Profile("chat", f"Chat: a user message of {USER_BYTES} bytes, a reply of {REPLY_BYTES}", 2, 0)
AGENT = Profile(
    "agent",
    f"Agent: the same, with {CALLS_PER_TURN} tool calls in one reply and results of {RESULT_BYTES:,} bytes",
    3 + CALLS_PER_TURN,
    CALLS_PER_TURN,
)
PROFILES = (CHAT, AGENT)


def marks(text: str) -> list[str]:
    """Return the marks of messages in a text: each user message and final reply carries one of its own."""
    return _MARK.findall(text)


def marks_of(turn: Turn) -> set[str]:
    return {*marks(turn.user), *marks(turn.reply)}


def _turn(texts: random.Random, number: int, calls: int) -> Turn:
    made = [
        Call(id=f"call_{texts.getrandbits(96):024x}", query=f"orders {number}.{at}", result=_result(texts))
        for at in range(calls)
    ]
    user = _prose(texts, f"[m{2 * number:06}] ", USER_BYTES)
    reply = _prose(texts, f"[m{2 * number + 1:06}] ", REPLY_BYTES)
    return Turn(user, tuple(made), reply)


def _prose(texts: random.Random, start: str, size: int) -> str:
    parts = [texts.sample(re.split(r"[|\n]", words), 12) for words in (_OPENINGS, _MIDDLES, _ENDINGS)]
    return (start + " ".join(" ".join(sentence) for sentence in zip(*parts, strict=True)))[:size]


def _result(texts: random.Random) -> str:
    return _filled(lambda: json.dumps(_order(texts)), RESULT_BYTES)


def _order(texts: random.Random) -> dict[str, str | float]:
    return {
        "order": f"{texts.getrandbits(40):010X}",
        "placed": f"2026-{texts.randint(1, 12):02}-{texts.randint(1, 28):02}T{texts.randint(0, 23):02}:{texts.randint(0, 59):02}Z",
        "city": texts.choice(_CITIES),
        "status": texts.choice(_STATES),
        "total": texts.randint(499, 99_999) / 100,
        "note": texts.choice(re.split(r"[|\n]", _ENDINGS)),
    }


def _filled(line: Callable[[], str], size: int) -> str:
    text = line()
    while len(text) < size:
        text += "\n" + line()
    return text[:size]
