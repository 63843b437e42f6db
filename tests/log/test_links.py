"""Short-lived addresses of a store without a network: whose they are, when they end, and what an upload must be."""

from __future__ import annotations

from hashlib import sha256

import pytest

from turnlog.core.errors import MalformedError, NotFoundError, TooLargeError
from turnlog.core.identity import Owner
from turnlog.core.limits import MAX_UPLOAD_BYTES
from turnlog.core.times import rfc3339
from turnlog.engines.files import MemoryBlobStore
from turnlog.log.keys import answers_prefix
from turnlog.log.links import DOWNLOADS, Links
from turnlog.testing.fixed import FixedClock

ADA, EVE = Owner.of("acme", "ada"), Owner.of("acme", "eve")


class Room:
    def __init__(self) -> None:
        self.blobs, self.clock = MemoryBlobStore(), FixedClock()
        self.links = Links(self.blobs, self.clock, lambda: b"secret")


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_download_is_its_owners_for_a_quarter_of_an_hour(room: Room) -> None:
    room.blobs.put("a/b", b"content")
    link = room.links.make(ADA, "a/b", filename="b.zip")
    token = link.url.removeprefix(DOWNLOADS)
    assert link.expires_at == rfc3339(room.clock.now_ms() + 15 * 60_000)
    room.clock.advance(15 * 60 - 0.001)
    download = room.links.open(ADA, token)
    assert (download.data, download.filename) == (b"content", "b.zip")
    for owner, text in ((EVE, token), (ADA, token[:-4] + "AAAA"), (ADA, "x")):
        with pytest.raises(NotFoundError):
            room.links.open(owner, text)
    room.clock.advance(0.001)
    with pytest.raises(NotFoundError, match="expired"):
        room.links.open(ADA, token)


def test_a_download_whose_blob_is_gone_is_missing(room: Room) -> None:
    link = room.links.make(ADA, "gone", filename="f")
    with pytest.raises(NotFoundError):
        room.links.open(ADA, link.url.removeprefix(DOWNLOADS))


def test_a_local_store_sends_every_answer_itself(room: Room) -> None:
    assert not room.links.has_addresses
    assert room.links.keep(ADA, "s", b"answer") is None
    assert room.blobs.names("") == []


def test_an_upload_has_a_limit_and_the_bytes_of_its_digest(room: Room) -> None:
    digest = sha256(b"body").hexdigest()
    upload = room.links.upload(ADA, "s", sha256=digest, size_bytes=MAX_UPLOAD_BYTES)
    assert (upload.sha256, upload.url, upload.max_bytes) == (digest, None, MAX_UPLOAD_BYTES)
    assert upload.expires_at == rfc3339(room.clock.now_ms() + 5 * 60_000)
    with pytest.raises(TooLargeError, match="41,943,041 bytes"):
        room.links.upload(ADA, "s", sha256=digest, size_bytes=MAX_UPLOAD_BYTES + 1)
    with pytest.raises(NotFoundError) as missing:
        room.links.uploaded(ADA, "s", digest)
    assert missing.value.error_code == "upload_missing"
    name = f"{answers_prefix(ADA, 's')}upload-{digest}.json"
    room.blobs.put(name, b"other")
    with pytest.raises(MalformedError, match="other bytes"):
        room.links.uploaded(ADA, "s", digest)
    room.blobs.put(name, b"body")
    assert room.links.uploaded(ADA, "s", digest) == b"body"
