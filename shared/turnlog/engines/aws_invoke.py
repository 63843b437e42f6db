"""Services of AWS that are asked for what they make or know: models, embeddings, a memory. Their errors in our words.

Only codes reach an error's text: a message may repeat what was sent, so it must not stand in a traceback either.
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
"""Codes that come with a 4xx status too, and pass."""


@lazy_dataclass(frozen=True, slots=True)
class Service:
    """What is asked. ``misconfigured`` is raised for what no trying again mends; its ``status_field`` holds the status."""

    misconfigured: type[TurnlogError]
    status_field: str
    timed_out: str
    """The code when no answer comes in time."""
    unreadable: str
    """The code for an answer that is none, and ``expected`` is what was not in it."""
    expected: str

    @contextmanager
    def asked(self, name: str) -> Iterator[None]:
        """What botocore raises within the block, as `ThrottledError`, `UnavailableError` or the service's own error."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            yield
        except ClientError as error:
            raise self._refused(name, error.response) from None
        except BotoCoreError as error:
            raise self._broken(name, error) from None
        except (ResponseParserError, ValueError, TypeError, AttributeError, KeyError, RecursionError, OSError):
            # What botocore's parser, or who reads its answer, meets in one of another protocol, an HTML page for one.
            raise self.no_answer(name) from None

    def no_answer(self, name: str) -> UnavailableError:
        return UnavailableError(f"the answer of {name} is none of {self.expected}", code=self.unreadable)

    def _refused(self, name: str, response: Any) -> TurnlogError:
        code = str(response.get("Error", {}).get("Code", ""))
        metadata = response.get("ResponseMetadata", {})
        status, header = int(metadata.get("HTTPStatusCode", 0)), metadata.get("HTTPHeaders", {}).get("retry-after", "")
        if code not in _PASSING and (code in _THROTTLED or status == 429):
            seconds = int(header[:4]) if header.isascii() and header.isdigit() else None
            return ThrottledError(f"{name} was throttled", retry_after_seconds=seconds)
        # A code as AWS writes them; anything else could be somebody's text.
        known = code if code.isascii() and code.isalnum() and len(code) <= 80 else ""
        said = f"{name} answered {status} {known}".rstrip()
        if code in _PASSING or not 400 <= status < 500:
            return UnavailableError(said)
        return self.misconfigured(said, details={self.status_field: status})

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
            return self.misconfigured(f"{name} could not be asked: {type(error).__name__}")
        if isinstance(error, ReadTimeoutError):
            return UnavailableError(f"{name} gave no answer in time", code=self.timed_out)
        return UnavailableError(f"{name} gave no answer: {type(error).__name__}")
