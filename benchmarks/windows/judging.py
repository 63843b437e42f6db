"""What is wrong with a window: provider's rules, the task, and the values that the next tool calls need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.windows.histories import FORMAT, History, calls_in, said
from benchmarks.windows.values import identifiers_of, leaves_of
from turnlog.linter.rules import lint
from turnlog.providers.token_rules import WINDOW_OVERHEAD

_SAYING = ("user", "assistant", "tool")
_SAME_CHARS = 20
LARGE_TOKENS = 1_000
"""A tool result of so many tokens is large."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one tool call takes from before: identifiers that were said, and leaves that stood anywhere.

    ``said``: the leaves that stood in what was said; the others stood only in the arguments of earlier calls, so the model
    made them up itself once, and a call that is made again takes them all.
    """

    identifiers: tuple[str, ...]
    leaves: tuple[str, ...]
    said: frozenset[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A window judged. ``either``: calls that lose an identifier or a leaf; ``short``: those that lose single characters only."""

    tokens: int
    is_invalid: bool
    has_lost_task: bool
    identifiers: int
    leaves: int
    said: int
    either: int
    short: int


class Moment:
    """One model call of a history: what the windows for it are judged by. The same window is judged once."""

    def __init__(self, history: History, upto: int) -> None:
        self.history, self.upto = history, upto
        self.full = history.full(upto)
        self.task = history.task(upto)
        self.needs = self._needs()
        self._known = dict[tuple[int, ...], Verdict]()

    def large_result(self) -> int | None:
        """Return the number of the newest message, when it is a large tool result: `LARGE_TOKENS` at least."""
        history = self.history
        number = history.numbers[self.upto - 1]
        is_large = history.messages.sizes[number] >= LARGE_TOKENS
        return number if is_large and history.bodies[self.upto - 1].get("role") == "tool" else None

    def sent_of(self, number: int, window: Sequence[int]) -> int:
        """Return the tokens that a window sends of a tool result: of the last result in it, when that begins in the same way."""
        messages = self.history.messages
        sent = [item for item in window if messages.bodies[item].get("role") == "tool"]
        if not sent or messages.texts[sent[-1]][:_SAME_CHARS] != messages.texts[number][:_SAME_CHARS]:
            return 0
        return min(messages.sizes[number], messages.sizes[sent[-1]])

    @property
    def identifiers_needed(self) -> int:
        return sum(1 for need in self.needs if need.identifiers)

    @property
    def leaves_needed(self) -> int:
        return sum(1 for need in self.needs if need.leaves)

    @property
    def said_needed(self) -> int:
        return sum(1 for need in self.needs if need.said)

    @property
    def either_needed(self) -> int:
        return sum(1 for need in self.needs if need.identifiers or need.leaves)

    def judge(self, window: Sequence[int]) -> Verdict:
        key = tuple(window)
        if key not in self._known:
            self._known[key] = self._judged(key)
        return self._known[key]

    def _judged(self, window: tuple[int, ...]) -> Verdict:
        messages = self.history.messages
        lost = [
            (
                any(not messages.hold(window, value) for value in need.identifiers),
                [value for value in need.leaves if not messages.hold(window, value)],
            )
            for need in self.needs
        ]
        fixed = WINDOW_OVERHEAD + self.history.tools_tokens
        return Verdict(
            tokens=fixed + self.history.tokens(window),
            is_invalid=bool(lint([messages.bodies[number] for number in window], format=FORMAT)),
            has_lost_task=not self._has_task(window),
            identifiers=sum(1 for identifiers, _ in lost if identifiers),
            leaves=sum(1 for _, leaves in lost if leaves),
            said=sum(1 for need, (_, leaves) in zip(self.needs, lost, strict=True) if need.said.intersection(leaves)),
            either=sum(1 for identifiers, leaves in lost if identifiers or leaves),
            short=sum(
                1
                for identifiers, leaves in lost
                if leaves and not identifiers and all(len(leave) == 1 for leave in leaves)
            ),
        )

    def _has_task(self, window: tuple[int, ...]) -> bool:
        if not self.task:
            return True
        bodies = [self.history.messages.bodies[number] for number in window]
        texts = [text for body in bodies if body.get("role") == "user" for text in said(body)]
        return all(any(task in text for text in reversed(texts)) for task in self.task)

    def _needs(self) -> list[Need]:
        history, messages = self.history, self.history.messages
        spoken = [at for at in reversed(range(self.upto)) if history.bodies[at].get("role") in _SAYING]
        heard, head = range(self.upto - 1, -1, -1), history.head()
        result = list[Need]()
        for function in calls_in(history.bodies[self.upto]):
            arguments = function.get("arguments")
            identifiers = [item for item in identifiers_of(arguments) if any(history.says(at, item) for at in spoken)]
            leaves = [item for item in leaves_of(arguments) if messages.hold(self.full, item)]
            said_leaves = [
                leave for leave in leaves if messages.hold(head, leave) or any(history.says(at, leave) for at in heard)
            ]
            result.append(Need(tuple(identifiers), tuple(leaves), frozenset(said_leaves)))
        return result
