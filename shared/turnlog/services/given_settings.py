"""Settings that a caller gives, as a session keeps them."""

from __future__ import annotations

from typing import Any, cast

from turnlog.codecs.counting import count_tools
from turnlog.domain.errors import TooLargeError
from turnlog.domain.jsonvalue import JsonObject, JsonValue, encode_json, measured
from turnlog.domain.session import Settings
from turnlog.ports import TokenCounter
from turnlog.windows.build import system_cost
from turnlog.windows.policy import policy_of

MAX_SETTINGS_BYTES = 4 * 1024 * 1024
MAX_SETTINGS_VALUES = 250_000


def fields_of(given: dict[str, Any], counter: TokenCounter) -> dict[str, Any]:
    """What is given, as fields of settings; null is a field's default. Tokens are counted here, once."""
    default = Settings()
    fields = {name: value if value is not None else getattr(default, name) for name, value in given.items()}
    if "policy" in fields:
        policy_of(fields["policy"])
    if "system" in fields:
        text = fields["system"]
        fields["system_tokens"] = system_cost(counter.count(text)) if text is not None else 0
    if "tools" in fields:
        tools = cast("list[JsonObject]", list(fields["tools"]))
        fields |= {"tools": tuple(tools), "tools_tokens": count_tools(tools, counter)}
    return fields


def check_settings_size(settings: Settings) -> None:
    content = [settings.system, list(settings.tools), settings.policy, settings.metadata]
    count, _ = measured(cast("JsonValue", content))
    if count > MAX_SETTINGS_VALUES:
        message = f"system text, tools, policy and metadata have {count} JSON values together; {MAX_SETTINGS_VALUES} are the limit"
        raise TooLargeError(message)
    if len(encode_json(content)) > MAX_SETTINGS_BYTES:
        raise TooLargeError(f"system text, tools, policy and metadata are over the limit of {MAX_SETTINGS_BYTES} bytes")
