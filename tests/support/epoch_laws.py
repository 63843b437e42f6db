"""The laws of epochs: their windows only append, and neither memory nor the size of a page changes any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.effort import is_full
from tests.properties.building import Asked, Stored, first, request
from tests.properties.histories import History
from tests.support.prefix_laws import Blocks, without_frame
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.events import MessageEvent
from turnlog.log.reading import Located
from turnlog.providers.registry import CODECS
from turnlog.windows.assembly import Memory
from turnlog.windows.breaks import EpochStart
from turnlog.windows.build import Window, build
from turnlog.windows.plan import MessageList


def answers(history: History) -> list[int]:
    """The numbers of messages before each answer; the items of one answer are one."""
    roles = [CODECS[message.format].parse(message.body).role for message in history]
    starts = list[int]()
    for index, role in enumerate(roles):
        is_item = history[index].format == "openai_responses"
        continues = (
            is_item and index and history[index - 1].format == "openai_responses" and roles[index - 1] == "assistant"
        )
        if role == "assistant" and not continues:
            starts.append(index)
    return starts


@dataclass(frozen=True)
class Call:
    """A model call: the number of messages before it, and its window."""

    count: int
    window: Window


def calls(held: Stored, wanted: Asked) -> Iterator[Call]:
    """Yield the calls of a conversation. As in a session, a window goes on from earlier ones; in `make full` each begins anew.

    `assert_memory_changes_nothing` shows that both are the same."""
    memory = None if is_full() else Memory()
    for count in answers(held.history):
        begun = first(held, count)
        try:
            yield Call(count, build(MessageList(begun.sources, begun.total), request(wanted, begun.sources), memory))
        except BudgetTooSmallError:
            continue


def assert_appends(before: Call, after: Call, wanted: Asked) -> None:
    """The later window begins with all of the earlier one, block by block; a neutral text at its end apart."""
    assert after.window.system == before.window.system
    assert after.window.tools == before.window.tools
    old = Blocks(without_frame(before.window.messages, wanted)).flat()
    new = Blocks(after.window.messages).flat()
    assert new[: len(old)] == old, f"at {after.count}, the epoch of {after.window.epoch}, other than at {before.count}"


def assert_W11(held: Stored, wanted: Asked) -> int:
    """Assert the law at each call, and return the number of epochs."""
    made = [call for call in calls(held, wanted) if not _says_nothing(call.window)]
    epochs = {call.window.epoch for call in made}
    newest = dict[str, Call]()
    for call in made:
        before = newest.get(call.window.epoch)
        # What a format puts in the place of messages that there are not yet is no window to append to.
        if before is not None and call.window.prefix.reason != "first":
            assert_appends(before, call, wanted)
        newest[call.window.epoch] = call
    order = [call.window.epoch for call in made]
    assert all(order.index(epoch) + order.count(epoch) - 1 == _last(order, epoch) for epoch in epochs), (
        "an epoch came back"
    )
    return len(epochs)


def _last(order: list[str], epoch: str) -> int:
    return len(order) - 1 - order[::-1].index(epoch)


def _says_nothing(made: Window) -> bool:
    return any(part.reason == "nothing_said" for part in made.manifest.parts)


@dataclass
class Pages:
    """A log that is read a few messages at a time. Messages before the first loop, and pinned ones, are at hand."""

    held: Stored
    size: int
    first: int = -1
    has_all_kept: bool = True

    def __post_init__(self) -> None:
        self.first = max(0, len(self.held.sources) - self.size)

    @property
    def total(self) -> int:
        return self.held.total

    @property
    def sources(self) -> Sequence[Located]:
        return self.held.sources[self.first :]

    @property
    def kept(self) -> Sequence[Located]:
        older = self.held.sources[: self.first]
        return [source for source in older if not source.loop or source.event.envelope.pin]

    @property
    def unread(self) -> int:
        return self.first - len(self.kept)

    def read_on(self) -> bool:
        is_more, self.first = self.first > 0, max(0, self.first - self.size)
        return is_more

    def fetch(self, events: list[MessageEvent]) -> dict[int, MessageEvent]:
        return {event.position: event for event in events}

    def breaks(self) -> Sequence[EpochStart]:
        return ()


def build_or_need(held: Stored, wanted: Asked, memory: Memory | None = None) -> Window | int:
    """Return the window, or the tokens that it needs where the budget is too small."""
    try:
        return build(MessageList(held.sources, held.total), request(wanted), memory)
    except BudgetTooSmallError as error:
        return int(error.details["needed"])


def assert_memory_changes_nothing(held: Stored, wanted: Asked, other: Asked) -> None:
    """Assert that windows of a growing log, with two requests in turns, do not depend on what earlier ones made."""
    memory = Memory()
    for count in range(1, len(held.sources) + 1):
        begun = first(held, count)
        for asked_now in (wanted, replace(other, format=wanted.format)):
            assert build_or_need(begun, asked_now, memory) == build_or_need(begun, asked_now)
