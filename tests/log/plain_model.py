"""A session as plain lists: what the log must read as, said in the simplest way there is."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Moment:
    """After the event at one position: the positions in view, the state, the title."""

    view: tuple[int, ...] = ()
    state: dict[str, Any] = field(default_factory=dict)
    title: str | None = None


class PlainSession:
    """Position ``n`` is ``moments[n]``; messages by position are everything that was ever said."""

    def __init__(self, session_id: str, state: dict[str, Any], title: str | None) -> None:
        self.id = session_id
        self.moments: list[Moment] = [Moment(), Moment((), copy.deepcopy(state), title)]
        self.messages: dict[int, dict[str, Any]] = {}
        self.documents: dict[str, bytes] = {}
        self.is_ended = False

    @property
    def head(self) -> int:
        return len(self.moments) - 1

    @property
    def now(self) -> Moment:
        return self.moments[-1]

    def _next(self, **changes: Any) -> None:
        before = self.now
        fields = {"view": before.view, "state": before.state, "title": before.title} | changes
        self.moments.append(Moment(**copy.deepcopy(fields)))

    def append(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self.messages[self.head + 1] = message
            self._next(view=(*self.now.view, self.head + 1))

    def put_state(self, state: dict[str, Any]) -> None:
        self._next(state=state)

    def retitle(self, title: str | None) -> None:
        self._next(title=title)

    def note(self) -> None:
        """An event that changes nothing of what is compared: a summary, an entry of the history."""
        self._next()

    def end(self) -> None:
        self._next()
        self.is_ended = True

    def redact(self, position: int) -> None:
        """In every session that has the message: a fork shares it."""
        self.messages[position]["content"] = "[redacted]"

    def moved(self, session_id: str) -> PlainSession:
        """What is made of its export."""
        made = copy.deepcopy(self)
        made.id = session_id
        return made

    def rewind(self, to: int) -> None:
        then = self.moments[to]
        self._next(view=then.view, state=then.state, title=then.title)

    def fork(self, session_id: str, at: int, behind: int) -> PlainSession:
        """The fork's first event is at the position behind the commit that holds ``at``, at ``behind``."""
        made = PlainSession(session_id, {}, None)
        made.moments = [
            *copy.deepcopy(self.moments[: at + 1]),
            *(copy.deepcopy(self.moments[at]) for _ in range(behind - at - 1)),
        ]
        made.moments.append(copy.deepcopy(self.moments[at]))
        made.messages = {position: body for position, body in self.messages.items() if position <= at}
        return made
