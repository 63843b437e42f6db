"""Values of an import: files that may be a source, the sessions and messages that readers return, and the report.

A file is read once. Sessions and messages are as their reader found them, before anything is compared or written.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard, cast

from turnlog.core.errors import ConflictError, InvalidInputError, MalformedError, TurnlogError
from turnlog.core.identity import check_session_id, safe_id
from turnlog.core.json_values import parse_strict_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.models import TIME_CHARS
from turnlog.core.times import read_time
from turnlog.providers.blocks import content_blocks, json_text
from turnlog.sessions.models import ORIGIN

_SQLITE = b"SQLite format 3\x00"


@lazy_dataclass(frozen=True, slots=True)
class JsonLine:
    """A line of JSON Lines that is not blank. ``value`` is None and ``is_json`` False when it is not valid JSON."""

    number: int
    text: str
    value: Any
    is_json: bool


class SourceFile:
    """A file, read when its contents are first used. With ``documents=False``, documents of an export are not imported."""

    def __init__(self, path: Path, *, documents: bool = True) -> None:
        self.path = path
        self.documents = documents

    @property
    def name(self) -> str:
        return str(self.path)

    @cached_property
    def beginning(self) -> bytes:
        """The first bytes of the file, which tell a format that is no text."""
        with _opened(self.path) as file:
            return file.read(128)

    @property
    def is_sqlite(self) -> bool:
        """Whether the file is an SQLite database."""
        return self.beginning.startswith(_SQLITE)

    @cached_property
    def text(self) -> str:
        """The text of the file. Raises `MalformedError` when it is not UTF-8."""
        with _opened(self.path) as file:
            data = file.read()
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise MalformedError(f"{self.name!r} is not UTF-8 at byte {error.start}") from error

    @cached_property
    def document(self) -> Any:
        """The file as one JSON value, or None."""
        try:
            return parse_strict_json(self.text, is_stored=False)
        except MalformedError:
            return None

    @cached_property
    def lines(self) -> tuple[JsonLine, ...]:
        """The lines of the file that are not blank."""
        parsed = list[JsonLine]()
        for number, text in enumerate(self.text.split("\n"), start=1):
            if not text.strip():
                continue
            try:
                parsed.append(JsonLine(number, text, parse_strict_json(text, is_stored=False), True))
            except MalformedError:
                parsed.append(JsonLine(number, text, None, False))
        return tuple(parsed)

    @cached_property
    def values(self) -> tuple[tuple[str, Any], ...]:
        """The sessions of a JSON file with their places: its one value, the items of its list, or its lines."""
        if self.document is None:
            return tuple((f"line {line.number}", line.value) for line in self.lines)
        if isinstance(self.document, list):
            return tuple((f"item {number}", value) for number, value in enumerate(self.document, start=1))
        return (("", self.document),)

    @property
    def why_not_json(self) -> str:
        """The reason why the file is not JSON; empty when the file or one of its lines is an object."""
        if self.is_sqlite or any(isinstance(line.value, dict) for line in self.lines):
            return ""
        try:
            parse_strict_json(self.text, is_stored=False)
        except MalformedError as error:
            return error.detail.replace("body", "it", 1)
        return ""

    def source_id(self, value: dict[str, Any], place: str, *keys: str) -> str:
        """Return the id of a session under the first of ``keys`` that it has, else the file's name with the place."""
        for key in keys:
            own_id = value.get(key)
            if isinstance(own_id, str) and own_id:
                return own_id
            if isinstance(own_id, int) and not isinstance(own_id, bool):
                return str(own_id)
        return f"{self.path.stem}-{place.replace(' ', '-')}" if place else self.path.stem


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise InvalidInputError(f"can't read {str(path)!r}: {reason}", code="no_file") from error


IMPORTED = ORIGIN
"""The metadata key, of a session and of a message, that holds the source's other fields."""
MADE_ID, NOT_AN_OBJECT, MALFORMED = "id_made", "not_an_object", "malformed"
MAX_NAME, MAX_SYSTEM = 128, 1_000_000


def is_text(value: Any, longest: int) -> TypeGuard[str]:
    """Return whether the value is a text of 1 to ``longest`` characters."""
    return isinstance(value, str) and 0 < len(value) <= longest


def content_of(value: Any) -> Any:
    """Return the content of a message: a text or a list of parts as it is, None as None, any other value as JSON text."""
    is_parts = isinstance(value, list) and all(isinstance(part, dict) for part in value)
    return value if value is None or is_parts else json_text(value)


def take(fields: dict[str, Any], *names: str) -> Any:
    """Remove and return the first value under ``names`` that is not null, else the null, or None."""
    present = [name for name in names if name in fields]
    return fields.pop(next((name for name in present if fields[name] is not None), *present[:1])) if present else None


@lazy_dataclass(frozen=True, slots=True)
class SourceRemark:
    """A remark about a place in the source."""

    place: str
    reason: str


def time_of(value: Any) -> str | None:
    """Return a source's value as the time of a message, or None for what is no time."""
    is_time = isinstance(value, str) and len(value) <= TIME_CHARS and read_time(value) is not None
    return value if is_time else None


def take_meta(
    rest: dict[str, Any],
    place: str,
    warnings: list[SourceRemark],
    time_of_value: Callable[[Any], str | None],
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the metadata of a message: its id, its time, and ``metadata`` with the other fields in ``rest``.

    Id and time are removed from ``rest``; a time whose value says more than it stays.
    """
    meta, value = dict[str, Any](), cast("Any", rest.get("timestamp"))
    if is_text(rest.get("id"), MAX_NAME):
        meta["id"] = rest.pop("id")
    if (created_at := time_of_value(value)) is not None:
        meta["created_at"] = created_at
        if isinstance(value, str) or float(value).is_integer():
            del rest["timestamp"]
    elif value is not None:
        warnings.append(SourceRemark(place, "time_not_read"))
    kept = with_extra(metadata, rest)
    return meta | ({"metadata": kept} if kept else {})


@lazy_dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message to append. ``place`` is its name in the source; ``meta`` has only what the source gives.

    ``pieces`` are the parts that it was joined from. A log that was written when the source had fewer of them holds the first
    pieces as one message.
    """

    place: str
    body: dict[str, Any]
    meta: dict[str, Any] = field(default_factory=dict)
    pieces: tuple[SourceMessage, ...] = ()

    @property
    def created_at(self) -> str | None:
        """The time of the message, or None."""
        time = self.meta.get("created_at")
        return time if isinstance(time, str) else None


@lazy_dataclass(frozen=True, slots=True)
class SourceSession:
    """A session of a source.

    ``settings`` are fields of a new session, ``state`` is its state, ``extra`` holds all other fields of the source.
    ``skipped`` lists entries of the source that are not messages; they are kept in ``extra`` or in a message's metadata.
    ``last_sent_at`` is the time (RFC 3339) when the source last sent messages to the model. ``refusal`` is the error for a session
    that can't be read; the others of its file can.
    """

    id: str
    shape: str
    source_id: str
    format: str
    messages: tuple[SourceMessage, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    last_sent_at: str | None = None
    refusal: InvalidInputError | None = None
    skipped: tuple[SourceRemark, ...] = ()
    warnings: tuple[SourceRemark, ...] = ()

    @property
    def times(self) -> dict[str, str]:
        """The times of the first and last message, for a source whose session has no times of its own."""
        times = [message.created_at for message in self.messages if message.created_at is not None]
        return {"created_at": times[0], "updated_at": times[-1]} if times else {}


def session_id_of(source_id: str) -> str:
    """Return the source's id when it is valid, else an id derived from it; equal sources give equal ids."""
    try:
        return check_session_id(source_id)
    except InvalidInputError:
        return _digest_id(source_id)


def earlier_id(session_id: str) -> str:
    """Return the id that imports gave a session before ids could have ``@ : . + /``."""
    return session_id if safe_id(session_id) == session_id else _digest_id(session_id)


def _digest_id(source_id: str) -> str:
    digest = hashlib.sha256(source_id.encode("utf-8", "surrogatepass")).digest()
    return "i" + base64.b32encode(digest).decode("ascii").rstrip("=").lower()[:31]


def id_warnings(source_id: str) -> tuple[SourceRemark, ...]:
    """Return the warning that the session's id differs from the source's, or nothing."""
    return () if session_id_of(source_id) == source_id else (SourceRemark("session", MADE_ID),)


def with_extra(metadata: dict[str, Any] | None, extra: dict[str, Any]) -> dict[str, Any] | None:
    """Add ``extra`` to metadata under `IMPORTED`, or under that name with underscores when the source uses it."""
    if not extra:
        return metadata
    name, own = IMPORTED, metadata or {}
    while name in own:
        name += "_"
    return {**own, name: extra}


def objects_of(entries: Iterable[Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the entries of a list of messages that are objects, and all others, both by their places."""
    objects, others = dict[str, dict[str, Any]](), dict[str, Any]()
    for number, entry in enumerate(entries, start=1):
        (objects if isinstance(entry, dict) else others)[f"message {number}"] = entry
    return objects, others


def join_pieces(pieces: Sequence[SourceMessage]) -> SourceMessage:
    """Join pieces to one message: their blocks and lines, with the id and time of the first piece."""
    first = pieces[0]
    if len(pieces) == 1:
        return replace(first, pieces=(replace(first, pieces=()),))
    blocks = [block for piece in pieces for block in content_blocks(piece.body["content"], piece.place)]
    lines = [line for piece in pieces for line in piece.meta["metadata"][IMPORTED]["lines"]]
    meta = {**first.meta, "metadata": {IMPORTED: {"lines": lines}}}
    reasons = [piece.meta["finish_reason"] for piece in pieces if "finish_reason" in piece.meta]
    if reasons:
        meta["finish_reason"] = reasons[-1]
    return SourceMessage(first.place, {**first.body, "content": blocks}, meta, tuple(pieces))


class UnknownSourceError(InvalidInputError):
    """Raised when a file has no known shape, or not the one that the caller named."""

    code = "unknown_source"


class NewerSourceError(InvalidInputError):
    """Raised when a newer version of a program wrote the source. ``details["version"]`` is the source's version."""

    code = "newer_source"


class SourceChangedError(ConflictError):
    """Raised when the source differs from what was imported, or others have written to the session.

    ``details["place"]`` is the message of the source, ``details["position"]`` the message of the log.
    """

    code = "source_changed"


@dataclass(slots=True)
class SessionReport:
    """The report of one session.

    ``status``: ``new``, ``grown`` (messages were appended), ``settings`` (only settings or state were updated), ``same``,
    ``refused`` (``error`` says why; nothing was written after it) or ``skipped`` (nothing to import). Of the source's
    ``messages``, ``present`` were in the log before and ``written`` were appended. ``changed`` lists messages that were changed
    to fit, ``skipped`` entries that are not messages and are kept in metadata. ``more`` counts messages of the log that the
    source does not have, ``memories`` facts of long-term memory that came with an export.
    """

    file: str
    shape: str
    session_id: str
    source_id: str
    status: str
    messages: int = 0
    present: int = 0
    written: int = 0
    more: int = 0
    memories: int = 0
    changed: list[SourceRemark] = field(default_factory=list)
    skipped: list[SourceRemark] = field(default_factory=list)
    warnings: list[SourceRemark] = field(default_factory=list)
    first_at: str | None = None
    last_at: str | None = None
    error: TurnlogError | None = None

    @classmethod
    def of(cls, source: SourceSession, file: str) -> SessionReport:
        """Return the report of a session before anything is compared."""
        times = source.times
        return cls(
            file,
            source.shape,
            source.id,
            source.source_id,
            "same",
            messages=len(source.messages),
            skipped=list(source.skipped),
            warnings=list(source.warnings),
            first_at=times.get("created_at"),
            last_at=times.get("updated_at"),
        )

    def as_json(self) -> dict[str, Any]:
        names = ("file", "shape", "session_id", "source_id", "status")
        counts = ("messages", "present", "written", "more", "memories")
        lists = {name: list(map(asdict, getattr(self, name))) for name in ("changed", "skipped", "warnings")}
        times = {"first_at": self.first_at, "last_at": self.last_at}
        error = {"code": self.error.error_code, "detail": self.error.detail} if self.error is not None else None
        return {**{name: getattr(self, name) for name in (*names, *counts)}, **lists, **times, "error": error}


@dataclass(slots=True)
class Report:
    """The report of an import: a row for each session, in the sources' order. A dry run has other ``seconds`` and ``dry_run``."""

    sessions: list[SessionReport]
    dry_run: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no session was refused."""
        return all(row.status != "refused" for row in self.sessions)

    @property
    def written(self) -> int:
        """Number of messages that were appended."""
        return sum(row.written for row in self.sessions)

    def check(self) -> Report:
        """Return the report. Raises the error of the first refused session."""
        for row in self.sessions:
            if row.error is not None:
                raise row.error
        return self

    def as_json(self) -> dict[str, Any]:
        rows = self.sessions
        counts = Counter(row.status for row in rows)
        return {
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 3),
            "sessions": [row.as_json() for row in rows],
            "totals": {
                "sessions": len(rows),
                "status": dict(sorted(counts.items())),
                **{
                    name: sum(getattr(row, name) for row in rows)
                    for name in ("messages", "present", "written", "memories")
                },
                **{name: self.reasons(name) for name in ("changed", "skipped", "warnings")},
            },
        }

    def reasons(self, name: str) -> dict[str, int]:
        """Count the reasons of ``changed``, ``skipped`` or ``warnings``."""
        noted = [note.reason.split(" /")[0] for row in self.sessions for note in getattr(row, name)]
        return dict(sorted(Counter(noted).items()))
