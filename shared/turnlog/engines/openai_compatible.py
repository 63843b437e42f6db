"""A model behind any endpoint with OpenAI's chat completions API, with the standard library only.

No redirect is followed and no proxy is used: the API key and the conversation go to the configured address and nowhere else.
"""

from __future__ import annotations

import json
import re
from typing import Any

from turnlog.core.errors import InvalidInputError, SummariserConfigError, UnavailableError
from turnlog.core.json_values import encode_json
from turnlog.core.summaries import TIMED_OUT, UNREADABLE
from turnlog.engines.http_post import HEADERS, Posted, Receiver, web_address
from turnlog.ports import Ending, ModelAnswer, Prompt

_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_ENDINGS: dict[Any, Ending] = {"length": "cut_off", "content_filter": "filtered"}


class OpenAiCompatibleModel:
    """Implements `ChatModel` on ``{base_url}/chat/completions``. ``timeout_seconds`` bounds a whole call, not each read."""

    def __init__(self, base_url: str, model: str, *, api_key: str, timeout_seconds: float) -> None:
        url = web_address(base_url)
        if url is None:
            raise InvalidInputError("TURNLOG_SUMMARY_URL is no http or https address", code="invalid_settings")
        self.name = f"openai:{model}"
        self._receiver = Receiver(self.name, SummariserConfigError, "model_status", TIMED_OUT)
        self._url = url._replace(path=url.path.rstrip("/") + "/chat/completions")
        self._model = model
        self._timeout_seconds = timeout_seconds
        self._headers = HEADERS | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._limit_name = "max_tokens"

    def answer(self, prompt: Prompt, *, max_tokens: int) -> ModelAnswer:
        posted = self._post(prompt, max_tokens)
        if posted.status == 400 and self._limit_name == "max_tokens" and _is_about_max_tokens(posted.body):
            # OpenAI's newer models require `max_completion_tokens`; older models and most servers know only `max_tokens`.
            self._limit_name = "max_completion_tokens"
            posted = self._post(prompt, max_tokens)
        if posted.status != 200:
            raise self._receiver.refused(posted)
        return read_answer(self.name, posted.body)

    def _post(self, prompt: Prompt, max_tokens: int) -> Posted:
        content = {
            "model": self._model,
            "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.record}],
            self._limit_name: max_tokens,
        }
        return self._receiver.post(
            self._url, encode_json(content), self._headers, timeout_seconds=self._timeout_seconds
        )


def _is_about_max_tokens(body: bytes) -> bool:
    try:
        return bool(json.loads(body)["error"]["param"] == "max_tokens")
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def read_answer(name: str, body: bytes) -> ModelAnswer:
    """Read a chat completion. Raises `UnavailableError` for a body that is none."""
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        text = choice["message"].get("content") or ""
        declined = bool(choice["message"].get("refusal"))
        if not isinstance(text, str):
            raise TypeError
        usage = answer.get("usage") or {}
        counts = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        ending: Ending = "filtered" if declined else _ENDINGS.get(choice.get("finish_reason"), "done")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise UnavailableError(f"the answer of {name} is no chat completion", code=UNREADABLE) from None
    return ModelAnswer(_THINKING.sub("", text), ending, *counts)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
