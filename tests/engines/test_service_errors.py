"""What an AWS service that is invoked answers becomes one of three errors: throttled, down for now, or set up wrongly."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    CredentialRetrievalError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
)

from turnlog.core.errors import SummariserConfigError, ThrottledError, TooLargeError, TurnlogError, UnavailableError
from turnlog.engines.aws_errors import DENIED, MISSING, REFUSED, Service, translate

SERVICE = Service(SummariserConfigError, "model_status", "late", "unreadable", "a summary")


def refused(status: int, code: str, **headers: str) -> TurnlogError:
    response: Any = {
        "Error": {"Code": code, "Message": "CANARY"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    with pytest.raises(TurnlogError) as caught, SERVICE.asked("the model"):
        raise ClientError(response, "Converse")
    assert "CANARY" not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, UnavailableError),
        (200, UnavailableError),
        (399, UnavailableError),
        (400, SummariserConfigError),
        (404, SummariserConfigError),
        (429, ThrottledError),
        (499, SummariserConfigError),
        (500, UnavailableError),
        (503, UnavailableError),
        (599, UnavailableError),
    ],
)
def test_the_status_decides_about_an_unknown_code(status: int, expected: type[TurnlogError]) -> None:
    error = refused(status, "NewlyInvented")
    assert type(error) is expected
    if expected is SummariserConfigError:
        assert error.details == {"model_status": status}
        assert str(error.detail) == f"the model answered {status} NewlyInvented"


@pytest.mark.parametrize("status", [400, 429, 500])
@pytest.mark.parametrize("code", ["ModelErrorException", "ModelNotReadyException", "ServiceUnavailableException"])
def test_a_passing_failure_is_one_whatever_its_status(code: str, status: int) -> None:
    assert type(refused(status, code)) is UnavailableError


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("code", ["ThrottlingException", "ServiceQuotaExceededException"])
def test_a_throttled_call_is_one_whatever_its_status(code: str, status: int) -> None:
    assert type(refused(status, code)) is ThrottledError


@pytest.mark.parametrize(("header", "seconds"), [("7", 7), ("12345", 1234), ("", None), ("soon", None), ("٣", None)])
def test_a_throttled_call_says_how_long_to_wait_where_the_service_does(header: str, seconds: int | None) -> None:
    assert refused(429, "X", **{"retry-after": header}).retry_after_seconds == (
        seconds if seconds is not None else ThrottledError("x").retry_after_seconds
    )


@pytest.mark.parametrize(
    ("code", "quoted"),
    [("A" * 80, True), ("A" * 81, False), ("with space", False), ("Ünicode", False), ("", False)],
)
def test_only_what_looks_like_a_code_is_quoted(code: str, quoted: bool) -> None:
    assert str(refused(400, code).detail) == ("the model answered 400" + (f" {code}" if quoted else ""))


@pytest.mark.parametrize("error", [ValueError("x"), TypeError("x"), AttributeError("x"), KeyError("x"), OSError("x")])
def test_an_answer_that_can_not_be_read_says_what_it_should_be(error: Exception) -> None:
    with pytest.raises(UnavailableError) as caught, SERVICE.asked("the model"):
        raise error
    assert caught.value.error_code == "unreadable"
    assert str(caught.value.detail) == "the answer of the model can't be read as a summary"


NO_KEY = NoCredentialsError()
HALF_A_KEY = PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY")
NO_SOURCE = CredentialRetrievalError(provider="iam-role", error_msg="CANARY")
INVALID = ParamValidationError(report="CANARY")
LATE = ReadTimeoutError(endpoint_url="CANARY")
CLOSED = ConnectionClosedError(endpoint_url="CANARY")


@pytest.mark.parametrize(
    ("error", "expected", "code", "told"),
    [
        (NO_KEY, SummariserConfigError, "summariser_misconfigured", "could not be called: NoCredentialsError"),
        (HALF_A_KEY, SummariserConfigError, "summariser_misconfigured", "could not be called: PartialCredentialsError"),
        (NoRegionError(), SummariserConfigError, "summariser_misconfigured", "could not be called: NoRegionError"),
        (INVALID, SummariserConfigError, "summariser_misconfigured", "could not be called: ParamValidationError"),
        (NO_SOURCE, UnavailableError, "unavailable", "gave no answer: CredentialRetrievalError"),
        (LATE, UnavailableError, "late", "gave no answer in time"),
        (CLOSED, UnavailableError, "unavailable", "gave no answer: ConnectionClosedError"),
    ],
    ids=repr,
)
def test_a_call_without_an_answer_says_whether_a_retry_may_help(
    error: BotoCoreError, expected: type[TurnlogError], code: str, told: str
) -> None:
    with pytest.raises(TurnlogError) as caught, SERVICE.asked("the model"):
        raise error
    assert (type(caught.value), caught.value.error_code) == (expected, code)
    assert str(caught.value.detail) == f"the model {told}"
    assert caught.value.__cause__ is None


# ------------------------------------------------------------ services that store data


@pytest.mark.parametrize(
    ("status", "code", "expected", "error_code", "retry_after_seconds"),
    [
        (0, "New", UnavailableError, "unavailable", 1),
        (399, "New", UnavailableError, "unavailable", 1),
        (400, "New", UnavailableError, REFUSED, None),
        (401, "New", UnavailableError, DENIED, None),
        (403, "New", UnavailableError, DENIED, None),
        (404, "New", UnavailableError, REFUSED, None),
        (412, "New", UnavailableError, REFUSED, None),
        (413, "New", TooLargeError, "too_large", None),
        (414, "New", UnavailableError, REFUSED, None),
        (429, "New", ThrottledError, "throttled", 1),
        (499, "New", UnavailableError, REFUSED, None),
        (500, "New", UnavailableError, "unavailable", 1),
        (503, "SlowDown", ThrottledError, "throttled", 1),
        (404, "NoSuchBucket", UnavailableError, MISSING, None),
        (503, "AccessDenied", UnavailableError, DENIED, None),
        (500, "EntityTooLarge", TooLargeError, "too_large", None),
    ],
)
def test_a_stored_items_error_has_its_code_and_says_when_to_come_back(
    status: int, code: str, expected: type[TurnlogError], error_code: str, retry_after_seconds: int | None
) -> None:
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status} if status else {}}
    error = translate(ClientError(response, "PutItem"), "PutItem")
    assert (type(error), error.error_code, error.retry_after_seconds) == (expected, error_code, retry_after_seconds)


@pytest.mark.parametrize(
    ("error", "code", "retry_after_seconds"),
    [
        (NO_KEY, DENIED, None),
        (HALF_A_KEY, DENIED, None),
        (NO_SOURCE, DENIED, None),
        (INVALID, REFUSED, None),
        (LATE, "unavailable", 1),
        (NoRegionError(), REFUSED, None),
    ],
    ids=repr,
)
def test_a_store_that_gives_no_answer_says_why_and_when_to_come_back(
    error: BotoCoreError, code: str, retry_after_seconds: int | None
) -> None:
    translated = translate(error, "PutItem")
    assert type(translated) is UnavailableError
    assert (translated.error_code, translated.retry_after_seconds) == (code, retry_after_seconds)
    assert "CANARY" not in str(translated)
