"""What a new session is begun with from long-term memory: within a token cap and a time, or not at all, and it says why."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import cast

from turnlog.core.errors import TurnlogError
from turnlog.core.events import Envelope
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import seconds_left
from turnlog.core.memory import Memory
from turnlog.core.text import Script, main_script
from turnlog.core.times import rfc3339
from turnlog.ports import MemoryEngine, TokenCounter
from turnlog.providers.registry import codec_of
from turnlog.sessions.incoming import Incoming, understand
from turnlog.sessions.models import Bootstrap, Bootstrapped
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


_FORMAT = "turnlog"
_FAILED = "memory_failed"


@lazy_dataclass(frozen=True, slots=True)
class BootstrapMessage:
    """``message`` is what the session is begun with, if anything; ``record`` what was asked for and what came of it."""

    message: Incoming | None
    record: JsonObject


class BringMemories:
    """Asks the engine. Raises nothing of it, and never waits longer than it is allowed to."""

    def __init__(
        self,
        memory: Callable[[], MemoryEngine | None],
        counter: TokenCounter,
        release: Callable[[], None],
        living: Callable[[Sequence[Memory]], list[Memory]],
    ) -> None:
        """``memory`` brings the engine, or raises what is wrong with its settings; ``release`` frees what a thread holds that has
        asked it; ``living`` leaves out what is being erased, and raises what the session's own table raises."""
        self._memory = memory
        self._counter = counter
        self._release = release
        self._living = living

    def __call__(self, owner: Owner, ask: Bootstrap) -> BootstrapMessage:
        try:
            engine = self._memory()
        except TurnlogError as error:
            return _known(ask, "unavailable", reason=error.error_code)
        if engine is None:
            return _known(ask, "off")
        found = _in_time(engine, owner, ask, self._release)
        if found is None:
            return _known(ask, "timed_out", engine.name, reason="memory_timeout")
        if isinstance(found, str):
            return _known(ask, "timed_out" if found == "memory_timeout" else "unavailable", engine.name, reason=found)
        found = self._living(found)
        try:
            return self._chosen(ask, engine.name, found[: ask.limit])
        except Exception:  # noqa: BLE001 - also when what it says can't be told
            return _known(ask, "unavailable", engine.name, reason=_FAILED)

    def _chosen(self, ask: Bootstrap, engine: str, memories: Sequence[Memory]) -> BootstrapMessage:
        """The best that have room together. What is said twice is said once."""
        distinct = {told(memory): memory for memory in reversed(memories) if told(memory)}
        wanted = [memory for memory in memories if distinct.get(told(memory)) is memory]
        chosen, room = list[Memory](), ask.max_tokens - self._counter.count(memories_text(()))
        for memory in wanted:
            cost = self._counter.count(f"\n{line_of(memory)}")
            if cost <= room:
                chosen, room = [*chosen, memory], room - cost
        while chosen:
            message = self._message(engine, chosen)
            if message.tokens <= ask.max_tokens:
                left_out = len(wanted) - len(chosen)
                return _known(ask, "ok", engine, memories=len(chosen), left_out=left_out, message=message)
            # Lines together, with what comes before them, may take a little more than each alone.
            chosen.pop()
        return _known(ask, "empty", engine, left_out=len(wanted))

    def _message(self, engine: str, memories: Sequence[Memory]) -> Incoming:
        body = {"role": "user", "content": memories_text(memories)}
        origins: list[JsonValue] = [_origin(memory) for memory in memories]
        envelope = Envelope(pin=True, origin="memory", metadata={"engine": engine, "memories": origins})
        return replace(understand(body, 0, self._counter, codec=codec_of(_FORMAT)), envelope=envelope)


def _origin(memory: Memory) -> JsonObject:
    return {
        "id": memory.id,
        "kind": memory.kind,
        "session_id": memory.session_id,
        "position": memory.position,
        "created_at": rfc3339(memory.created_ms),
    }


def _in_time(
    engine: MemoryEngine, owner: Owner, ask: Bootstrap, release: Callable[[], None]
) -> list[Memory] | str | None:
    """What the engine knows, or the code of its error, or None when the time is over.

    The time is that of this wait, whatever the engine does with its own: looking up a name can't be interrupted.
    """
    answers: SimpleQueue[list[Memory] | str] = SimpleQueue()

    def run() -> None:
        try:
            answers.put(engine.known(owner, ask.question or "", limit=ask.limit, timeout_seconds=ask.timeout_seconds))
        except TurnlogError as error:
            answers.put(error.error_code)
        except Exception:  # noqa: BLE001 - whatever an engine does, the session begins
            answers.put(_FAILED)
        finally:
            release()

    # The thread asks for the tenant that is served here.
    threading.Thread(target=copy_context().run, args=(run,), name="turnlog-memory", daemon=True).start()
    try:
        return answers.get(timeout=max(0, min(ask.timeout_seconds, seconds_left())))
    except Empty:
        return None


def _known(
    ask: Bootstrap,
    status: str,
    engine: str | None = None,
    *,
    memories: int = 0,
    left_out: int = 0,
    reason: str | None = None,
    message: Incoming | None = None,
) -> BootstrapMessage:
    found = Bootstrapped.model_validate(
        {
            "status": status,
            "engine": engine,
            "memories": memories,
            "left_out": left_out,
            "tokens": message.tokens if message is not None else 0,
            "position": 2 if message is not None else None,
            "reason": reason,
        }
    )
    record = {"asked": ask.model_dump(exclude_defaults=True), "found": found.model_dump()}
    return BootstrapMessage(message, cast("JsonObject", record))
