"""`Embedder` with the embedding models of Amazon Bedrock: Titan's, a call for each text, and Cohere's, a call for many."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from turnlog.core.errors import EmbedderConfigError, UnavailableError
from turnlog.core.limits import seconds_left
from turnlog.engines.aws_clients import Clients
from turnlog.engines.aws_invoke import Service

DIMENSIONS = 256
"""Of Titan's vectors: its own figures lose 3 % to those of 1,024."""
MAX_TEXTS = 96
"""Of one call of Cohere's."""
_PARALLEL = 8
_VECTORS = Service(EmbedderConfigError, "model_status", "embedder_timeout", "embedder_unreadable", "vectors")


class BedrockEmbedder:
    """``model`` is the id of a model or an inference profile whose name says whose it is. One try for each call, and
    ``timeout_seconds`` for all calls of a question together."""

    def __init__(self, clients: Clients, model: str, *, timeout_seconds: int) -> None:
        self.name = f"bedrock:{model}"
        self._clients = clients
        self._model = model
        self._timeout_seconds = timeout_seconds
        self._is_titan, self._is_cohere = "titan-embed" in model, "cohere.embed" in model
        if not (self._is_titan or self._is_cohere):
            raise EmbedderConfigError(f"{self.name} is no embedding model that is known: titan-embed, cohere.embed")

    def embed(self, texts: Sequence[str], *, as_question: bool = False) -> list[Sequence[float]]:
        if self._is_titan:
            calls = [lambda text=text: [self._titan(text)] for text in texts]
        else:
            parts = [texts[at : at + MAX_TEXTS] for at in range(0, len(texts), MAX_TEXTS)]
            calls = [lambda part=part: self._cohere(part, as_question) for part in parts]
        found = [vector for vectors in self._all(calls) for vector in vectors]
        if len(found) != len(texts) or len({len(vector) for vector in found}) > 1 or not all(map(_is_vector, found)):
            raise self._unreadable()
        return found

    def _all(self, calls: Sequence[Callable[[], list[Sequence[float]]]]) -> list[list[Sequence[float]]]:
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
            # What is on its way ends with its own time-out; nobody waits for it.
            pool.shutdown(wait=False, cancel_futures=True)

    def _titan(self, text: str) -> Sequence[float]:
        body: dict[str, Any] = {"inputText": text}
        if "titan-embed-text-v2" in self._model:
            body |= {"dimensions": DIMENSIONS, "normalize": True}
        found: Sequence[float] = self._field(self._invoke(body), "embedding")
        return found

    def _cohere(self, texts: Sequence[str], as_question: bool) -> list[Sequence[float]]:
        kind = "search_query" if as_question else "search_document"
        answer = self._invoke({"texts": list(texts), "input_type": kind, "truncate": "END"})
        found = self._field(answer, "embeddings")
        return list(found["float"] if isinstance(found, dict) and "float" in found else found)

    def _field(self, answer: Any, name: str) -> Any:
        found = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(found, list | dict):
            raise self._unreadable()
        return found

    def _invoke(self, body: dict[str, Any]) -> Any:
        with _VECTORS.asked(self.name):
            client = self._clients.open("bedrock-runtime", read_timeout_seconds=self._timeout_seconds)
            answer = client.invoke_model(
                modelId=self._model,
                body=json.dumps(body).encode(),
                contentType="application/json",
                accept="application/json",
            )
            return json.loads(answer["body"].read())

    def _unreadable(self) -> UnavailableError:
        return _VECTORS.no_answer(self.name)


def _is_vector(found: Any) -> bool:
    return isinstance(found, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in found
    )
