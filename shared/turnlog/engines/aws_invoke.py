"""Translate errors of AWS services that are invoked rather than stored to: models, embeddings, a memory service.

Error texts contain only the service's codes. A service's message may repeat the request, so it must not appear in a traceback
either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnlog.core.errors import ThrottledError, TurnlogError, UnavailableError
from turnlog.core.lazy_dataclass import lazy_dataclass

_THROTTLED = frozenset(
    {"ServiceQuotaExceededException", "ThrottledException", "ThrottlingException", "TooManyRequestsException"}
)
_PASSING = frozenset(
    {
        "InternalServerException",
        "ModelErrorException",
        "ModelNotReadyException",
        "ModelTimeoutException",
        "RequestTimeout",
        "RequestTimeoutException",
        "RetryableConflictException",
        "ServiceException",
        "ServiceUnavailableException",
    }
)
"""Codes of passing failures, which may come with a 4xx status."""


@lazy_dataclass(frozen=True, slots=True)
class Service:
    """The errors of an AWS service that is invoked."""

    misconfigured: type[TurnlogError]
    """The error for failures that a retry can't fix, such as a missing permission."""
    status_field: str
    """The name of the HTTP status in the details of ``misconfigured``."""
    timed_out: str
    """The error code if no answer comes in time."""
    unreadable: str
    """The error code if an answer can't be read."""
    expected: str
    """The name of what the answer should contain, for the error text."""

    @contextmanager
    def asked(self, name: str) -> Iterator[None]:
        """Raise errors within the block as `ThrottledError`, `UnavailableError` or `misconfigured`; ``name`` is for their texts."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            yield
        except ClientError as error:
            raise self._refused(name, error.response) from None
        except BotoCoreError as error:
            raise self._broken(name, error) from None
        except (ResponseParserError, ValueError, TypeError, AttributeError, KeyError, RecursionError, OSError):
            # The answer follows another protocol, for example an HTML page: botocore's parser or the caller's reading fails.
            raise self.no_answer(name) from None

    def no_answer(self, name: str) -> UnavailableError:
        """Return the error for an answer that can't be read."""
        return UnavailableError(f"the answer of {name} can't be read as {self.expected}", code=self.unreadable)

    def _refused(self, name: str, response: Any) -> TurnlogError:
        code = str(response.get("Error", {}).get("Code", ""))
        metadata = response.get("ResponseMetadata", {})
        status, header = int(metadata.get("HTTPStatusCode", 0)), metadata.get("HTTPHeaders", {}).get("retry-after", "")
        if code not in _PASSING and (code in _THROTTLED or status == 429):
            seconds = int(header[:4]) if header.isascii() and header.isdigit() else None
            return ThrottledError(f"{name} was throttled", retry_after_seconds=seconds)
        # Only a code in the form of AWS's codes is quoted; anything else could be text of the request.
        quoted = code if code.isascii() and code.isalnum() and len(code) <= 80 else ""
        message = f"{name} answered {status} {quoted}".rstrip()
        if code in _PASSING or not 400 <= status < 500:
            return UnavailableError(message)
        return self.misconfigured(message, details={self.status_field: status})

    def _broken(self, name: str, error: Exception) -> TurnlogError:
        from botocore.exceptions import (
            CredentialRetrievalError,
            NoCredentialsError,
            NoRegionError,
            ParamValidationError,
            PartialCredentialsError,
            ReadTimeoutError,
        )

        wrong = (NoCredentialsError, PartialCredentialsError, NoRegionError, ParamValidationError)
        if isinstance(error, wrong) and not isinstance(error, CredentialRetrievalError):
            return self.misconfigured(f"{name} could not be called: {type(error).__name__}")
        if isinstance(error, ReadTimeoutError):
            return UnavailableError(f"{name} gave no answer in time", code=self.timed_out)
        return UnavailableError(f"{name} gave no answer: {type(error).__name__}")
