"""Translate botocore's errors of DynamoDB, S3 and SQS to Turnlog's errors.

Error texts contain only the service's codes. A service's message may repeat contents of requests and names of the account.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from turnlog.core.errors import ThrottledError, TooLargeError, TurnlogError, UnavailableError

DENIED = "storage_denied"
"""Code of an `UnavailableError`: the credentials are missing, wrong or lack a permission, or the key is off or gone."""
MISSING = "storage_missing"
"""Code of an `UnavailableError`: the table, bucket or queue does not exist."""
REFUSED = "storage_refused"
"""Code of an `UnavailableError`: the service calls the request invalid. A fault of the program; a retry won't help."""

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
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "NoSuchBucket",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
    }
)
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)


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


def translate(error: ClientError | BotoCoreError, operation: str) -> TurnlogError:
    """Return Turnlog's error for one of botocore's. An unknown error becomes `UnavailableError`: its effect is unknown too."""
    if isinstance(error, ClientError):
        return _from_code(error_code(error), _status(error), operation)
    if isinstance(error, _NO_CREDENTIALS):
        return UnavailableError(f"{operation} has no credentials", code=DENIED)
    if isinstance(error, ParamValidationError):
        return UnavailableError(f"{operation} was refused: its parameters are invalid", code=REFUSED)
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


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
