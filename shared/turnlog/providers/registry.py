"""The formats that exist. A new provider format is one codec, added here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.json_values import JsonObject
from turnlog.providers.anthropic import AnthropicCodec
from turnlog.providers.base import Codec
from turnlog.providers.bedrock_converse import BedrockConverseCodec
from turnlog.providers.openai_chat import OpenAIChatCodec
from turnlog.providers.openai_responses import OpenAIResponsesCodec
from turnlog.providers.turnlog_format import TurnlogCodec

DEFAULT_FORMAT = "openai_chat"
_ALL: tuple[Codec, ...] = (
    OpenAIChatCodec(),
    TurnlogCodec(),
    AnthropicCodec(),
    BedrockConverseCodec(),
    OpenAIResponsesCodec(),
)
CODECS: dict[str, Codec] = {codec.format: codec for codec in _ALL}


def codec_of(name: str, *, pointer: str = "/format") -> Codec:
    """The codec of a format, or `InvalidInputError`."""
    codec = CODECS.get(name)
    if codec is None:
        message = f"format {name[:40]!r} is not one of {', '.join(sorted(CODECS))}"
        raise InvalidInputError(message, problems=[Problem("unknown_format", pointer, message)])
    return codec


def recognise(body: JsonObject) -> Codec:
    """The codec of a body that came without a format, by what only that format has; OpenAI Chat where nothing tells."""
    default = CODECS[DEFAULT_FORMAT]
    if default.recognises(body):
        return default
    return next((codec for codec in CODECS.values() if codec.recognises(body)), default)


def format_of(messages: Iterable[JsonObject]) -> str:
    """The format that most of the messages have something of; OpenAI Chat where nothing tells."""
    # A message that nothing tells of is of any format: it has no say beside one that something tells of.
    told = Counter(codec.format for message in messages if (codec := recognise(message)).recognises(message))
    return told.most_common(1)[0][0] if told else DEFAULT_FORMAT
