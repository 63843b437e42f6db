"""A Turnlog session as a `Session` of the OpenAI Agents SDK (0.24): https://openai.github.io/openai-agents-python/sessions/.

    from turnlog.integrations.openai_agents import TurnlogSession

    result = await Runner.run(agent, "Hello", session=TurnlogSession(log, "support-42"))

Items are kept as they are given, as messages of format ``openai_responses``; what is no item of that (the envelopes of the SDK's
`EncryptedSession`) is kept beside an empty message, and no window shows it. What is popped or cleared leaves the view and stays
in the log. It implements the protocol and imports nothing of the SDK but for settings in a dictionary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from turnlog.client.model import Session, Turnlog
from turnlog.client.parts import parts_of
from turnlog.client.threads import finished
from turnlog.core.errors import HeadMismatchError, InvalidInputError, NotFoundError
from turnlog.engines.system import RandomIds
from turnlog.providers.registry import codec_of
from turnlog.sessions.message_models import StoredMessage

Item = dict[str, Any]
FORMAT = "openai_responses"
_BATCH, _ITEM = "openai_agents_batch", "openai_agents_item"
_TRIES = 20
_IDS = RandomIds()


class TurnlogSession:
    """The history of one conversation. The Turnlog session is made when the first items come, with ``settings`` of
    `Sessions.create`.

    A batch is kept whole or not at all, also one of more items than a commit takes. `pop_item` sees what an `add_items` that has
    returned has added, in any process. A mutation is done to its end when its caller is cancelled, who is then told so.
    """

    def __init__(self, log: Turnlog, session_id: str, *, session_settings: Any = None, **settings: Any) -> None:
        """``session_settings`` are the SDK's own: their ``limit`` is the number of items that `get_items` gives."""
        self.session_id = session_id
        self.session_settings = _settings_of(session_settings)
        self._log = log
        self._settings = settings

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The newest ``limit`` items in the order they were added; without one as many as the settings say, or all."""
        return await asyncio.to_thread(self._items, self._limit(limit))

    async def add_items(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Adds all of them, or none."""
        given = [dict(_plain(item)) for item in items]
        if given:
            await finished(lambda: self._add(given))

    async def pop_item(self) -> Item | None:
        """Takes the newest item out of view and returns it; None when there is none."""
        return await finished(self._pop)

    async def clear_session(self) -> None:
        """Takes all items out of view."""
        await finished(self._clear)

    # ------------------------------------------------------------ in a thread

    def _limit(self, limit: int | None) -> int | None:
        if limit is not None:
            return limit
        found = getattr(self.session_settings, "limit", None)
        return found if isinstance(found, int) else None

    def _items(self, limit: int | None) -> list[Item]:
        if limit is not None and limit <= 0:
            return []
        found = list[Item]()
        with suppress(NotFoundError):
            for one in self._newest_first(self._log.sessions.of(self.session_id)):
                found.append(_item_of(one))
                if len(found) == limit:
                    break
        return found[::-1]

    def _newest_first(self, session: Session) -> Iterator[StoredMessage]:
        """Messages in view, but for those of a batch whose end never came."""
        whole, torn = set[str](), set[str]()
        for one in session.messages(order="desc", in_view=True, format=FORMAT):
            batch = (one.metadata or {}).get(_BATCH)
            if isinstance(batch, Mapping):
                name = str(batch["id"])
                if name not in whole | torn:
                    (whole if not batch["left"] or _has_end(session, one.position, name) else torn).add(name)
                if name in torn:
                    continue
            yield one

    def _add(self, items: list[Item]) -> None:
        session = self._log.sessions.get_or_create(self.session_id, **self._settings)
        made = [_message_of(item) for item in items]
        bodies, kept = [body for body, _ in made], [beside for _, beside in made]
        key, parts = _IDS.new_id(), parts_of(bodies, kept)
        for at, where in enumerate(parts):
            batch = {_BATCH: {"id": key, "left": len(parts) - 1 - at}} if len(parts) > 1 else {}
            meta = [{"metadata": {**one, **batch}} if one or batch else {} for one in kept[where]]
            session.append(*bodies[where], meta=meta, format=FORMAT, key=f"{key}-{at}")

    def _pop(self) -> Item | None:
        session = self._log.sessions.of(self.session_id)
        for _ in range(_TRIES):
            try:
                head = session.info().head
            except NotFoundError:
                return None
            newest = next(self._newest_first(session), None)
            if newest is None:
                return None
            with suppress(HeadMismatchError):
                session.rewind(newest.position - 1, if_head=head)
                return _item_of(newest)
        raise HeadMismatchError(f"session {self.session_id!r} changes too often to pop an item")

    def _clear(self) -> None:
        session = self._log.sessions.of(self.session_id)
        with suppress(NotFoundError):
            session.rewind(1)


def _settings_of(given: Any) -> Any:
    """A dictionary as the SDK's own class, which refuses what it does not know."""
    if not isinstance(given, Mapping):
        return given
    from agents.memory.session_settings import coerce_session_settings

    return coerce_session_settings(dict(given))


def _has_end(session: Session, position: int, name: str) -> bool:
    """Whether the end of a batch is in the log behind a position: a pop may have taken it out of view."""
    place: int | None = position
    while place is not None:
        page = session.page(after=place)
        for one in page.messages:
            batch = (one.metadata or {}).get(_BATCH)
            if isinstance(batch, Mapping) and batch["id"] == name and not batch["left"]:
                return True
        place = page.next
    return False


def _message_of(item: Item) -> tuple[Item, dict[str, Item]]:
    """The message of an item, and what is kept beside it: the item itself, where it is none of the Responses API."""
    try:
        codec_of(FORMAT).parse(item)
    except InvalidInputError:
        return {"type": "message", "role": "assistant", "content": ""}, {_ITEM: item}
    return item, {}


def _item_of(stored: StoredMessage) -> Item:
    kept = (stored.metadata or {}).get(_ITEM)
    return dict(kept) if isinstance(kept, Mapping) else dict(stored.body)


def _plain(item: Any) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    found: Mapping[str, Any] = item.model_dump(mode="json", exclude_unset=True)
    return found
