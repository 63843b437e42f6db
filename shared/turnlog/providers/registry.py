"""The table of provider formats. To add a format, write its codec and list it here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject
from turnlog.providers import Codec
from turnlog.providers.ai_sdk import AiSdkCodec
from turnlog.providers.anthropic import AnthropicCodec
from turnlog.providers.bedrock_converse import BedrockConverseCodec
from turnlog.providers.openai_agents_js import OpenAIAgentsJsCodec
from turnlog.providers.openai_chat import OpenAIChatCodec
from turnlog.providers.openai_responses import OpenAIResponsesCodec
from turnlog.providers.turnlog_format import TurnlogCodec

DEFAULT_FORMAT = "openai_chat"
_ALL: tuple[Codec, ...] = (
    OpenAIChatCodec(),
    TurnlogCodec(),
    AnthropicCodec(),
    BedrockConverseCodec(),
    AiSdkCodec(),
    OpenAIAgentsJsCodec(),
    OpenAIResponsesCodec(),
)
CODECS: dict[str, Codec] = {codec.format: codec for codec in _ALL}


def codec_of(name: str, *, pointer: str = "/format") -> Codec:
    """Return the codec of a format. Raises `InvalidInputError` for an unknown name; ``pointer`` is the field that names it."""
    codec = CODECS.get(name)
    if codec is None:
        message = f"format {str(name)[:40]!r} is not one of {', '.join(sorted(CODECS))}"
        raise InvalidInputError.at(pointer, message, "unknown_format")
    return codec


def is_plain_text(body: JsonObject) -> bool:
    """Return whether the body has a role and a text alone, which mean the same in every format."""
    return body.keys() == {"role", "content"} and isinstance(body["content"], str)


def recognise(body: JsonObject) -> Codec:
    """Return the codec for a body that came without a format.

    A body is recognised by a block or field that only one format has; without one it counts as OpenAI Chat.
    """
    if is_plain_text(body):
        return CODECS[DEFAULT_FORMAT]
    for codec in _ALL:
        if codec.recognises(body):
            return codec
    return CODECS[DEFAULT_FORMAT]


def format_of(messages: Iterable[JsonObject]) -> str:
    """Return the format that most of the messages have a mark of, or OpenAI Chat when no message has one."""
    # A message without a mark fits every format, so it does not count against one that has a mark.
    counts = Counter(codec.format for message in messages if (codec := recognise(message)).recognises(message))
    return counts.most_common(1)[0][0] if counts else DEFAULT_FORMAT
