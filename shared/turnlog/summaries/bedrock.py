"""A model behind Amazon Bedrock's Converse API."""

from __future__ import annotations

from typing import Any

from turnlog.core.errors import SummariserConfigError
from turnlog.core.summaries import TIMED_OUT, UNREADABLE
from turnlog.engines.aws_clients import Clients, fitting
from turnlog.engines.aws_invoke import Service
from turnlog.summaries.model import Ending, ModelAnswer, Prompt

_CONVERSE = Service(SummariserConfigError, "model_status", TIMED_OUT, UNREADABLE, "Converse")
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
        with _CONVERSE.asked(self.name):
            seconds = fitting(self._timeout_seconds)
            answer = self._clients.open("bedrock-runtime", read_timeout_seconds=seconds).converse(
                modelId=self._model,
                system=[{"text": prompt.system}],
                messages=[{"role": "user", "content": [{"text": prompt.record}]}],
                inferenceConfig={"maxTokens": max_tokens},
            )
            return _read(answer)


def _read(answer: Any) -> ModelAnswer:
    blocks = answer["output"]["message"]["content"]
    # Reasoning comes in blocks of its own kind.
    text = "\n".join(block["text"] for block in blocks if "text" in block)
    usage = answer.get("usage", {})
    ending = _ENDINGS.get(answer.get("stopReason"), "done")
    return ModelAnswer(text, ending, usage.get("inputTokens"), usage.get("outputTokens"))
