"""Token counters and models, by what the settings say. Their libraries are imported by the function that needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from turnlog.ports import Clock, Embedder, TokenCounter
from turnlog.settings import Settings

if TYPE_CHECKING:
    from turnlog.adapters.summarisers.model import ChatModel


class LazyCounter:
    """A token counter that is made at its first use."""

    def __init__(self, make: Callable[[], TokenCounter]) -> None:
        self._make = make

    @property
    def name(self) -> str:
        return self._make().name

    def count(self, text: str) -> int:
        return self._make().count(text)


def make_counter(name: str) -> TokenCounter:
    """The token counter of that name."""
    if name == "estimate":
        from turnlog.adapters.tokens.estimate_counter import EstimateCounter

        return EstimateCounter()
    from turnlog.adapters.tokens.tiktoken_counter import TiktokenCounter

    return TiktokenCounter()


def make_chat_model(settings: Settings, clock: Clock) -> ChatModel:
    """The model that the settings name: behind their endpoint, else Bedrock's in the engine's region."""
    timeout_seconds = settings.summary_timeout_seconds
    if settings.summary_url:
        from turnlog.adapters.summarisers.openai_compatible import OpenAiCompatibleModel

        key = settings.summary_api_key.get_secret_value()
        return OpenAiCompatibleModel(
            settings.summary_url, settings.summary_model, api_key=key, timeout_seconds=timeout_seconds, clock=clock
        )
    from turnlog.adapters.aws.bedrock import BedrockConverseModel
    from turnlog.adapters.aws.clients import make_clients

    # ModelSummariser counts the tries.
    clients = make_clients(_region(settings), settings.endpoint_url, max_attempts=1)
    return BedrockConverseModel(clients, settings.summary_model, timeout_seconds=timeout_seconds)


def make_embedder(settings: Settings) -> Embedder | None:
    """The embedder that the settings name, in the engine's region; None where they name none."""
    if not settings.rerank_model:
        return None
    from turnlog.adapters.aws.clients import make_clients
    from turnlog.adapters.aws.embeddings import BedrockEmbedder

    clients = make_clients(_region(settings), settings.endpoint_url, max_attempts=1)
    return BedrockEmbedder(clients, settings.rerank_model, timeout_seconds=settings.rerank_timeout_seconds)


def _region(settings: Settings) -> str | None:
    return parse_qs(urlsplit(settings.engine).query).get("region", [None])[0]
