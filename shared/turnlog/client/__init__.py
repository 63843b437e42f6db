"""The client library: the interface between its object model and an engine or service, and base classes of its objects."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Protocol, TypeAlias, TypeVar, cast

from pydantic import BaseModel

from turnlog.core.errors import CorruptError, HeadMismatchError, InvalidInputError, TurnlogError
from turnlog.core.json_values import encode_json
from turnlog.core.limits import MAX_APPEND_MESSAGES, batches, event_bytes
from turnlog.jobs.models import Redriven

if TYPE_CHECKING:
    from turnlog.upkeep.backup import Backup
    from turnlog.upkeep.verify import Verification
    from turnlog.windows.policy import Policy


class Backend(Protocol):
    """Answers calls. `call` takes the name of any operation of the HTTP API, and returns its answer.

    A body is JSON, or an instance of the route's model.
    """

    def call(
        self,
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | BaseModel | None = None,
        idempotency_key: str | None = None,
        media_type: str | None = None,
    ) -> Any: ...

    def run_jobs(self) -> int: ...

    def run_job(self, job_id: str) -> None:
        """Run a queued job of the owner in this process, where that is possible. Returns when this try has ended."""

    def download(self, url: str, into: BinaryIO) -> None:
        """Write the bytes behind a URL of an answer to ``into``."""

    def redrive(self, job_id: str | None, *, failed: bool) -> Redriven: ...

    def verify(self, session_id: str | None, progress: Callable[[Verification], None]) -> Verification: ...

    def back_up(self, path: Path, progress: Callable[[Verification], None]) -> Backup: ...

    def close(self) -> None: ...


T = TypeVar("T")


class OwnerResource:
    """Base of objects whose calls concern everything of one owner."""

    _path: Mapping[str, str] = {}
    """The names that every call has in its path."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def __repr__(self) -> str:
        whose = self._path.get("session_id")
        return f"{type(self).__name__}({self.backend if whose is None else repr(whose)})"

    def _call(
        self,
        answer_type: type[T],
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | BaseModel | None = None,
        idempotency_key: str | None = None,
        media_type: str | None = None,
    ) -> T:
        """Call a route that answers with ``answer_type``. ``path`` has the names that are not in every call's path."""
        for name, value in (query or {}).items():
            if isinstance(value, Collection) and not isinstance(value, str):
                raise InvalidInputError(f"{name} must be a text or a number, not {value!r:.64}")
        for name, value in (path or {}).items():
            if not isinstance(value, str):
                raise InvalidInputError(f"{name} must be a text, not {value!r:.64}")
        answer: T = self.backend.call(
            operation,
            path={**self._path, **(path or {})},
            query=query,
            body=body,
            idempotency_key=idempotency_key,
            media_type=media_type,
        )
        return answer


class SessionResource(OwnerResource):
    """Base of objects whose calls concern one session."""

    def __init__(self, backend: Backend, session_id: str) -> None:
        super().__init__(backend)
        self.id = session_id
        self._path = {"session_id": session_id}


class Paged(Iterator[T], Generic[T]):
    """Iterator over items that are fetched page by page.

    The next page is fetched when all items of the page before have been taken. After an error, the same page is fetched again.
    """

    def __init__(self, fetch: Callable[[Any], tuple[Sequence[T], Any]]) -> None:
        """Set ``fetch``: it takes a page's place (first: None), and returns the items and the next place (None: no more)."""
        self._fetch = fetch
        self._place: Any = None
        self._is_over = False
        self._left = deque[T]()

    def __repr__(self) -> str:
        return "<Paged: iterate over it once, or take list() of it>"

    def __next__(self) -> T:
        while not self._left:
            page = self.page()
            if page is None:
                raise StopIteration
            self._left.extend(page)
        return self._left.popleft()

    def page(self) -> Sequence[T] | None:
        """Return the next page, or None after the last one. A page may be empty."""
        if self._is_over:
            return None
        items, place = self._fetch(self._place)
        if place is not None and place == self._place:
            raise CorruptError("a page names itself as the next page", item=str(place))
        self._place, self._is_over = place, place is None
        return items


MAX_PART_BYTES = 4 * 1024 * 1024
"""Most bytes of the messages that are sent together in one request."""


def parts_of(messages: Sequence[object], metas: Sequence[object] = ()) -> list[slice]:
    """Return slices of ``messages`` that one append takes each, by number and by bytes in a Lambda event.

    ``metas`` are sent along and counted. A message that is too large alone gets a slice of its own; the append refuses it.
    """

    def size_of(index: int) -> int:
        return _bytes(messages[index]) + (_bytes(metas[index]) if index < len(metas) else 0)

    parts = batches(range(len(messages)), size_of, max_size=MAX_PART_BYTES, max_count=MAX_APPEND_MESSAGES)
    return [slice(part[0], part[-1] + 1) for part in parts]


def _bytes(value: object) -> int:
    with suppress(TypeError, ValueError, RecursionError):  # the append refuses a value that is not JSON
        return event_bytes(encode_json(value))
    return 0


_MAX_TRIES = 100


def retried(attempt: Callable[[], T], lost: type[TurnlogError] = HeadMismatchError) -> T:
    """Return the result of ``attempt``; repeat it while another writer comes first, which is the error ``lost``."""
    for _ in range(_MAX_TRIES - 1):
        with suppress(lost):
            return attempt()
    return attempt()


class ProviderObject(Protocol):
    """An object of a provider's library, or a message of LangChain: a model of pydantic."""

    def model_dump(
        self, *, mode: str = "python", exclude_unset: bool = False, by_alias: bool | None = None, warnings: bool = True
    ) -> dict[str, Any]: ...


GivenMessage: TypeAlias = Mapping[str, Any] | ProviderObject
"""A message, or a provider's complete answer: JSON or an object."""


def is_plain_message(value: object) -> bool:
    """Return whether the value is a message of JSON: no object, no complete answer, and without objects in its lists."""
    return (
        isinstance(value, dict)
        and not is_answer(value)
        and not any(isinstance(items, list) and any(map(is_model, items)) for items in value.values())
    )


def plain_messages(messages: Sequence[GivenMessage], format: str | None) -> tuple[list[Mapping[str, Any]], str | None]:
    """Return messages, in any form that `Session.append` takes, as JSON objects, and ``format`` or the format of that form."""
    if all(map(is_plain_message, messages)):
        return list(cast("Sequence[Mapping[str, Any]]", messages)), format
    from turnlog.agents.functions import given_messages

    converted = given_messages(messages, format)
    return list(converted.reply.messages), format or converted.format


def is_answer(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields are a provider's complete answer. Of the answers only Anthropic's has a role or a type."""
    is_message = any(name in fields for name in ("role", "type", "call_id"))
    return "stop_reason" in fields or (not is_message and ("choices" in fields or "output" in fields))


def is_model(value: object) -> bool:
    """Return whether the value is an object of a provider's library, which becomes JSON by ``model_dump``."""
    return not isinstance(value, str | Mapping) and hasattr(value, "model_dump")


GivenPolicy: TypeAlias = "str | Mapping[str, Any] | Policy"
"""A preset's name, a call such as ``turns(n)``, a policy's body, or a `Policy`."""


def python_json(value: object) -> str:
    """Return a Python value as JSON: models, dataclasses and dates as Pydantic writes them, what it can't write as its `str`."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> Any:
    from pydantic_core import to_jsonable_python  # few processes need it

    try:
        return to_jsonable_python(value, fallback=str)
    except ValueError:  # such as bytes that are not UTF-8
        return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def policy_field(policy: GivenPolicy | None) -> str | Mapping[str, Any] | None:
    """Return the policy as a request has it: a name or a body."""
    return policy.model_dump(mode="json") if isinstance(policy, BaseModel) else policy


def sent_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, such as those of a session, as a request has them: see `policy_field`."""
    policy = {"policy": policy_field(settings["policy"])} if "policy" in settings else {}
    return {**settings, **policy}
