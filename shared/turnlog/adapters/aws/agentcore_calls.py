"""Calls of AgentCore Memory's data plane: pages, and one translator of its errors. Only codes reach an error's text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from turnlog.adapters.aws.clients import Clients
from turnlog.domain.errors import MemoryConfigError, ThrottledError, UnavailableError

_THROTTLED = frozenset({"ThrottledException", "ThrottlingException", "ServiceQuotaExceededException"})
_PASSING = frozenset({"RetryableConflictException", "ServiceException", "RequestTimeout", "RequestTimeoutException"})
"""Codes that come with a 4xx status too, and pass."""


class AgentCoreCalls:
    """What is asked of one memory resource. The time-out is that of each try."""

    def __init__(self, clients: Clients, memory_id: str, *, timeout_seconds: int) -> None:
        self._clients = clients
        self._memory_id = memory_id
        self._timeout_seconds = timeout_seconds

    def pages(self, operation: str, field: str, **asked: Any) -> Iterator[list[Any]]:
        token: dict[str, str] = {}
        while True:
            answer = self.call(operation, maxResults=100, **token, **asked)
            with readable():
                page = list(answer[field])
                following = answer.get("nextToken")
            yield page
            if not following or token.get("nextToken") == following:
                return
            token = {"nextToken": str(following)}

    def call(self, operation: str, **asked: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            client = self._clients.open("bedrock-agentcore", read_timeout_seconds=self._timeout_seconds)
            call: Callable[..., Any] = getattr(client, operation)
            return call(memoryId=self._memory_id, **asked)
        except ClientError as error:
            # The message may repeat what was sent, so it must not stand in a traceback either.
            raise _refused(operation, error.response) from None
        except BotoCoreError as error:
            raise _broken(operation, error) from None
        except (ResponseParserError, ValueError, TypeError, AttributeError, RecursionError):
            # What botocore's parser meets in an answer of another protocol, an HTML page for one.
            raise unreadable() from None


def _refused(operation: str, response: Any) -> UnavailableError | MemoryConfigError:
    code = str(response.get("Error", {}).get("Code", ""))
    metadata = response.get("ResponseMetadata", {})
    status, header = int(metadata.get("HTTPStatusCode", 0)), metadata.get("HTTPHeaders", {}).get("retry-after", "")
    if code not in _PASSING and (code in _THROTTLED or status == 429):
        seconds = int(header[:4]) if header.isascii() and header.isdigit() else None
        return ThrottledError(f"AgentCore's {operation} was throttled", retry_after_seconds=seconds)
    # A code as AWS writes them; anything else could be somebody's text.
    known = code if code.isascii() and code.isalnum() and len(code) <= 80 else ""
    said = f"AgentCore's {operation} answered {status} {known}".rstrip()
    if code in _PASSING or not 400 <= status < 500:
        return UnavailableError(said)
    return MemoryConfigError(said, details={"memory_status": status})


def _broken(operation: str, error: Exception) -> UnavailableError | MemoryConfigError:
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
        return MemoryConfigError(f"AgentCore could not be asked: {type(error).__name__}")
    if isinstance(error, ReadTimeoutError):
        return UnavailableError(f"AgentCore's {operation} gave no answer in time", code="memory_timeout")
    return UnavailableError(f"AgentCore's {operation} gave no answer: {type(error).__name__}")


@contextmanager
def readable() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise unreadable() from None


def unreadable() -> UnavailableError:
    return UnavailableError("the answer of AgentCore is none of its protocol", code="memory_unreadable")
