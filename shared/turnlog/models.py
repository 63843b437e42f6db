"""Token counters and models, by what the settings say. Their libraries are imported by the function that needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from turnlog.ports import Clock, TokenCounter
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

    region = parse_qs(urlsplit(settings.engine).query).get("region", [None])[0]
    # ModelSummariser counts the tries.
    clients = make_clients(region, settings.endpoint_url, max_attempts=1)
    return BedrockConverseModel(clients, settings.summary_model, timeout_seconds=timeout_seconds)
