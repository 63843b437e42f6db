"""What answers: a script that needs no key, or a model behind OpenAI's API."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from turnlog.sessions.context_models import WindowAnswer

LINES = (
    (
        "You said: {text}. I am a script, so I say what is written, word by word, as a model's stream would come. "
        "Close this tab while I speak, open it again, and what I had said so far is still there, marked as interrupted."
    ),
    (
        "That makes {count} messages in this window. Every one of them is in the log of your session, and of no other "
        "visitor's; the window is what a model would be sent of it, so it stays within its budget however long we talk."
    ),
    (
        "Stop me while I speak, if you like: the rest is never said, and the next window has nothing of the broken reply. "
        "Ask me to go on, and I begin my answer anew."
    ),
)


@dataclass(frozen=True)
class Model:
    """``ask`` takes a window and gives the chunks of OpenAI's chat stream; by ``name`` the window's budget is known."""

    ask: Callable[[WindowAnswer], Iterable[Any]]
    name: str | None = None


def model_of_environment() -> Model:
    """Return the model that ``OPENAI_API_KEY`` and ``WEB_CHAT_MODEL`` name; without a key the script."""
    if not os.environ.get("OPENAI_API_KEY"):
        return Model(scripted)
    from openai import OpenAI  # it reads OPENAI_API_KEY, and OPENAI_BASE_URL for other services that speak like it

    client, name = OpenAI(), os.environ.get("WEB_CHAT_MODEL", "gpt-4o-mini")

    def ask(window: WindowAnswer) -> Iterable[Any]:
        messages: Any = window.messages
        return client.chat.completions.create(
            model=name, messages=messages, stream=True, stream_options={"include_usage": True}
        )

    return Model(ask, name)


def scripted(window: WindowAnswer) -> Iterator[dict[str, Any]]:
    said = [message for message in window.messages if message["role"] != "system"]
    line = LINES[sum(item["role"] == "assistant" for item in said) % len(LINES)]
    pause_seconds = float(os.environ.get("WEB_CHAT_PAUSE_SECONDS", "0.06"))
    for word in re.findall(r"\s*\S+", line.format(text=said[-1]["content"], count=len(said))):
        yield {"choices": [{"index": 0, "delta": {"content": word}}]}
        time.sleep(pause_seconds)
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
