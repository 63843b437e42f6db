"""Calls of the route table over HTTP, with the standard library only.

A call is tried again when the connection fails, when no answer comes, and on 429, 502, 503 and 504. All tries of a writing call
carry one idempotency key, so repeated tries have one effect, even when only the answer was lost. When an error leaves open
whether the call had its effect, its details have the key.
"""

from __future__ import annotations

import hashlib
import http.client
import math
import re
import shutil
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel, ValidationError

from turnlog import __version__
from turnlog.client.aws import Aws, signer_of
from turnlog.client.connections import Connections, HttpAnswer, HttpCall
from turnlog.core import errors
from turnlog.core.errors import InvalidInputError, NotFoundError, Problem, TooLargeError, TurnlogError, UnavailableError
from turnlog.core.identity import check_agent_id, check_session_id, correlation_id
from turnlog.core.json_values import checked_json, encode_json
from turnlog.core.limits import MAX_BODY_BYTES, MAX_EVENT_BODY_BYTES, MAX_UPLOAD_BYTES, event_bytes
from turnlog.engines import RandomIds, SystemClock, shown_url
from turnlog.engines.http_post import open_connection, send, web_address
from turnlog.jobs.models import Redriven
from turnlog.log.keys import check_record_id
from turnlog.log.request_keys import checked_key
from turnlog.ports import Clock, IdSource
from turnlog.providers.blocks import objects_in
from turnlog.routing import BY_NAME, CORRELATION_HEADER, JSON, Route

if TYPE_CHECKING:
    from turnlog.upkeep.backup import Backup
    from turnlog.upkeep.verify import Verification

Seconds = TypeVar("Seconds", bound=float | None)


@contextmanager
def _exchanged(
    method: str, url: str, data: bytes | None, left_seconds: Callable[[], float], what: str
) -> Iterator[http.client.HTTPResponse]:
    """Send a request to the storage, and yield its answer. Raises `UnavailableError` when the exchange breaks."""
    parts = urlsplit(url)
    connection = open_connection(parts)
    try:
        connection.timeout = left_seconds()
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        yield send(connection, method, target, {}, data, left_seconds)
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"the {what} was interrupted: {_reason(error)}", code=f"{what}_failed") from error
    finally:
        connection.close()


def fetch(url: str, into: BinaryIO, left_seconds: Callable[[], float] = lambda: 30.0) -> None:
    """Write the bytes behind a URL to ``into``, in pieces, each within ``left_seconds()``.

    Raises `NotFoundError` if there are none or the link has expired, and `UnavailableError` for an answer that is not whole.
    """
    with _exchanged("GET", url, None, left_seconds, "download") as answer:
        if answer.status in (403, 404, 410):
            raise NotFoundError("the download link has expired: request a new one", code="link_expired")
        if answer.status != 200:
            raise UnavailableError(f"the storage answered {answer.status}", code="download_failed")
        shutil.copyfileobj(answer, into)
        if answer.length:  # the library says nothing of a body that ends early
            raise UnavailableError(f"the download ended {answer.length} bytes early", code="download_failed")


def put(url: str, data: bytes, left_seconds: Callable[[], float] = lambda: 30.0) -> None:
    """Upload bytes to a URL. Raises `UnavailableError` when the storage does not take them; the call may be repeated."""
    with _exchanged("PUT", url, data, left_seconds, "upload") as answer:
        if answer.status != 200:
            raise UnavailableError(f"the storage answered {answer.status} to an upload", code="upload_failed")


def _is_too_large_to_send(data: bytes) -> bool:
    """Return whether a service on AWS could not take the body: a function's event has it with escapes."""
    is_near = 2 * len(data) > MAX_EVENT_BODY_BYTES
    return len(data) > MAX_BODY_BYTES or (is_near and event_bytes(data) > MAX_EVENT_BODY_BYTES)


_FIELDS = frozenset({"type", "title", "status", "code", "detail", "request_id", "errors"})
_BY_STATUS: Mapping[int, type[TurnlogError]] = {**errors.STATUSES, 502: UnavailableError, 504: UnavailableError}


def error_of(
    status: int, document: Any, *, url: str, retry_after_seconds: int | None = None, hint: str = ""
) -> TurnlogError:
    """Return the error of an answer: its class by ``code``, else by status; detail, problems and further fields as they came.

    ``hint`` names a likely cause when the answer is not Turnlog's.
    """
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
        problems=[
            Problem(str(entry.get("code")), str(entry.get("pointer")), str(entry.get("message")))
            for entry in objects_in(document.get("errors"))
        ],
        details=details,
        retry_after_seconds=retry_after_seconds,
    )


_KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TurnlogError)]
_BY_CODE = {kind.code: kind for kind in _KINDS}

TENANT_HEADER, USER_HEADER, KEY_HEADER = "X-Turnlog-Tenant", "X-Turnlog-User", "Idempotency-Key"
MAX_WAIT_SECONDS = 20.0
"""Longest pause between two tries of a call without a deadline. After a longer ``Retry-After`` there is no second try."""
_SEE_OTHER = 303
_RETRIED = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_SECONDS = 0.1
_AWS_KIND = re.compile(r"[A-Za-z]{1,64}")


def _check_name(value: str) -> str:
    if not value or "/" in value:
        raise NotFoundError(f"no snapshot {value[:80]!r}")
    if value in (".", ".."):
        # A proxy would resolve it as a step in the path.
        raise InvalidInputError(
            f"a snapshot named {value!r} can be reached only by its id over HTTP", code="invalid_name"
        )
    return value


def _check_part(value: str) -> str:
    if not value or "/" in value or value in (".", ".."):
        raise NotFoundError(f"nothing is called {value[:80]!r}")
    return value


_CHECKS: dict[str, Callable[[str], object]] = {
    "session_id": check_session_id,
    "agent_id": check_agent_id,
    "job_id": check_record_id,
    "snapshot": _check_name,
    "position": _check_part,
    "memory_id": _check_part,
}


class HttpBackend:
    """`Backend` over a service at ``url`` (``http://host:port`` or ``https://host/stage``). Threads may share it.

    ``tenant`` and ``user`` are sent as headers when set. ``token`` is the bearer token; ``aws`` says how requests are signed
    (see `signer_of`). ``timeout_seconds`` limits connecting and each wait for an answer, ``deadline_seconds`` a call with all
    its tries and pauses. Connections stay open between calls, at most one per concurrent call.
    """

    def __init__(  # noqa: PLR0913
        self,
        url: str,
        *,
        tenant: str | None = None,
        user: str | None = None,
        token: str | None = None,
        aws: Aws | bool | None = None,
        timeout_seconds: float = 30.0,
        deadline_seconds: float | None = None,
        max_tries: int = 5,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        base = web_address(url)
        if base is None or not url.isascii():
            message = f"{shown_url(url)!r} is not the address of a service: http[s]://HOST[:PORT][/STAGE]"
            raise InvalidInputError(message, code="invalid_url")
        self._prefix = base.path.rstrip("/")
        self._origin = f"{base.scheme}://{base.netloc}"
        self.url = self._origin + self._prefix
        self._headers = {"Accept": "application/json", "User-Agent": f"turnlog-python/{__version__}"}
        for name, value in ((TENANT_HEADER, tenant), (USER_HEADER, user)):
            if value is not None:
                self._headers[name] = header_value(name, value)
        if token is not None:
            self._headers["Authorization"] = "Bearer " + header_value("token", token)
        self._signer = signer_of(base, aws, has_token=token is not None)
        self.deadline_seconds = _seconds("deadline_seconds", deadline_seconds)
        self._max_tries = max_tries
        self._clock = clock if clock is not None else SystemClock()
        self._ids = ids if ids is not None else RandomIds()
        timeout_seconds = _seconds("timeout_seconds", timeout_seconds)
        self._connections = Connections(base, timeout_seconds=timeout_seconds, clock=self._clock)

    def __str__(self) -> str:
        owner = (
            (name, self._headers.get(header)) for name, header in (("tenant", TENANT_HEADER), ("user", USER_HEADER))
        )
        return ", ".join([self.url, *(f"{name}={value!r}" for name, value in owner if value is not None)])

    def call(
        self,
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | BaseModel | None = None,
        idempotency_key: str | None = None,
        media_type: str | None = None,
    ) -> Any:
        route = BY_NAME[operation]
        headers = dict(self._headers)
        if (correlation := correlation_id()) is not None:
            headers[CORRELATION_HEADER] = correlation
        data: bytes | None = None
        if isinstance(body, BaseModel):
            body = body.model_dump(exclude_unset=True)
        if body is not None:
            data = encode_json(checked_json(body))
            most_bytes = MAX_UPLOAD_BYTES if operation == "append_messages" else MAX_BODY_BYTES
            if len(data) > most_bytes:  # a server may close the connection before the answer that says so can be read
                text = f"a body of {len(data):,} bytes is over the limit of {most_bytes:,} for this request over HTTP"
                raise TooLargeError(f"{text}; send less at once, or use the engine in process")
            headers["Content-Type"] = media_type or JSON
        if route.writes:
            key = self._ids.new_id() if idempotency_key is None else checked_key(idempotency_key)
            headers[KEY_HEADER] = header_value("idempotency_key", key)
        call = HttpCall(route.method, self._prefix + _target(route, path or {}, query or {}), data, headers)
        deadline_seconds = self.deadline_seconds
        ends_ms = self._clock.now_ms() + round(deadline_seconds * 1000) if deadline_seconds is not None else None
        if operation == "append_messages" and data is not None and _is_too_large_to_send(data):
            call = self._uploaded(call, data, ends_ms)
        answer = self._tried(call, ends_ms)
        if answer.status == _SEE_OTHER:
            answer = self._stored(answer, ends_ms)
        if answer.status >= 300:
            raise self.error_of_answer(answer, data)
        return self.parsed_answer(route, answer)

    def forward(self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]) -> HttpAnswer:
        """Send a request as it is, with this backend's identity, and return the answer, whatever its status.

        ``target`` is the encoded path and query. An answer that was too large to send is fetched.
        """
        answer = self._tried(HttpCall(method, self._prefix + target, data, {**self._headers, **headers}))
        return self._stored(answer) if answer.status == _SEE_OTHER else answer

    def run_jobs(self) -> int:
        return 0

    def run_job(self, job_id: str) -> None:
        """Do nothing: a service does its own jobs."""

    def download(self, url: str, into: BinaryIO, ends_ms: int | None = None) -> None:
        if urlsplit(url).scheme:
            fetch(url, into, partial(self._connections.left_seconds, ends_ms))
            return
        answer = self._tried(HttpCall("GET", self._prefix + url, None, dict(self._headers)), ends_ms)
        if answer.status >= 300:
            raise self.error_of_answer(answer)
        into.write(answer.data)

    def _uploaded(self, call: HttpCall, data: bytes, ends_ms: int | None) -> HttpCall:
        """Upload the body of a call to the address that the service names, and return the call with a reference to it.

        Returns the call itself where the service takes it as it is.
        """
        upload: dict[str, Any] = {"upload": hashlib.sha256(data).hexdigest()}
        ask = replace(call, data=encode_json({**upload, "size_bytes": len(data)}))
        answer = self._tried(ask, ends_ms)
        place = answer.json()
        if answer.status >= 300 or not isinstance(place, dict) or "url" not in place:
            raise self.error_of_answer(answer, data)
        if place["url"] is None:
            return call
        put(place["url"], data, partial(self._connections.left_seconds, ends_ms))
        return replace(call, data=encode_json(upload))

    def _stored(self, answer: HttpAnswer, ends_ms: int | None = None) -> HttpAnswer:
        """Fetch an answer that was too large to send, from the URL that was sent in its place."""
        place, content = answer.json(), BytesIO()
        if not isinstance(place, dict) or not isinstance(place.get("url"), str) or type(place.get("status")) is not int:
            raise UnavailableError(f"{self.url} answered {_SEE_OTHER}, but not as Turnlog does", code="not_turnlog")
        self.download(place["url"], content, ends_ms)
        return replace(answer, status=place["status"], data=content.getvalue())

    def redrive(self, job_id: str | None, *, failed: bool) -> Redriven:
        raise _needs_engine(
            "does not redrive jobs: open its engine, sqlite:///PATH or dynamodb://TABLE?bucket=B&queue=Q"
        )

    def verify(self, session_id: str | None, progress: Callable[[Verification], None]) -> Verification:
        raise _needs_engine("is not verified from outside: open its file, sqlite:///PATH")

    def back_up(self, path: Path, progress: Callable[[Verification], None]) -> Backup:
        raise _needs_engine("is not backed up from outside: open its file, sqlite:///PATH")

    def close(self) -> None:
        self._connections.close()

    def _tried(self, call: HttpCall, ends_ms: int | None = None) -> HttpAnswer:
        """Try a request until it is answered, and return the last answer. Raises `UnavailableError` when there is none."""
        pause_seconds, tries_left = _FIRST_PAUSE_SECONDS, self._max_tries
        while True:
            tries_left -= 1
            wait_seconds = pause_seconds * (0.5 + self._ids.jitter() / 2)
            try:
                answer = self._connections.exchange(self._signed(call), ends_ms)
            except (OSError, http.client.HTTPException) as error:
                if wait_seconds >= self._left_seconds(ends_ms):
                    raise self._unanswered(call, f"{_reason(error)}; time is up", code="deadline_exceeded") from error
                if not tries_left or isinstance(error, ssl.SSLCertVerificationError):
                    raise self._unanswered(call, _reason(error), code="unreachable") from error
            else:
                if answer.status not in _RETRIED or not tries_left:
                    return answer
                wait_seconds = max(wait_seconds, float(answer.retry_after_seconds or 0))
                if wait_seconds > (MAX_WAIT_SECONDS if ends_ms is None else self._left_seconds(ends_ms)):
                    return answer
            self._clock.sleep(wait_seconds)
            pause_seconds *= 2

    def _signed(self, call: HttpCall) -> HttpCall:
        """Sign one try. Each try needs its own signature: one is valid for minutes, and credentials may change."""
        if self._signer is None:
            return call
        url = f"{self._origin}{call.target}"
        return replace(call, headers=self._signer.signed(call.method, url, call.headers, call.data))

    def _left_seconds(self, ends_ms: int | None) -> float:
        return (ends_ms - self._clock.now_ms()) / 1000 if ends_ms is not None else math.inf

    def _unanswered(self, call: HttpCall, reason: str, *, code: str) -> UnavailableError:
        key = call.headers.get(KEY_HEADER)
        details = {"idempotency_key": key} if key is not None else {}
        return UnavailableError(f"can't reach {self.url}: {reason}", code=code, details=details)

    def parsed_answer(self, route: Route, answer: HttpAnswer) -> Any:
        """Return the answer as the route's model. Raises `UnavailableError` when the body does not fit it."""
        document = answer.json()
        if not route.answers and isinstance(document, dict):
            return document
        try:
            # Not `model_validate_json`: pydantic's own parser refuses escaped lone surrogates, which Turnlog keeps.
            return route.answers[answer.status].model_validate(document)
        except (KeyError, ValidationError) as error:
            message = f"{self.url} answered {answer.status}, but not as Turnlog does"
            raise UnavailableError(message, code="not_turnlog") from error

    def error_of_answer(self, answer: HttpAnswer, data: bytes | None = None) -> TurnlogError:
        """Return the error of an answer, with a hint about its cause where the answer is not Turnlog's."""
        document = answer.json()
        is_ours = isinstance(document, dict) and "code" in document
        if not is_ours and data is not None and (size := event_bytes(data)) > MAX_EVENT_BODY_BYTES:
            message = f"{self.url} answered {answer.status}: a request of {size} bytes, with quotes counted twice, is too large"
            return TooLargeError(f"{message} for a function, which takes {MAX_EVENT_BODY_BYTES}; send less at once")
        hint, kind = "", _AWS_KIND.match(answer.headers.get("x-amzn-ErrorType", ""))
        if self._signer is not None and answer.status in (401, 403):
            hint = f"AWS refused the credentials or their rights ({kind[0] if kind else 'no reason given'})"
        retry_after = answer.retry_after_seconds
        return error_of(answer.status, document, url=self.url, retry_after_seconds=retry_after, hint=hint)


def _needs_engine(detail: str) -> InvalidInputError:
    return InvalidInputError(f"a service {detail}", code="needs_engine")


def header_value(name: str, value: str) -> str:
    """Return the value of a header. Raises `InvalidInputError`, which does not repeat it, for one that HTTP would change."""
    if not value or value != value.strip() or not value.isprintable():
        raise InvalidInputError(f"{name} is empty, begins or ends with a space, or is not printable")
    return value


def _seconds(name: str, value: Seconds) -> Seconds:
    if value is not None and not 0 < value < math.inf:
        raise InvalidInputError(f"{name} must be a number above 0, not {value!r}")
    return value


def _target(route: Route, path: Mapping[str, str], query: Mapping[str, str | int | None]) -> str:
    """Return the path and query of a route. Raises an error for a part that can't be in a path."""
    for name, value in path.items():
        # Checked before it goes into a path, where "" or "a/b" would match another route.
        _CHECKS[name](value)
    # A gateway decodes a path before it looks for the route, so the slash of an id is encoded twice.
    target = route.path.format(**{name: quote(value.replace("/", "%2F"), safe="") for name, value in path.items()})
    parameters = {name: str(value) for name, value in query.items() if value is not None}
    # Spaces as %20: the signature covers the text that is sent, and "+" is not canonical there.
    return f"{target}?{urlencode(parameters, safe='', quote_via=quote)}" if parameters else target


def _reason(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:] or type(error).__name__
