"""Imports of exported sessions, a batch of commits or documents at a time: equal to what was exported, under any id and owner.

A session is seen when its last commit is here, and the last of its documents. The same file again goes on where another try ended;
a session that is there already, up to the file's head at least, stays as it is; another session is never written over.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from turnlog.contracts.exports import ImportCommits, Imported
from turnlog.domain.documents import Writing
from turnlog.domain.errors import ConflictError, InvalidInputError, SessionExistsError
from turnlog.domain.events import CreateEvent, Payload
from turnlog.domain.identity import Owner
from turnlog.log.documents import Documents
from turnlog.log.exchange import commit_of, position_in
from turnlog.log.headers import GENESIS, Header
from turnlog.log.keys import SessionKeys
from turnlog.log.materialise import Materialiser
from turnlog.log.segment_format import SealedCommit
from turnlog.log.sessions import SessionLog
from turnlog.log.tombstones import MATERIALISING
from turnlog.services.documents import check_distinct, exported_writing
from turnlog.services.restored import told


class ImportSessions:
    """The use case: one batch. Nothing of it is written before all of it has been checked."""

    def __init__(self, log: SessionLog, materialiser: Materialiser, documents: Documents) -> None:
        self._log = log
        self._materialiser = materialiser
        self._documents = documents

    def __call__(self, owner: Owner, session_id: str, body: ImportCommits) -> Imported:
        keys, whole = SessionKeys(owner, session_id), bytes.fromhex(body.hash)
        token = sha256(f"import {body.head} {body.hash}".encode()).digest()[:16]
        writings = [exported_writing(one, f"/documents/{at}") for at, one in enumerate(body.documents)]
        check_distinct([one.key for one in writings])
        first = position_in(body.commits[0])[0] if body.commits else body.head + 1
        if first > 1 and not self._is_claimed(keys, token):
            return self._existing(keys, body, whole)
        if not body.commits:
            newest = self._newest(keys, body.head, whole)
            return self._rest(keys, body, newest, writings, token)
        commits = self._checked(keys, first, body)
        if first == 1:
            event = next(iter(commits[0].events), None)
            if commits[0].commit.header.kind != "c" or not isinstance(event, CreateEvent):
                raise InvalidInputError("a log begins with the creation of its session", code="bad_export")
            if not self._materialiser.begin(keys, commits[0], token):
                return self._existing(keys, body, whole)
        self._materialiser.add(keys, commits, _no_blob)
        return self._rest(keys, body, commits[-1].commit.header, writings, token)

    def _rest(
        self, keys: SessionKeys, body: ImportCommits, newest: Header, writings: Sequence[Writing], token: bytes
    ) -> Imported:
        """Behind the commits: documents, and the session is there when nothing is to follow."""
        if writings and newest.last < body.head:
            raise InvalidInputError("documents come when all commits are here", code="bad_export")
        if writings:
            # What is there already was written by another try, or by who has seen the session meanwhile.
            self._documents.write_many(keys, writings)
        if newest.last < body.head or body.more:
            return Imported(session_id=keys.session_id, status="partial", position=newest.last)
        if newest.expires_ms is not None and self._log.clock.now_ms() >= newest.expires_ms:
            # It would be gone as soon as it is there.
            newest = told(self._log, keys, newest, token, {"imported": True, "position": newest.last})
        self._materialiser.finish(keys, newest, token)
        return Imported(session_id=keys.session_id, status="imported", position=body.head)

    def _checked(self, keys: SessionKeys, first: int, body: ImportCommits) -> list[SealedCommit]:
        """All commits of the batch: they follow on one another, and on what is there."""
        previous: bytes | None = GENESIS
        if first > 1:
            before_it = self._materialiser.ending_at(keys, first - 1)
            previous = before_it.hash if before_it is not None else None
        if previous is None:
            raise ConflictError(f"the commit before position {first} is not here yet", code="import_gap")
        commits, at, before = list[SealedCommit](), first, 0
        for line in body.commits:
            sealed = commit_of(line, previous=previous)
            header = sealed.commit.header
            if header.first != at or header.last > body.head or header.time_ms <= before:
                raise InvalidInputError(f"commit {header.first} does not follow on the one before", code="bad_export")
            previous, at, before = header.hash, header.last + 1, header.time_ms
            commits.append(sealed)
        newest: Header = commits[-1].commit.header
        if newest.last == body.head and newest.hash.hex() != body.hash:
            raise InvalidInputError("the log does not end with the hash of its manifest", code="bad_export")
        return commits

    def _newest(self, keys: SessionKeys, head: int, whole: bytes) -> Header:
        """That of the last commit, when all are here."""
        header = self._materialiser.ending_at(keys, head)
        if header is None or header.hash != whole:
            raise ConflictError(f"the commit before position {head + 1} is not here yet", code="import_gap")
        return header

    def _is_claimed(self, keys: SessionKeys, token: bytes) -> bool:
        found = self._log.items.get_many([keys.meta]).get(keys.meta, {})
        return found.get(MATERIALISING) == token

    def _existing(self, keys: SessionKeys, body: ImportCommits, whole: bytes) -> Imported:
        """The session, where it has the very history of the file."""
        self._log.commits.tail(keys)
        commit = self._log.commits.containing(keys, body.head)
        if commit is None or commit.header.last != body.head or commit.header.hash != whole:
            raise SessionExistsError(f"there is another session {keys.session_id!r}")
        return Imported(session_id=keys.session_id, status="existing", position=body.head)


def _no_blob(payload: Payload) -> bytes:
    raise InvalidInputError(f"the export lacks the payload {payload.place}", code="bad_export")
