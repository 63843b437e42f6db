"""A model behind Amazon Bedrock's Converse API."""

from __future__ import annotations

from typing import Any

from turnlog.adapters.aws.clients import Clients
from turnlog.adapters.summarisers.model import Ending, ModelAnswer
from turnlog.adapters.summarisers.prompt import Prompt
from turnlog.domain.errors import SummariserConfigError, ThrottledError, UnavailableError
from turnlog.domain.summaries import TIMED_OUT, UNREADABLE

_THROTTLED = frozenset({"ThrottlingException", "TooManyRequestsException", "ServiceQuotaExceededException"})
_PASSING = frozenset(
    {
        "InternalServerException",
        "ModelErrorException",
        "ModelNotReadyException",
        "ModelTimeoutException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailableException",
    }
)
"""Codes that come with a 4xx status too, and pass."""
_ENDINGS: dict[Any, Ending] = {
    "max_tokens": "cut_off",
    "model_context_window_exceeded": "cut_off",
    "guardrail_intervened": "filtered",
    "content_filtered": "filtered",
}


class BedrockConverseModel:
    """Implements `ChatModel`. ``model`` is the id or ARN of a model or an inference profile.

    ``clients`` must make one try only (``max_attempts=1``): `ModelSummariser` makes the others.
    """

    def __init__(self, clients: Clients, model: str, *, timeout_seconds: int) -> None:
        self.name = f"bedrock:{model}"
        self._clients = clients
        self._model = model
        self._timeout_seconds = timeout_seconds

    def answer(self, prompt: Prompt, *, max_tokens: int) -> ModelAnswer:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            answer = self._clients.open("bedrock-runtime", read_timeout_seconds=self._timeout_seconds).converse(
                modelId=self._model,
                system=[{"text": prompt.system}],
                messages=[{"role": "user", "content": [{"text": prompt.record}]}],
                inferenceConfig={"maxTokens": max_tokens},
            )
        except ClientError as error:
            # The message may repeat what was sent, so it must not stand in a traceback either.
            raise self._error(error.response) from None
        except BotoCoreError as error:
            raise self._broken(error) from None
        except (ResponseParserError, ValueError, TypeError, AttributeError, RecursionError):
            # What botocore's parser meets in an answer of another protocol, an HTML page for one.
            raise self._unreadable() from None
        return self._read(answer)

    def _error(self, response: Any) -> UnavailableError | SummariserConfigError:
        code = str(response.get("Error", {}).get("Code", ""))
        metadata = response.get("ResponseMetadata", {})
        status, header = int(metadata.get("HTTPStatusCode", 0)), metadata.get("HTTPHeaders", {}).get("retry-after", "")
        if code not in _PASSING and (code in _THROTTLED or status == 429):
            seconds = int(header[:4]) if header.isascii() and header.isdigit() else None
            return ThrottledError(f"{self.name} was throttled", retry_after_seconds=seconds)
        if code in _PASSING or not 400 <= status < 500:
            return UnavailableError(f"{self.name} answered {status} {_known(code)}".rstrip())
        return SummariserConfigError(
            f"{self.name} answered {status} {_known(code)}".rstrip(), details={"model_status": status}
        )

    def _broken(self, error: Exception) -> UnavailableError | SummariserConfigError:
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
            return SummariserConfigError(f"{self.name} could not be asked: {type(error).__name__}")
        if isinstance(error, ReadTimeoutError):
            return UnavailableError(f"{self.name} gave no answer in time", code=TIMED_OUT)
        return UnavailableError(f"{self.name} gave no answer: {type(error).__name__}")

    def _unreadable(self) -> UnavailableError:
        return UnavailableError(f"the answer of {self.name} is none of Converse", code=UNREADABLE)

    def _read(self, answer: Any) -> ModelAnswer:
        try:
            blocks = answer["output"]["message"]["content"]
            # Reasoning comes in blocks of its own kind.
            text = "\n".join(block["text"] for block in blocks if "text" in block)
            usage = answer.get("usage", {})
            ending = _ENDINGS.get(answer.get("stopReason"), "done")
            return ModelAnswer(text, ending, usage.get("inputTokens"), usage.get("outputTokens"))
        except (KeyError, TypeError, AttributeError):
            raise self._unreadable() from None


def _known(code: str) -> str:
    """A code as AWS writes them; anything else could be somebody's text."""
    return code if code.isascii() and code.isalnum() and len(code) <= 80 else ""
