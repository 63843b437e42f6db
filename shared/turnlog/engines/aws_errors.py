"""Translate botocore's errors to Turnlog's errors: of services that store data, and of services that are invoked.

Invoked are models, embeddings, a memory service. Error texts contain only the service's codes. A service's message may repeat
contents of requests and names of the account, so it must not appear in a traceback either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
)

from turnlog.core.errors import ThrottledError, TooLargeError, TurnlogError, UnavailableError
from turnlog.core.lazy_dataclass import lazy_dataclass

DENIED = "storage_denied"
"""Code of an `UnavailableError`: the credentials are missing, wrong or lack a permission, or the key is off or gone."""
MISSING = "storage_missing"
"""Code of an `UnavailableError`: the table, bucket or queue does not exist."""
REFUSED = "storage_refused"
"""Code of an `UnavailableError`: the request is invalid, or no region is set. A fault of the program; a retry won't help."""
_THROTTLED_CODES = frozenset(
    {
        "BandwidthLimitExceeded",
        "KMS.ThrottlingException",
        "KmsThrottled",
        "OverLimit",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "ServiceQuotaExceededException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
    }
)
_TOO_LARGE_CODES = frozenset(
    {"EntityTooLarge", "ItemCollectionSizeLimitExceededException", "RequestEntityTooLarge", "RequestTooLarge"}
)
_DENIED_CODES = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "KMS.AccessDeniedException",
        "KMS.DisabledException",
        "KMS.InvalidStateException",
        "KMS.NotFoundException",
        "KmsAccessDenied",
        "KmsDisabled",
        "KmsInvalidState",
        "KmsNotFound",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_MISSING_CODES = frozenset(
    {"AWS.SimpleQueueService.NonExistentQueue", "NoSuchBucket", "QueueDoesNotExist", "ResourceNotFoundException"}
)
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
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


@contextmanager
def translated(operation: str) -> Iterator[None]:
    """Raise botocore's errors within the block as Turnlog's, chained to the original."""
    try:
        yield
    except ParamValidationError as error:
        # botocore's text repeats the values of the request, so it must not appear in a traceback.
        raise translate(error, operation) from None
    except (ClientError, BotoCoreError) as error:
        raise translate(error, operation) from error


def error_code(error: ClientError) -> str:
    """Return the service's code of an error, such as ``ConditionalCheckFailedException``."""
    return str(error.response.get("Error", {}).get("Code", ""))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def translate(error: ClientError | BotoCoreError, operation: str) -> TurnlogError:
    """Return Turnlog's error for one of botocore's. An unknown error becomes `UnavailableError`: its effect is unknown too."""
    if isinstance(error, ClientError):
        return _from_code(error_code(error), _status(error), operation)
    if isinstance(error, _NO_CREDENTIALS):
        return UnavailableError(f"{operation} has no credentials", code=DENIED)
    if isinstance(error, ParamValidationError):
        return UnavailableError(f"{operation} was refused: its parameters are invalid", code=REFUSED)
    if isinstance(error, NoRegionError):
        message = f"{operation} has no region: set AWS_REGION, or region=… in the engine's URL"
        return UnavailableError(message, code=REFUSED)
    return UnavailableError(f"{operation} got no answer: {type(error).__name__}", retry_after_seconds=1)


def _from_code(code: str, status: int, operation: str) -> TurnlogError:
    if code in _THROTTLED_CODES or status == 429:
        return ThrottledError(f"{operation} was throttled: {code}", retry_after_seconds=1)
    if code in _TOO_LARGE_CODES or status == 413:
        return TooLargeError(f"{operation} was too large: {code}")
    if code in _MISSING_CODES:
        return UnavailableError(f"{operation} found no such table, bucket or queue: {code}", code=MISSING)
    if code in _DENIED_CODES or status in (401, 403):
        return UnavailableError(f"{operation} was denied: {code}", code=DENIED)
    if 400 <= status < 500:
        return UnavailableError(f"{operation} was refused: {code}", code=REFUSED)
    return UnavailableError(f"{operation} failed: {code}", retry_after_seconds=1)


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
        from botocore.parsers import ResponseParserError

        try:
            yield
        except ClientError as error:
            raise self._refused(name, error) from None
        except BotoCoreError as error:
            raise self._broken(name, error) from None
        except (ResponseParserError, ValueError, TypeError, AttributeError, KeyError, RecursionError, OSError):
            # The answer follows another protocol, for example an HTML page: botocore's parser or the caller's reading fails.
            raise self.no_answer(name) from None

    def no_answer(self, name: str) -> UnavailableError:
        """Return the error for an answer that can't be read."""
        return UnavailableError(f"the answer of {name} can't be read as {self.expected}", code=self.unreadable)

    def _refused(self, name: str, error: ClientError) -> TurnlogError:
        code, status = error_code(error), _status(error)
        header = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("retry-after", "")
        if code not in _PASSING and (code in _THROTTLED_CODES or status == 429):
            seconds = int(header[:4]) if header.isascii() and header.isdigit() else None
            return ThrottledError(f"{name} was throttled", retry_after_seconds=seconds)
        # Only a code in the form of AWS's codes is quoted; anything else could be text of the request.
        quoted = code if code.isascii() and code.isalnum() and len(code) <= 80 else ""
        message = f"{name} answered {status} {quoted}".rstrip()
        if code in _PASSING or not 400 <= status < 500:
            return UnavailableError(message)
        return self.misconfigured(message, details={self.status_field: status})

    def _broken(self, name: str, error: Exception) -> TurnlogError:
        if isinstance(error, (NoCredentialsError, PartialCredentialsError, NoRegionError, ParamValidationError)):
            return self.misconfigured(f"{name} could not be called: {type(error).__name__}")
        if isinstance(error, ReadTimeoutError):
            return UnavailableError(f"{name} gave no answer in time", code=self.timed_out)
        return UnavailableError(f"{name} gave no answer: {type(error).__name__}")
