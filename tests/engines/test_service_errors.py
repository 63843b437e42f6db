"""What an AWS service that is invoked answers becomes one of three errors: throttled, down for now, or set up wrongly."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from turnlog.core.errors import SummariserConfigError, ThrottledError, TurnlogError, UnavailableError
from turnlog.engines.aws_errors import Service

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
