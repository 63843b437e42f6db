"""Begin a new session with memories: a message within a token cap and a time limit, or none.

A record says what was asked for, and what came of it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import cast

from turnlog.core.errors import TurnlogError
from turnlog.core.events import Envelope
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import seconds_left
from turnlog.core.memory import Memory
from turnlog.core.scripts import Script, main_script
from turnlog.core.times import rfc3339
from turnlog.ports import MemoryReader, TokenCounter
from turnlog.providers.blocks import fenced
from turnlog.providers.registry import codec_of
from turnlog.sessions.incoming import Incoming, understand
from turnlog.sessions.models import Bootstrap, Bootstrapped
from turnlog.windows.text import cut

MAX_CHARS = 1_000
"""Characters of one memory; the rest is cut and marked."""
_KIND = "what is known of the user from earlier conversations"
_LABELS: dict[Script, str] = {
    "chinese": "以往对话中得知的用户信息：",
    "japanese": "これまでの会話から分かっているユーザーの情報：",
    "korean": "이전 대화에서 알게 된 사용자 정보:",
}
"""Label before the memories, in their language. The fence says it in English."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_MARK = re.compile(r"<\||\|>|\[/?INST\]|</?s>|<</?SYS>>|<(?:start|end)_of_turn>", re.IGNORECASE)
"""Matches markers that models and their servers take for borders of messages, such as ``<|im_start|>`` or ``[INST]``."""
_FORMAT = "turnlog"
_FAILED, _TIMED_OUT = "memory_failed", "memory_timeout"


def memories_text(memories: Sequence[Memory]) -> str:
    """Return the text of the message that a session begins with."""
    lines = [line_of(memory) for memory in memories]
    script = main_script(" ".join(text_of(memory) for memory in memories))
    label = _LABELS.get(script, "") if script is not None else ""
    return fenced(_KIND, "\n".join([*([label] if label else []), *lines]))


def line_of(memory: Memory) -> str:
    """Return a line with the day and the text of a memory."""
    return f"- {rfc3339(memory.created_ms)[:10]}: {text_of(memory)}"


def text_of(memory: Memory) -> str:
    """Return the text of a memory in one line, cut, with markers of message borders escaped; it may be empty."""
    line = " ".join(_CONTROL.sub(" ", memory.text).split())
    return cut(_MARK.sub(lambda match: f"{match[0][0]}\\{match[0][1:]}", line), MAX_CHARS)


@lazy_dataclass(frozen=True, slots=True)
class BootstrapMessage:
    """The outcome of a bootstrap.

    ``message`` begins the session, if there are memories; ``record`` says what was asked for and what came of it.
    """

    message: Incoming | None
    record: JsonObject


def bring_memories(
    owner: Owner,
    ask: Bootstrap,
    counter: TokenCounter,
    *,
    memory: Callable[[], MemoryReader | None],
    release: Callable[[], None],
    visible: Callable[[Sequence[Memory]], list[Memory]],
) -> BootstrapMessage:
    """Ask the engine for memories to begin a session with. Never raises the engine's errors, never exceeds the time limit.

    ``memory`` returns the engine, or raises an error of its settings. ``release`` frees what the asking thread holds.
    ``visible`` removes memories under erasure, and raises the errors of the session's table.
    """
    try:
        engine = memory()
    except TurnlogError as error:
        return _outcome(ask, "unavailable", reason=error.error_code)
    if engine is None:
        return _outcome(ask, "off")
    known = known_in_time(engine, owner, ask, release)
    if isinstance(known, str):
        return _outcome(ask, "timed_out" if known == _TIMED_OUT else "unavailable", engine.name, reason=known)
    memories = visible(known)
    try:
        return _chosen(ask, engine.name, memories[: ask.limit], counter)
    except Exception:  # noqa: BLE001 - also when a memory can't be written as text
        return _outcome(ask, "unavailable", engine.name, reason=_FAILED)


def _chosen(ask: Bootstrap, engine: str, memories: Sequence[Memory], counter: TokenCounter) -> BootstrapMessage:
    """Return the best memories that fit into the token cap together, without repetitions."""
    distinct = {text_of(memory): memory for memory in reversed(memories) if text_of(memory)}
    candidates = [memory for memory in memories if distinct.get(text_of(memory)) is memory]
    chosen, tokens_left = list[Memory](), ask.max_tokens - counter.count(memories_text(()))
    for memory in candidates:
        cost = counter.count(f"\n{line_of(memory)}")
        if cost <= tokens_left:
            chosen, tokens_left = [*chosen, memory], tokens_left - cost
    while chosen:
        message = _message(engine, chosen, counter)
        if message.tokens <= ask.max_tokens:
            left_out = len(candidates) - len(chosen)
            return _outcome(ask, "ok", engine, memories=len(chosen), left_out=left_out, message=message)
        # Joined lines and their label may cost slightly more tokens than each line alone.
        chosen.pop()
    return _outcome(ask, "empty", engine, left_out=len(candidates))


def _message(engine: str, memories: Sequence[Memory], counter: TokenCounter) -> Incoming:
    body = {"role": "user", "content": memories_text(memories)}
    origins: list[JsonValue] = [
        {
            **{name: getattr(memory, name) for name in ("id", "kind", "session_id", "position")},
            "created_at": rfc3339(memory.created_ms),
        }
        for memory in memories
    ]
    envelope = Envelope(pin=True, origin="memory", metadata={"engine": engine, "memories": origins})
    return understand(body, 0, counter, codec=codec_of(_FORMAT), envelope=envelope)


def known_in_time(
    engine: MemoryReader, owner: Owner, ask: Bootstrap, release: Callable[[], None]
) -> list[Memory] | str:
    """Return the engine's memories; or a code, of its error or for the time limit that has passed.

    The limit holds whatever the engine does: a name look-up, for example, can't be interrupted.
    """
    answers: SimpleQueue[list[Memory] | str] = SimpleQueue()

    def run() -> None:
        try:
            answers.put(engine.known(owner, ask.question or "", limit=ask.limit, timeout_seconds=ask.timeout_seconds))
        except TurnlogError as error:
            answers.put(error.error_code)
        except Exception:  # noqa: BLE001 - the session begins whatever the engine raises
            answers.put(_FAILED)
        finally:
            release()

    # The thread runs in a copy of this context, which holds the current tenant.
    threading.Thread(target=copy_context().run, args=(run,), name="turnlog-memory", daemon=True).start()
    try:
        return answers.get(timeout=max(0, min(ask.timeout_seconds, seconds_left())))
    except Empty:
        return _TIMED_OUT


def _outcome(
    ask: Bootstrap,
    status: str,
    engine: str | None = None,
    *,
    memories: int = 0,
    left_out: int = 0,
    reason: str | None = None,
    message: Incoming | None = None,
) -> BootstrapMessage:
    """Return the message with the record of a bootstrap."""
    tokens, position = (message.tokens, 2) if message is not None else (0, None)
    counts = {"memories": memories, "left_out": left_out, "tokens": tokens, "position": position}
    result = Bootstrapped.model_validate({"status": status, "engine": engine, **counts, "reason": reason})
    record = {"asked": ask.model_dump(exclude_defaults=True), "found": result.model_dump()}
    return BootstrapMessage(message, cast("JsonObject", record))
