"""Windows over drawn histories, built by the pure core: with envelopes, which a plain list of messages has no place for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tests.properties.histories import Body, Format, Given, History
from turnlog.core.calls import outline_of
from turnlog.core.events import HEAD_TOKEN_CHARS, Envelope, MessageEvent
from turnlog.core.loops import Arrival, Flow, accept
from turnlog.core.models import Recall
from turnlog.core.window_parts import OthersCalls
from turnlog.engines.token_counters import TiktokenCounter
from turnlog.log.reading import Located
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import WINDOW_OVERHEAD, count_head, count_message, count_tools
from turnlog.search.fts5 import Fts5SearchEngine
from turnlog.search.session import ListSearch
from turnlog.windows.assembly import Memory
from turnlog.windows.budgets import Budget
from turnlog.windows.build import Window, build
from turnlog.windows.plan import MessageList
from turnlog.windows.policy import policy_of
from turnlog.windows.request import WindowRequest, system_cost, with_recall

AMPLE = 10_000_000
PRESETS = ("default", "run_loops", "classic", "turns", "tokens", "buffer", "full", "recall")


class _Remembering:
    """Counts every text once: windows of one history say the same things again and again."""

    name = "o200k_base"

    def __init__(self) -> None:
        self._counter = TiktokenCounter()
        self._known = dict[str, int]()

    def count(self, text: str) -> int:
        if text not in self._known:
            if len(self._known) > 5_000:
                self._known.clear()
            self._known[text] = self._counter.count(text)
        return self._known[text]


COUNTER = _Remembering()
_SEARCH = Fts5SearchEngine()
TOOLS: tuple[Body, ...] = (
    {
        "type": "function",
        "function": {"name": "search", "description": "Finds.", "parameters": {"type": "object", "properties": {}}},
    },
)


@dataclass(frozen=True)
class Asked:
    """What is asked of a window. ``policy`` is a name, or a body as JSON."""

    policy: str = "default"
    budget: int = AMPLE
    format: Format = "openai_chat"
    answer_open_calls: bool = False
    system: str | None = None
    tools: tuple[Body, ...] = ()
    others_calls: OthersCalls = "calls"
    recall: Recall = "never"


@dataclass(frozen=True)
class Stored:
    """A history as the log would hand it to a window: sources in order, and the flow at its end."""

    history: History
    sources: tuple[...]
    flow: Flow

    @property
    def total(self) -> int:
        return self.flow.tokens

    def at(self, position: int) -> Given:
        return self.history[position - 1]

    def loop_of(self, position: int) -> int:
        return self.sources[position - 1].loop


def stored(history: Sequence[Given]) -> Stored:
    """The history with positions from 1, counted and divided into loops as at append."""
    flow, sources = Flow(), list[Located]()
    for at, item in enumerate(history):
        position = at + 1
        message = CODECS[item.format].parse(item.body)
        text, tokens = message.text, count_message(message, COUNTER)
        arrival = Arrival(position, at, message, outline_of(message), tokens, interrupted=item.interrupted)
        accepted = accept(flow, arrival)
        flow = accepted.flow
        event = MessageEvent(
            position=position,
            format=item.format,
            tokens=tokens,
            envelope=Envelope(status="interrupted" if item.interrupted else "complete", pin=item.pin),
            body=item.body,
            opens_loop=accepted.opens_loop,
            head_tokens=count_head(text, HEAD_TOKEN_CHARS, COUNTER) if len(text) > HEAD_TOKEN_CHARS else None,
        )
        sources.append(Located(event, flow.loop.number, position * 1000))
    return Stored(tuple(history), tuple(sources), flow)


def first(held: Stored, count: int) -> Stored:
    """The history as it was after so many messages."""
    sources = held.sources[:count]
    flow = replace(held.flow, tokens=sum(source.event.tokens for source in sources))
    return Stored(held.history[:count], sources, flow)


def window(held: Stored, asked: Asked, *, upto: int | None = None) -> Window:
    """The window of the first ``upto`` messages."""
    sources = held.sources[:upto]
    return build(MessageList(sources, sum(source.event.tokens for source in sources)), request(asked, sources))


def request(asked: Asked, sources: Sequence[Located] = ()) -> WindowRequest:
    """What is asked; ``sources`` are searched for the step recall."""
    policy = policy_of(json.loads(asked.policy) if asked.policy.startswith("{") else asked.policy)
    wanted = WindowRequest(
        policy=policy,
        budget=Budget(asked.budget, "given"),
        format=asked.format,
        system=asked.system,
        system_tokens=_system_tokens(asked.system) if asked.system is not None else 0,
        tools=asked.tools,
        tools_tokens=count_tools(asked.tools, COUNTER),
        answer_open_calls=asked.answer_open_calls,
        others_calls=asked.others_calls,
        recaller=ListSearch(_SEARCH, sources),
    )
    is_late = asked.recall == "auto" and policy.keeps_all
    return wanted if asked.recall == "never" else with_recall(wanted, is_late=is_late)


@cache
def _system_tokens(system: str) -> int:
    return system_cost(COUNTER.count(system))


def out_of_line(held: Stored) -> Stored:
    """The same history with every payload out of line: a window sees cards, and fetches what it renders whole."""
    from turnlog.log.payloads import make_card, read_card

    sources = list[Located]()
    for source in held.sources:
        assert source.event.body is not None
        card = make_card(outline_of(CODECS[source.event.format].parse(source.event.body)))
        facts = read_card(json.loads(json.dumps(card))) if card is not None else None
        sources.append(replace(source, event=replace(source.event, body=None, facts=facts)))
    return replace(held, sources=tuple(sources))


@dataclass(frozen=True)
class Cards(MessageList):
    """A list of messages whose payloads are stored separately."""

    bodies: Callable[[list[MessageEvent]], dict[int, MessageEvent]] = dict

    def fetch(self, events: list[MessageEvent]) -> dict[int, MessageEvent]:
        return self.bodies(events)


def window_by_cards(
    held: Stored, asked: Asked, fetched: list[int] | None = None, memory: Memory | None = None
) -> Window:
    """The window over `out_of_line`. ``fetched`` takes the positions of the payloads that it read."""

    def fetch(events: list[MessageEvent]) -> dict[int, MessageEvent]:
        if fetched is not None:
            fetched.extend(event.position for event in events)
        return {event.position: replace(event, body=held.sources[event.position - 1].event.body) for event in events}

    return build(Cards(out_of_line(held).sources, held.total, bodies=fetch), request(asked, held.sources), memory)


def recounted(built: Window, asked: Asked) -> int:
    """The tokens of all that is sent, counted afresh from what is sent."""
    codec = CODECS[asked.format]
    tokens = WINDOW_OVERHEAD + count_tools(built.tools, COUNTER)
    if built.system is not None:
        tokens += system_cost(COUNTER.count(built.system))
    return tokens + sum(count_message(codec.parse(message), COUNTER) for message in built.messages)


def texts(built: Window) -> str:
    """All text that is sent, as one, for finding marks: no JSON escapes in it but those of arguments."""
    result = list[str]()
    _collect(built.messages, result)
    return "\n".join(result)


def _collect(value: object, found: list[str]) -> None:
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, dict):
        for member in value.values():
            _collect(member, found)
    elif isinstance(value, list):
        for member in value:
            _collect(member, found)


def as_bytes(built: Window) -> bytes:
    from turnlog.core.json_values import encode_json

    return encode_json([built.messages, built.system, built.tools, built.tokens, str(built.manifest)])
