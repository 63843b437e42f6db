"""Bases and field types of the pydantic models of requests and answers."""

from __future__ import annotations

import base64
import hmac
import json
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from turnlog.core.errors import MalformedError
from turnlog.core.json_values import encode_ascii_json
from turnlog.core.limits import MAX_POSITION


def _json_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - pydantic makes a problem of a ValueError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a string")  # noqa: TRY004 - pydantic makes a problem of a ValueError
    return value


_ANY_OBJECT = {"type": "object", "additionalProperties": True}
JsonObjectField: TypeAlias = Annotated[dict[str, Any], PlainValidator(_json_object), WithJsonSchema(_ANY_OBJECT)]
"""Any JSON object that has passed `checked_json`, unchanged, also with lone surrogates, which pydantic's own types refuse."""
if TYPE_CHECKING:
    ProviderJson: TypeAlias = Any
else:
    ProviderJson = JsonObjectField
"""A JSON object in a provider's format. For a type checker it is any type, so that it fits the provider's own types."""
GivenText: TypeAlias = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string"})]
"""A caller's text in an answer, unchanged, also with lone surrogates."""
FormatName: TypeAlias = Literal[
    "openai_chat", "openai_responses", "anthropic", "bedrock_converse", "turnlog", "ai_sdk", "openai_agents_js"
]
FORMATS: tuple[str, ...] = get_args(FormatName)
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]
SNAPSHOT_NAME_PATTERN = r"^[^/\x00-\x1f]+$"
SnapshotName: TypeAlias = Annotated[str, Field(min_length=1, max_length=128, pattern=SNAPSHOT_NAME_PATTERN)]
ACTION_PATTERN = r"^[A-Za-z][A-Za-z0-9_.:-]{0,63}$"
Action: TypeAlias = Annotated[str, Field(pattern=ACTION_PATTERN)]
"""A caller's name for what an entry of the history records."""
SessionStatus: TypeAlias = Literal["active", "inactive", "ended"]
"""Status of a session. An inactive one had no message for as long as its settings allow; the next append reactivates it."""
Recall: TypeAlias = Literal["auto", "always", "never"]
"""Which windows have the recall tools: from the first one on that leaves something out, all, or none."""
MessageStatus: TypeAlias = Literal["complete", "interrupted"]
LoopStatus: TypeAlias = Literal["open", "closed", "interrupted"]
TIME_CHARS = 64


def _moment(value: object) -> int | str:
    if type(value) is int and 1 <= value <= MAX_POSITION:
        return value
    if isinstance(value, str) and len(value) <= TIME_CHARS:
        return value
    raise ValueError(f"{value!r:.64} is neither a position from 1 to the head nor a time such as 2026-01-31T12:00:00Z")


At: TypeAlias = Annotated[
    int | str,
    PlainValidator(_moment),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_POSITION},
                {"type": "string", "maxLength": TIME_CHARS},
            ]
        }
    ),
]
"""A position, or a time (RFC 3339)."""


_BUILDING = threading.RLock()


class _Deferred(BaseModel):
    """A model that is built at first use, by one thread.

    In Pydantic before 2.14 two threads may build a model at once, and a third then validates by the rules of the base class.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def model_rebuild(cls, *, force: bool = False, **options: Any) -> bool | None:
        with _BUILDING:
            return super().model_rebuild(force=force, **options)


class Body(_Deferred):
    """A request body. Unknown fields are refused, so that a field of a later version is never ignored silently."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(_Deferred):
    """An answer, to which later versions may add fields. ``answer["field"]`` reads the same as ``answer.field``."""

    # Every field is in each answer, so a schema says that each is required. An answer that leaves one out turns this off.
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    def __getitem__(self, name: str) -> Any:
        if name not in type(self).model_fields:
            raise KeyError(name)
        return getattr(self, name)


class ListAnswer(Answer):
    """An answer with one list and what belongs to it. Iterating over it, and its length, are those of the list."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    @property
    def _listed(self) -> list[Any]:
        return next(value for value in self.__dict__.values() if isinstance(value, list))


_SIGNATURE_BYTES = 16


class Cursors:
    """A writer and reader of page cursors, signed with a secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def write(self, place: Mapping[str, str], *, scope: str) -> str:
        """Return a cursor for a place in a list. It is valid only for requests of the same scope."""
        content = encode_ascii_json(dict(place))
        return base64.urlsafe_b64encode(self._sign(content, scope) + content).decode("ascii").rstrip("=")

    def read(self, cursor: str, *, scope: str) -> dict[str, str]:
        """Return the place in a cursor. Raises `MalformedError` for a cursor that is damaged or of another scope."""
        try:
            data = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except ValueError as error:
            raise MalformedError("the cursor is invalid", code="bad_cursor") from error
        signature, content = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._sign(content, scope)):
            raise MalformedError("the cursor is invalid or belongs to another request", code="bad_cursor")
        place: dict[str, str] = json.loads(content)
        return place

    def _sign(self, content: bytes, scope: str) -> bytes:
        return hmac.digest(self._secret, scope.encode() + b"\0" + content, "sha256")[:_SIGNATURE_BYTES]
