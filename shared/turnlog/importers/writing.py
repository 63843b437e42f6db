"""Compare a session of a source with the log, and write the messages that the log does not have, in the source's order.

The log is read at each import, and no record of earlier imports is kept. So a killed import continues where it stopped, a
repeated import writes nothing, and the import of a source that has grown appends what is new.

Each commit's idempotency key is made of its content and the head before it, so a repeated commit has one effect. A commit is
refused when another writer has appended messages in between; a summary may come in between.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from turnlog.client import parts_of
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import HeadMismatchError, InvalidInputError, NotFoundError, SessionEndedError
from turnlog.core.json_values import MAX_INT, MIN_INT, canonical_json, encode_json, json_pointer, without_none
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import milliseconds_of
from turnlog.importers.models import (
    IMPORTED,
    SessionReport,
    SourceChangedError,
    SourceMessage,
    SourceRemark,
    SourceSession,
    earlier_id,
    join_pieces,
    with_extra,
)
from turnlog.providers.registry import codec_of
from turnlog.sessions.message_models import MAX_APPEND_BYTES, Appended, StoredMessage
from turnlog.sessions.models import Session as SessionInfo
from turnlog.sessions.state import MAX_STATE_DEPTH

MAX_META_BYTES, EARLIER_BODY_BYTES = 2 * 1024 * 1024, 1024 * 1024
"""Maximum bytes of metadata, and those of a body in earlier versions, so that an import finds what they stored."""
MAX_LEVELS = 28
"""Levels of JSON in a body and in metadata, so that a request around them stays within `MAX_DEPTH`."""
_LEVELS = {"settings": MAX_STATE_DEPTH, "state": MAX_STATE_DEPTH, "metadata": MAX_LEVELS + 1, "extra": MAX_LEVELS + 1}
"""Levels of JSON that the fields of a session may have."""
CUT, AS_TEXT = "cut", "as_text"
_CUT_TO_CHARS = 1_000
_TEXT_TYPES = {"openai_responses": "input_text"}


def fitted(
    message: SourceMessage, format: str, max_bytes: int = MAX_APPEND_BYTES
) -> tuple[SourceMessage, tuple[SourceRemark, ...]]:
    """Cut a message to the log's limits. Returns the message and the cuts; equal messages are cut equally."""
    body, body_changes = _within(message.body, max_bytes, _TEXT_TYPES.get(format, "text"))
    meta, meta_changes = _within(message.meta, MAX_META_BYTES, "text")
    changes = (*body_changes, *meta_changes)
    if not changes:
        return message, ()
    return replace(message, body=body, meta=meta), tuple(SourceRemark(message.place, change) for change in changes)


def shallow(value: Any, levels: int, pointer: str, changes: list[str]) -> Any:
    """Replace JSON below some levels, and integers over 64 bits, by their text, and note each place in ``changes``."""
    is_deep = isinstance(value, dict | list) and levels == 0
    if is_deep or (isinstance(value, int) and not MIN_INT <= value <= MAX_INT):
        changes.append(f"{AS_TEXT} {pointer}")
        return encode_json(value).decode("utf-8")
    if isinstance(value, list):
        return [shallow(item, levels - 1, f"{pointer}/{index}", changes) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: shallow(item, levels - 1, pointer + json_pointer([key]), changes) for key, item in value.items()}
    return value


def _within(value: dict[str, Any], limit: int, text_type: str) -> tuple[dict[str, Any], list[str]]:
    """Cut a value to ``limit`` bytes, its largest texts first. Returns the value and the changes."""
    changes = list[str]()
    fitting = shallow(value, MAX_LEVELS, "", changes)
    size_bytes = len(encode_json(fitting))
    for holder, key, pointer, size in sorted(_leaves(fitting, ""), key=lambda leaf: (leaf[3], leaf[2]), reverse=True):
        if size_bytes <= limit or size <= _CUT_TO_CHARS:
            break
        cut = _cut(holder[key], size, text_type)
        size_bytes += len(encode_json(cut)) - len(encode_json(holder[key]))
        holder[key] = cut
        changes.append(f"{CUT} {pointer}")
    return fitting, changes


def _leaves(value: Any, pointer: str) -> Iterator[tuple[Any, Any, str, int]]:
    """Yield texts and media that can be cut, as (holder, key, pointer, size). Media are cut as a whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        child_pointer = pointer + json_pointer([key])
        if isinstance(child, str):
            yield value, key, child_pointer, len(child)
        elif isinstance(child, dict) and _is_media(child):
            yield value, key, child_pointer, len(encode_json(child))
        else:
            yield from _leaves(child, child_pointer)


def _is_media(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and any(word in kind for word in ("image", "file", "audio", "document"))


def _cut(value: Any, size: int, text_type: str) -> Any:
    if isinstance(value, str):
        return f"{value[:_CUT_TO_CHARS]}\n[{size - _CUT_TO_CHARS:,} characters left out by the import]"
    return {"type": text_type, "text": f"[{value['type']} of {size:,} bytes left out by the import]"}


_META_FIELDS = ("id", "author", "metadata", "finish_reason", "is_error")


@lazy_dataclass(frozen=True, slots=True)
class ComparedSession:
    """The comparison of a source's session with the log.

    ``present`` are the source's messages that the log has, with their positions; ``missing`` are the others. ``passed`` counts
    interrupted messages of the log that the source has no more, ``more`` the messages behind its last one. ``refusal`` names the
    first message that differs: then nothing may be written.
    """

    present: tuple[tuple[int, SourceMessage], ...]
    missing: tuple[SourceMessage, ...]
    changed: tuple[SourceRemark, ...]
    passed: int
    more: int
    refusal: SourceChangedError | None


def compare(source: SourceSession, stored: Iterable[StoredMessage]) -> ComparedSession:
    """Compare a source with the log, up to the first message that differs."""
    waiting, refusal = deque(source.messages), None
    present, changed = list[tuple[int, SourceMessage]](), list[SourceRemark]()
    passed = more = 0
    for entry in stored:
        if not waiting:
            more += 1
            continue
        match = _take_match(waiting, entry, source.format)
        if match is not None:
            message, cut = match
            present.append((entry.position, message))
            changed += cut
        elif entry.status == "interrupted":
            # A partial answer of an earlier import. The source has replaced it by a complete one, or dropped it.
            passed += 1
        else:
            place = waiting[0].place
            text = f"{place} of {source.source_id[:80]!r} is not message {entry.position} of session {source.id!r}"
            refusal = SourceChangedError(text, details={"place": place, "position": entry.position})
            break
    missing = list[SourceMessage]()
    for message in waiting:
        cut_message, cut = fitted(message, source.format)
        missing.append(cut_message)
        changed += cut
    return ComparedSession(tuple(present), tuple(missing), tuple(changed), passed, more, refusal)


def _take_match(
    waiting: deque[SourceMessage], stored: StoredMessage, format: str
) -> tuple[SourceMessage, tuple[SourceRemark, ...]] | None:
    """Take the next message of the source when it is the stored one, or its first pieces when these are.

    Returns the message and its cuts, or None.
    """
    following = waiting[0]
    for count in (None, *range(1, len(following.pieces))):
        candidate = following if count is None else join_pieces(following.pieces[:count])
        message, noted = fitted(candidate, format)
        if not _is_same(message, stored):
            message, noted = fitted(candidate, format, EARLIER_BODY_BYTES)
        if _is_same(message, stored):
            waiting.popleft()
            if count is not None:
                waiting.appendleft(join_pieces(following.pieces[count:]))
            return message, noted
    return None


def _is_same(message: SourceMessage, stored: StoredMessage) -> bool:
    """Return whether a message of the source is one of the log. An earlier version may have taken it for another format's."""
    meta, has_time = message.meta, message.created_at is not None
    source = [message.body, meta.get("status", "complete"), meta.get("pin", False), meta.get("created_at")]
    entry = [stored.body, stored.status, stored.pin, stored.created_at if has_time else None]
    source += [meta.get(name) for name in _META_FIELDS]
    entry += [getattr(stored, name) for name in _META_FIELDS]
    return canonical_json(source) == canonical_json(entry)


STATE_NOT_OVERWRITTEN = "state_kept"
ACTION = "import"
Places: TypeAlias = Sequence[tuple[int, SourceMessage]]
"""Messages of a source with their positions in the log."""
_CREATED = 1
"""Head of a new session. When another import was faster, its commits have the same keys as these."""


def import_session(log: Turnlog, source: SourceSession, *, file: str = "", dry_run: bool = False) -> SessionReport:
    """Import one session of a source. An error leaves what was written before it.

    A dry run reads the log and writes to memory.
    """
    row = SessionReport.of(source, file)
    write_session(log, source, row, dry_run=dry_run)
    return row


def write_session(log: Turnlog, source: SourceSession, row: SessionReport, *, dry_run: bool) -> None:
    """Import one session as `import_session` does. ``row`` is true also when the import is refused on its way."""
    if source.refusal is not None:
        raise source.refusal
    noted = list[str]()
    fields = {key: shallow(getattr(source, key), levels, f"/{key}", noted) for key, levels in _LEVELS.items()}
    source = replace(source, **fields)
    existing = _existing(log, source.id)
    if existing is None and (earlier := earlier_id(source.id)) != source.id:
        existing = _existing(log, earlier)
        source = source if existing is None else replace(source, id=earlier)
    comparison = compare(source, existing.messages if existing is not None else ())
    row.session_id, row.present, row.more = source.id, len(comparison.present), comparison.more + comparison.passed
    if comparison.refusal is not None:
        raise comparison.refusal
    row.messages = row.present + len(comparison.missing)
    row.changed = [*comparison.changed, *(SourceRemark("session", change) for change in noted)]
    if existing is not None and existing.info.status == "ended" and comparison.missing:
        raise SessionEndedError(f"session {source.id!r} has ended, and {comparison.missing[0].place} is not in it")
    _check(source, comparison.missing)
    if not source.messages and not source.state and existing is None:
        row.status = "skipped"
        row.skipped.append(SourceRemark("session", "no_messages"))
    elif dry_run:
        with Turnlog.open("memory://") as scratch:
            copy = _copy_to_memory(scratch, existing) if existing is not None else None
            _write(scratch, source, comparison, row, copy)
    else:
        _write(log, source, comparison, row, existing)


class _Existing(NamedTuple):
    """A session of the log before the import: its settings and head, and its messages but for those from long-term memory."""

    session: Session
    info: SessionInfo
    messages: Sequence[StoredMessage]


def _existing(log: Turnlog, session_id: str) -> _Existing | None:
    """Read the session before anything is written. The head is read first, so that a later append in between is refused."""
    session = log.sessions.of(session_id)
    try:
        info = session.info()
    except NotFoundError:
        return None
    return _Existing(session, info, [message for message in session.messages() if message.origin is None])


def _check(source: SourceSession, messages: Iterable[SourceMessage]) -> None:
    """Raise `InvalidInputError` for the first message that the log would refuse, before anything is written."""
    codec = codec_of(source.format)
    for message in messages:
        try:
            codec.parse(message.body)
        except InvalidInputError as error:
            text = f"{message.place} of {source.source_id[:80]!r}: {error.detail}"
            raise InvalidInputError(text, code=error.error_code, problems=error.problems) from error


def _write(
    log: Turnlog, source: SourceSession, comparison: ComparedSession, row: SessionReport, existing: _Existing | None
) -> None:
    """Create the session or continue it, and append missing messages."""
    places, missing = list(comparison.present), comparison.missing
    if existing is None:
        row.status = "new"
        expected = [*places, *enumerate(missing, start=2)]
        metadata = with_extra(_own(source), _imported(source, expected))
        session = log.sessions.create(
            source.id, **source.settings, state=source.state, metadata=metadata, if_exists="return"
        )
        info, head = session.info(), _CREATED
    else:
        session, info, head = existing.session, existing.info, existing.info.head
        row.status = "grown" if missing else "same"
    for part in parts_of([message.body for message in missing], [message.meta for message in missing]):
        batch = missing[part]
        answer = _append(session, source, head, batch)
        head, row.written = answer.head, row.written + len(batch)
        places += enumerate(batch, start=answer.first)
        row.warnings += [
            SourceRemark(batch[warning.position - answer.first].place, warning.code) for warning in answer.warnings
        ]
    if _update_settings(session, info, source, places, row) and row.status == "same":
        row.status = "settings"


def _append(session: Session, source: SourceSession, head: int, batch: Sequence[SourceMessage]) -> Appended:
    """Append messages behind ``head``, or behind later commits without messages, such as a summary.

    Raises `HeadMismatchError` when messages of another writer follow ``head``.
    """
    end, content = head, [source.id, source.format, head, [[message.body, message.meta] for message in batch]]
    while True:
        try:
            return session.append(
                *(message.body for message in batch),
                meta=[message.meta for message in batch],
                format=source.format,
                if_head=end,
                lenient=True,
                idempotency_key=f"turnlog-import-{_digest(content)}",
            )
        except HeadMismatchError as error:
            if session.page(after=head, limit=1).messages:
                raise
            end = int(error.details["head"])


def _update_settings(
    session: Session, info: SessionInfo, source: SourceSession, places: Places, row: SessionReport
) -> bool:
    """Update settings and state to the source's, unless an earlier import has set them already.

    Returns whether anything was updated.
    """
    metadata = dict(info.metadata or {})
    last_imported, imported = metadata.get(IMPORTED), _imported(source, places)
    if last_imported == imported:
        return False
    earlier = last_imported if isinstance(last_imported, dict) else {}
    changed = dict[str, Any]()
    if earlier.get("settings") != imported["settings"]:
        changed |= source.settings
    if earlier.get("state") != imported["state"] and not _put_state(session, source, earlier.get("state")):
        row.warnings.append(SourceRemark("state", STATE_NOT_OVERWRITTEN))
    session.update(**changed, metadata={**metadata, **_own(source), IMPORTED: imported})
    return True


def _put_state(session: Session, source: SourceSession, imported_digest: Any) -> bool:
    """Replace the imported state by the source's. Returns False when somebody has changed the imported state."""
    state = session.state()
    source_state = source.state or {}
    if _digest(state.state) not in (imported_digest, _digest(source_state)):
        return False
    if state.state != source_state:
        session.put_state(source_state, action=ACTION, if_version=state.version)
    return True


def _own(source: SourceSession) -> dict[str, Any]:
    """Return the source's own metadata, without the key that Turnlog uses."""
    return {name: value for name, value in (source.metadata or {}).items() if name != IMPORTED}


def _imported(source: SourceSession, places: Places) -> dict[str, Any]:
    """Return the origin that the session's metadata records. Equal sources give an equal origin."""
    extra = {
        f"source_{name}" if name in _RESERVED else name: value
        for name, value in source.extra.items()
        if (name, value) != ("id", source.source_id)
    }
    origin: dict[str, Any] = {
        "from": source.shape,
        "id": source.source_id,
        "settings": _digest([source.settings, source.metadata]),
        "state": _digest(source.state or {}),
        "messages": len(places),
        **source.times,
        **extra,
    }
    if source.metadata is not None and IMPORTED in source.metadata:
        origin["metadata"] = source.metadata[IMPORTED]
    if source.last_sent_at is not None:
        origin |= {"last_sent_at": source.last_sent_at, "last_sent_position": _last_sent(source.last_sent_at, places)}
    return origin


_RESERVED = frozenset({"from", "id", "settings", "state", "metadata", "messages", "last_sent_at", "last_sent_position"})


def _last_sent(moment: str, places: Places) -> int | None:
    """Return the position of the newest message at or before a time: the model has seen it. Skips messages without a time."""
    limit = milliseconds_of(moment)
    for position, message in reversed(places):
        if message.created_at is not None and milliseconds_of(message.created_at) <= limit:
            return position
    return None


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()[:32]


# ---------------------------------------------------------------- the dry run


def _copy_to_memory(scratch: Turnlog, existing: _Existing) -> _Existing:
    """Copy the session to memory, as far as the import depends on it."""
    session, info = existing.session, existing.info
    copy = scratch.sessions.create(session.id, metadata=info.metadata, state=session.state().state)
    for message in existing.messages:
        meta = {name: getattr(message, name) for name in ("id", "status", "author", "metadata", "is_error")}
        copy.append(message.body, meta=[without_none(meta)], format=message.format, lenient=True)
    return _Existing(copy, copy.end() if info.status == "ended" else copy.info(), existing.messages)
