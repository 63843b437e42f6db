"""Short-lived addresses of blobs: the store's own, or one of the service where the store is on no network.

The service's own is a token, signed and bound to its owner: another owner, a later time or an invented one is a missing page.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from turnlog.core.errors import MalformedError, NotFoundError, TooLargeError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.models import Cursors
from turnlog.core.times import rfc3339
from turnlog.log.keys import answers_prefix
from turnlog.ports import BlobStore, Clock

SECONDS = 15 * 60
DOWNLOADS = "/v1/downloads/"


@lazy_dataclass(frozen=True, slots=True)
class Link:
    """``url`` is absolute, or a path of this service."""

    url: str
    expires_at: str


@lazy_dataclass(frozen=True, slots=True)
class Download:
    data: bytes
    filename: str


class Links:
    """Makes addresses, and answers those of the service itself."""

    def __init__(self, blobs: BlobStore, clock: Clock, secret: Callable[[], bytes]) -> None:
        self._blobs = blobs
        self._clock = clock
        self._secret = secret

    def make(self, owner: Owner, name: str, *, filename: str) -> Link:
        """An address of a blob of this owner. Whoever makes it has checked that."""
        until = self._clock.now_ms() + SECONDS * 1000
        url = self._blobs.url(name, seconds=SECONDS, filename=filename)
        if url is None:
            place = {"b": name, "f": filename, "t": str(until)}
            url = DOWNLOADS + Cursors(self._secret()).write(place, scope=_scope(owner))
        return Link(url, rfc3339(until))

    @property
    def has_addresses(self) -> bool:
        """Whether blobs have addresses of their own, as on S3. Without them, what stores them also answers, and limits nothing."""
        return self._blobs.url("answer", seconds=SECONDS, filename="answer.json") is not None

    def keep(self, owner: Owner, session_id: str, answer: bytes) -> Link | None:
        """Store an answer that is too large to be sent, and return its address. None where blobs have no addresses of their own:
        such a store is on the machine that answers, and nothing limits its answers.

        Raises `TooLargeError` where this process may store nothing.
        """
        until = self._clock.now_ms() + SECONDS * 1000
        name = f"{answers_prefix(owner, session_id)}{sha256(answer).hexdigest()}.json"
        url = self._blobs.url(name, seconds=SECONDS, filename="answer.json")
        if url is None:
            return None
        try:
            self._blobs.put(name, answer)
        except UnavailableError as error:
            if error.error_code != "storage_denied":
                raise
            message = f"the answer has {len(answer):,} bytes, more than one can carry: ask for less, by a smaller limit or budget"
            raise TooLargeError(message, code="answer_too_large") from error
        return Link(url, rfc3339(until))

    def open(self, owner: Owner, token: str) -> Download:
        """What a token stands for, or `NotFoundError`."""
        try:
            place = Cursors(self._secret()).read(token, scope=_scope(owner))
        except MalformedError as error:
            raise NotFoundError("no such download") from error
        data = self._blobs.get(place["b"]) if self._clock.now_ms() < int(place["t"]) else None
        if data is None:
            raise NotFoundError("no such download, or not any more")
        return Download(data, place["f"])


def _scope(owner: Owner) -> str:
    return f"download {owner.tenant_id} {owner.user_id}"
