"""From a problem document back to the error that the service raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnlog.domain import errors
from turnlog.domain.errors import Problem, TurnlogError

_FIELDS = frozenset({"type", "title", "status", "code", "detail", "request_id", "errors"})
_BY_STATUS: dict[int, type[TurnlogError]] = {
    400: errors.MalformedError,
    401: errors.UnauthorizedError,
    403: errors.ForbiddenError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    413: errors.TooLargeError,
    415: errors.UnsupportedMediaTypeError,
    422: errors.InvalidInputError,
    429: errors.ThrottledError,
    502: errors.UnavailableError,
    503: errors.UnavailableError,
    504: errors.UnavailableError,
}


def error_of(
    status: int, document: Any, *, url: str, retry_after_seconds: int | None = None, hint: str = ""
) -> TurnlogError:
    """The error of an answer: its class by ``code``, else by status; detail, problems and further fields as they were. ``hint`` is
    what may have answered where it was not Turnlog."""
    if not isinstance(document, dict) or not isinstance(document.get("code"), str):
        kind = _BY_STATUS.get(status, TurnlogError)
        detail = f"{url} answered {status}, but not as Turnlog does{hint and f': {hint}'}"
        return kind(detail, retry_after_seconds=retry_after_seconds)
    code, detail = document["code"], str(document.get("detail", ""))
    details = {name: value for name, value in document.items() if name not in _FIELDS and isinstance(value, int | str)}
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, TurnlogError)
    if issubclass(kind, errors.CorruptError):
        item = str(details.get("item", ""))
        return kind(detail.removesuffix(f" (item {item!r})"), item=item)
    return kind(
        detail,
        code=code,
        problems=tuple(_problems(document.get("errors"))),
        details=details,
        retry_after_seconds=retry_after_seconds,
    )


def _problems(entries: Any) -> Iterator[Problem]:
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            yield Problem(str(entry.get("code")), str(entry.get("pointer")), str(entry.get("message")))


def _tree(kind: type[TurnlogError]) -> Iterator[type[TurnlogError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


_BY_CODE = {kind.code: kind for kind in _tree(TurnlogError) if kind.__module__ == errors.__name__}
