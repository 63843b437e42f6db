"""Models on Amazon Bedrock: a chat model behind the Converse API, and embeddings.

Titan models take one call for each text, Cohere models one call for up to `MAX_TEXTS` texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from turnlog.core.errors import EmbedderConfigError, SummariserConfigError, UnavailableError
from turnlog.core.limits import seconds_left
from turnlog.core.summaries import TIMED_OUT, UNREADABLE
from turnlog.engines.aws_clients import Clients, fitting
from turnlog.engines.aws_errors import Service
from turnlog.ports import Ending, ModelAnswer, Prompt

_CONVERSE = Service(SummariserConfigError, "model_status", TIMED_OUT, UNREADABLE, "Converse")
_ENDINGS: dict[Any, Ending] = {
    "max_tokens": "cut_off",
    "model_context_window_exceeded": "cut_off",
    "guardrail_intervened": "filtered",
    "content_filtered": "filtered",
}
DIMENSIONS = 256
"""Dimensions of Titan vectors. By Amazon's figures, 256 dimensions keep 97 % of the accuracy of 1,024."""
MAX_TEXTS = 96
"""Texts in one call of a Cohere model, the API's limit."""
_PARALLEL = 8
_VECTORS = Service(EmbedderConfigError, "model_status", "embedder_timeout", "embedder_unreadable", "vectors")


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
            blocks, usage = answer["output"]["message"]["content"], answer.get("usage", {})
            # Reasoning comes in blocks of its own kind.
            text = "\n".join(block["text"] for block in blocks if "text" in block)
            ending = _ENDINGS.get(answer.get("stopReason"), "done")
            return ModelAnswer(text, ending, usage.get("inputTokens"), usage.get("outputTokens"))


class BedrockEmbedder:
    """Implements `Embedder`. Each call is tried once; ``timeout_seconds`` bounds all calls of one `embed` together."""

    def __init__(self, clients: Clients, model: str, *, timeout_seconds: int) -> None:
        """``model`` is the id of a model or inference profile; the id contains ``titan-embed`` or ``cohere.embed``."""
        self.name = f"bedrock:{model}"
        self._clients = clients
        self._model = model
        self._timeout_seconds = timeout_seconds
        self._is_titan = "titan-embed" in model
        if not (self._is_titan or "cohere.embed" in model):
            detail = f"unknown embedding model {model!r}; its id must contain titan-embed or cohere.embed"
            raise EmbedderConfigError(detail)

    def embed(self, texts: Sequence[str], *, as_question: bool = False) -> list[Sequence[float]]:
        if self._is_titan:
            calls = [lambda text=text: [self._titan(text)] for text in texts]
        else:
            parts = [texts[first : first + MAX_TEXTS] for first in range(0, len(texts), MAX_TEXTS)]
            calls = [lambda part=part: self._cohere(part, as_question) for part in parts]
        embeddings = [embedding for batch in self._in_parallel(calls) for embedding in batch]
        if len(embeddings) != len(texts) or not all(map(_is_vector, embeddings)) or len(set(map(len, embeddings))) > 1:
            raise _VECTORS.no_answer(self.name)
        return embeddings

    def _in_parallel(self, calls: Sequence[Callable[[], list[Sequence[float]]]]) -> list[list[Sequence[float]]]:
        from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

        pool = ThreadPoolExecutor(_PARALLEL)
        try:
            futures = [pool.submit(call) for call in calls]
            timeout = max(0, min(self._timeout_seconds, seconds_left()))
            done, left = wait(futures, timeout=timeout, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            if left:
                raise UnavailableError(f"{self.name} gave no answer in time", code="embedder_timeout")
            return [future.result() for future in futures]
        finally:
            # Calls that are still running end with their own time-out; nobody waits for them.
            pool.shutdown(wait=False, cancel_futures=True)

    def _titan(self, text: str) -> Sequence[float]:
        body: dict[str, Any] = {"inputText": text}
        if "titan-embed-text-v2" in self._model:
            body |= {"dimensions": DIMENSIONS, "normalize": True}
        embedding: Sequence[float] = self._field(self._invoke(body), "embedding")
        return embedding

    def _cohere(self, texts: Sequence[str], as_question: bool) -> list[Sequence[float]]:
        kind = "search_query" if as_question else "search_document"
        answer = self._invoke({"texts": list(texts), "input_type": kind, "truncate": "END"})
        embeddings = self._field(answer, "embeddings")
        return list(embeddings["float"] if isinstance(embeddings, dict) and "float" in embeddings else embeddings)

    def _field(self, answer: Any, name: str) -> Any:
        value = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(value, list | dict):
            raise _VECTORS.no_answer(self.name)
        return value

    def _invoke(self, body: dict[str, Any]) -> Any:
        with _VECTORS.asked(self.name):
            client = self._clients.open("bedrock-runtime", read_timeout_seconds=self._timeout_seconds)
            kind = "application/json"
            answer = client.invoke_model(
                modelId=self._model, body=json.dumps(body).encode(), contentType=kind, accept=kind
            )
            return json.loads(answer["body"].read())


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number) for number in value
    )
