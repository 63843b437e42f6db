"""Short-lived addresses of blobs: a URL of the store, or a path of the service for a store without a network.

A path of the service holds a signed token that is bound to its owner. Another owner, an expired token or a forged one gets
404.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from turnlog.core.errors import MalformedError, NotFoundError, TooLargeError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_UPLOAD_BYTES
from turnlog.core.models import Answer, Cursors
from turnlog.core.times import rfc3339
from turnlog.log.keys import answers_prefix
from turnlog.ports import BlobStore, Clock

SECONDS, UPLOAD_SECONDS = 15 * 60, 5 * 60
DOWNLOADS = "/v1/downloads/"


@lazy_dataclass(frozen=True, slots=True)
class Link:
    """A short-lived address. ``url`` is absolute, or a path of this service."""

    url: str
    expires_at: str


@lazy_dataclass(frozen=True, slots=True)
class Download:
    """The bytes of a download and the name to save them under."""

    data: bytes
    filename: str


class Upload(Answer):
    """Where to put the body of a request that is too large to send. ``url`` is null where it can be sent as it is."""

    sha256: str
    url: str | None
    expires_at: str
    max_bytes: int


class Links:
    """A maker of addresses, which also serves the addresses of the service itself."""

    def __init__(self, blobs: BlobStore, clock: Clock, secret: Callable[[], bytes]) -> None:
        self._blobs = blobs
        self._clock = clock
        self._secret = secret

    def make(self, owner: Owner, name: str, *, filename: str) -> Link:
        """Return an address of a blob. The caller must check that the blob belongs to this owner."""
        until = self._clock.now_ms() + SECONDS * 1000
        url = self._blobs.url(name, seconds=SECONDS, filename=filename)
        if url is None:
            place = {"b": name, "f": filename, "t": str(until)}
            url = DOWNLOADS + Cursors(self._secret()).write(place, scope=_scope(owner))
        return Link(url, rfc3339(until))

    @property
    def has_addresses(self) -> bool:
        """Whether blobs have addresses of their own, as on S3. Other stores are local, where answers have no size limit."""
        return self._blobs.url("answer", seconds=SECONDS, filename="answer.json") is not None

    def keep(self, owner: Owner, session_id: str, answer: bytes) -> Link | None:
        """Store an answer that is too large to send, and return its address.

        Returns None for a store without addresses: it is local, where answers have no size limit. Raises `TooLargeError`
        when this process has no right to store blobs.
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
            message = f"the answer has {len(answer):,} bytes, which is too large to send: use a smaller limit or budget"
            raise TooLargeError(message, code="answer_too_large") from error
        return Link(url, rfc3339(until))

    def upload(self, owner: Owner, session_id: str, *, sha256: str, size_bytes: int) -> Upload:
        """Return the address for the body of a request that is too large to send. It has no ``url`` where the body can be sent.

        The upload is deleted a day later, and with its session. Raises `TooLargeError` above `MAX_UPLOAD_BYTES`.
        """
        if size_bytes > MAX_UPLOAD_BYTES:
            raise TooLargeError(f"an upload of {size_bytes:,} bytes is over the limit of {MAX_UPLOAD_BYTES:,}")
        until = self._clock.now_ms() + UPLOAD_SECONDS * 1000
        url = self._blobs.upload_url(_upload(owner, session_id, sha256), seconds=UPLOAD_SECONDS, size_bytes=size_bytes)
        return Upload(sha256=sha256, url=url, expires_at=rfc3339(until), max_bytes=MAX_UPLOAD_BYTES)

    def uploaded(self, owner: Owner, session_id: str, digest: str) -> bytes:
        """Return an uploaded body. Raises `NotFoundError` when it does not exist, `MalformedError` for other bytes."""
        data = self._blobs.get(_upload(owner, session_id, digest))
        if data is None:
            raise NotFoundError("no such upload, or it has expired: upload the body again", code="upload_missing")
        if sha256(data).hexdigest() != digest:
            raise MalformedError("the upload has other bytes than its SHA-256 says: upload the body again")
        return data

    def open(self, owner: Owner, token: str) -> Download:
        """Return the download that a token names. Raises `NotFoundError` for a bad or expired token."""
        try:
            place = Cursors(self._secret()).read(token, scope=_scope(owner))
        except MalformedError as error:
            raise NotFoundError("no such download") from error
        data = self._blobs.get(place["b"]) if self._clock.now_ms() < int(place["t"]) else None
        if data is None:
            raise NotFoundError("no such download, or its address has expired")
        return Download(data, place["f"])


def _upload(owner: Owner, session_id: str, digest: str) -> str:
    return f"{answers_prefix(owner, session_id)}upload-{digest}.json"


def _scope(owner: Owner) -> str:
    return f"download {owner.tenant_id} {owner.user_id}"
