"""How what is known of a person is told to a model: as fenced data, one line for each memory.

It was said by whoever could say it: nothing in it ends the fence or its line, nor looks like a provider's own marks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from turnlog.domain.language import Script, main_script
from turnlog.domain.memory import Memory
from turnlog.domain.times import rfc3339
from turnlog.windows.text import cut, fenced

MAX_CHARS = 1_000
"""Of one memory; the rest is cut and marked."""
_KIND = "what is known of the user from earlier conversations"
_LABELS: dict[Script, str] = {
    "chinese": "以往对话中得知的用户信息：",
    "japanese": "これまでの会話から分かっているユーザーの情報：",
    "korean": "이전 대화에서 알게 된 사용자 정보:",
}
"""What comes before the memories, in their language. The fence says it in English."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_MARK = re.compile(r"<\||\|>|\[/?INST\]|</?s>|<</?SYS>>|<(?:start|end)_of_turn>", re.IGNORECASE)
"""What models and their servers take for borders of messages, or the beginning and end of it: ``<|im_start|>``, ``[INST]``."""


def memories_text(memories: Sequence[Memory]) -> str:
    """The message that a session begins with."""
    lines = [line_of(memory) for memory in memories]
    script = main_script(" ".join(told(memory) for memory in memories))
    label = _LABELS.get(script, "") if script is not None else ""
    return fenced(_KIND, "\n".join([*([label] if label else []), *lines]))


def line_of(memory: Memory) -> str:
    """The memory with the day when it was made."""
    return f"- {rfc3339(memory.created_ms)[:10]}: {told(memory)}"


def told(memory: Memory) -> str:
    """The memory in one line; empty when it says nothing."""
    line = " ".join(_CONTROL.sub(" ", memory.text).split())
    return cut(_MARK.sub(lambda found: f"{found[0][0]}\\{found[0][1:]}", line), MAX_CHARS)
