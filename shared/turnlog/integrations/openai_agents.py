"""A Turnlog session as a `Session` of the OpenAI Agents SDK (0.24): https://openai.github.io/openai-agents-python/sessions/.

    from turnlog.integrations.openai_agents import TurnlogSession

    result = await Runner.run(agent, "Hello", session=TurnlogSession(log, "support-42"))

Items are stored unchanged as messages of format ``openai_responses``. Other items, such as the envelopes of the SDK's
`EncryptedSession`, are stored in the metadata of an empty message, and no window shows them. Popped and cleared items leave the
view but stay in the log. The SDK is imported only when ``session_settings`` are read, or given as a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from turnlog.agents.streams import as_mapping
from turnlog.client import parts_of, retried
from turnlog.client.async_calls import reads, run_to_end, to_end, writes
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.engines import RandomIds
from turnlog.integrations.sessions import stored_ids
from turnlog.providers.registry import codec_of
from turnlog.sessions.message_models import StoredMessage

Item = dict[str, Any]
FORMAT = "openai_responses"
_BATCH, _ITEM = "openai_agents_batch", "openai_agents_item"
_IDS = RandomIds()


class TurnlogSession:
    """The history of one conversation, as a `Session` of the OpenAI Agents SDK.

    The first items create the Turnlog session, with ``settings`` of `Sessions.create`. A batch is stored whole or not at all, even
    one with more items than a commit takes. Once `add_items` returns, `pop_item` sees its items in any process. When a caller is
    cancelled during a write, the write completes first and then the cancellation is raised.
    """

    def __init__(self, log: Turnlog, session_id: str, *, session_settings: Any = None, **settings: Any) -> None:
        """``session_settings`` are the SDK's own; their ``limit`` is the default number of items of `get_items`."""
        self.session_id = session_id
        self._session_settings = _settings_of(session_settings)
        self._log = log
        self._settings = settings
        self._id_of = stored_ids(log)

    @property
    def session_settings(self) -> Any:
        """The SDK's settings of this session; its defaults when none were given."""
        if self._session_settings is None:
            self._session_settings = _settings_of({})
        return self._session_settings

    @session_settings.setter
    def session_settings(self, settings: Any) -> None:
        self._session_settings = _settings_of(settings)

    @reads
    def get_items(self, limit: int | None = None) -> list[Item]:
        """Return the newest ``limit`` items, oldest first; without a limit as many as the settings say, or all."""
        return self._items(self._session(), self._limit(limit))

    async def add_items(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Add all items, or none of them when an error is raised."""
        for item in items:
            if not isinstance(item, Mapping) and not hasattr(item, "model_dump"):
                raise InvalidInputError(f"add_items takes a list of objects; an item is {type(item).__name__}")
        plain_items = [dict(as_mapping(item)) for item in items]
        if plain_items:
            await run_to_end(lambda: self._add(plain_items))

    @writes
    def pop_item(self) -> Item | None:
        """Remove the newest item from the view and return it; None when there is none."""
        session = self._session()

        def attempt() -> Item | None:
            head, newest = session.info().head, next(newest_first(session), None)
            if newest is not None:
                session.rewind(newest.position - 1, if_head=head)
            return item_of(newest) if newest is not None else None

        with suppress(NotFoundError):
            return retried(attempt)
        return None

    # ------------------------------------------------------------ blocking work, called in a thread

    def _session(self) -> Session:
        """Return the session of the items. It may not exist yet."""
        return self._log.sessions.of(self._id_of(self.session_id))

    def _created(self) -> Session:
        """Return the session of the items, and create it when it does not exist."""
        return self._log.sessions.get_or_create(self._id_of(self.session_id), **self._settings)

    def _limit(self, limit: int | None) -> int | None:
        default: int | None = getattr(self._session_settings, "limit", None)
        return default if limit is None else limit

    def _items(self, session: Session, limit: int | None) -> list[Item]:
        if limit is not None and limit <= 0:
            return []
        items = [item_of(stored) for stored in islice(newest_first(session), limit)]
        return items[::-1]

    def _add(self, items: list[Item]) -> None:
        session = self._created()
        pairs = [_message_of(item) for item in items]
        bodies, kept = [body for body, _ in pairs], [beside for _, beside in pairs]
        key, parts = _IDS.new_id(), parts_of(bodies, kept)
        for index, part in enumerate(parts):
            batch = {_BATCH: {"id": key, "left": len(parts) - 1 - index}} if len(parts) > 1 else {}
            meta = [{"metadata": {**extra, **batch}} if extra or batch else {} for extra in kept[part]]
            session.append(*bodies[part], meta=meta, format=FORMAT, idempotency_key=f"{key}-{index}")

    def _clear(self) -> None:
        with suppress(NotFoundError):
            self._session().rewind(1)

    clear_session = to_end(_clear)


def _settings_of(settings: Any) -> Any:
    """Return settings as the SDK's own class, which refuses unknown fields."""
    if not isinstance(settings, Mapping):
        return settings
    from agents.memory.session_settings import coerce_session_settings

    return coerce_session_settings(dict(settings))


def newest_first(session: Session) -> Iterator[StoredMessage]:
    """Yield the messages in view, newest first, without batches whose last part was never stored; none without a session."""
    ends = dict[str, int | None]()
    with suppress(NotFoundError):
        for message in session.messages(order="desc", in_view=True, format=FORMAT):
            name, _ = _batch(message)
            if name not in ends:
                ends[name] = batch_end(session, message)
            if ends[name] is not None:
                yield message


def batch_end(session: Session, message: StoredMessage) -> int | None:
    """Return where the last part of a message's batch begins, also when a pop removed it from the view; None without one.

    A message of that part, or of no batch, is itself the answer.
    """
    name, left = _batch(message)
    if not left:
        return message.position
    place: int | None = message.position
    while place is not None:
        page = session.page(after=place)
        for later in page.messages:
            if _batch(later) == (name, 0):
                return later.position
        place = page.next
    return None


def in_batch(message: StoredMessage) -> bool:
    """Return whether a message was stored with others in several parts."""
    return _BATCH in (message.metadata or {})


def _batch(message: StoredMessage) -> tuple[str, int]:
    """Return the name of a message's batch and the number of parts after the message's; a message alone is one of its own."""
    batch = (message.metadata or {}).get(_BATCH)
    return (str(batch["id"]), batch["left"]) if isinstance(batch, Mapping) else (str(message.position), 0)


def _message_of(item: Item) -> tuple[Item, dict[str, Item]]:
    """Return the message of an item and its metadata. The metadata holds the item when the Responses API has no such item."""
    try:
        codec_of(FORMAT).parse(item)
    except InvalidInputError:
        return {"type": "message", "role": "assistant", "content": ""}, {_ITEM: item}
    return item, {}


def item_of(stored: StoredMessage) -> Item:
    kept = (stored.metadata or {}).get(_ITEM)
    return dict(kept) if isinstance(kept, Mapping) else dict(stored.body)
