"""Logs of coding agents: JSON Lines of ``{type: user | assistant, message: {role, content, ...}, sessionId, uuid, timestamp}``
between lines of other types.

Messages are stored in the format `anthropic`. The log splits an answer of the model into a line per block, with one
``message.id``; such neighbours are joined. Every line is kept in the metadata of its message, without the message's own
content. Other lines, also lines that are not JSON, are in the metadata of the next message; those after the last message are in
the session's metadata. The lines of a subagent are a session of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnlog.importers.models import (
    IMPORTED,
    MALFORMED,
    MAX_NAME,
    JsonLine,
    SourceFile,
    SourceMessage,
    SourceRemark,
    SourceSession,
    id_warnings,
    is_text,
    join_pieces,
    session_id_of,
    time_of,
)
from turnlog.providers.blocks import object_of, string_of

SHAPE = "coding_agent"
_NO_MESSAGE = "no_message"


def recognises(file: SourceFile) -> bool:
    return any(_is_message(line.value) and "uuid" in line.value and "sessionId" in line.value for line in file.lines)


def read(file: SourceFile) -> Iterator[SourceSession]:
    """Read the sessions of a file: the main agent's, and one for each subagent."""
    by_agent, first_lines, agent = dict[str, _Lines](), dict[str, int](), ""
    for line in file.lines:
        entry = object_of(line.value)
        if name := string_of(entry.get("sessionId")):
            first_lines.setdefault(name, line.number)
        if "isSidechain" in entry:
            # Lines without the field belong to the agent of the line before.
            agent = _agent_of(entry)
        by_agent.setdefault(agent, _Lines()).add(line)
    # The file's name when its lines name it as their session, else the first session id in the lines.
    main = file.path.stem if file.path.stem in first_lines else next(iter(first_lines), file.path.stem)
    first_lines.pop(main, None)
    others = [SourceRemark(f"line {at}", f"other_session: {name[:40]}") for name, at in first_lines.items()]
    for agent, lines in by_agent.items():
        yield lines.session(f"{main}-{agent}" if agent else main, () if agent else others)


def _agent_of(entry: dict[str, Any]) -> str:
    """Return the subagent of an entry; empty for the main agent."""
    if entry.get("isSidechain") is not True:
        return ""
    return string_of(entry.get("agentId")) or "sidechain"


def _is_message(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("type") not in ("user", "assistant"):
        return False
    message = entry.get("message")
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        return False
    content = message.get("content")
    return isinstance(content, str) or (
        isinstance(content, list) and all(isinstance(block, dict) and "type" in block for block in content)
    )


@dataclass(slots=True)
class _Lines:
    """The lines of one session, while they are turned into messages, each of one or more pieces."""

    messages: list[list[SourceMessage]] = field(default_factory=list)
    between: list[Any] = field(default_factory=list)
    skipped: list[SourceRemark] = field(default_factory=list)

    def add(self, line: JsonLine) -> None:
        """Add a line: to its message, or to the lines between messages."""
        if not _is_message(line.value):
            kind = object_of(line.value).get("type")
            reason = f"{_NO_MESSAGE}: {str(kind)[:40]}" if line.is_json else MALFORMED
            self.skipped.append(SourceRemark(f"line {line.number}", reason))
            self.between.append(line.value if line.is_json else {"text": line.text})
            return
        piece, self.between = _piece(line, self.between), []
        answer_id = _answer_id(piece)
        if answer_id and self.messages and _answer_id(self.messages[-1][-1]) == answer_id:
            self.messages[-1].append(piece)
        else:
            self.messages.append([piece])

    def session(self, source_id: str, warnings: Sequence[SourceRemark]) -> SourceSession:
        return SourceSession(
            id=session_id_of(source_id),
            shape=SHAPE,
            source_id=source_id,
            format="anthropic",
            messages=tuple(map(join_pieces, self.messages)),
            extra={"lines": self.between} if self.between else {},
            skipped=tuple(self.skipped),
            warnings=(*id_warnings(source_id), *warnings),
        )


def _answer_id(piece: SourceMessage) -> Any:
    """Return the provider's id of the answer that a line is a part of, or None."""
    line = piece.meta["metadata"][IMPORTED]["lines"][-1]
    return line["message"].get("id") if line.get("type") == "assistant" else None


def _piece(line: JsonLine, before: list[Any]) -> SourceMessage:
    """Return the message of a line, or the piece of one. ``before`` are the lines between it and the message before."""
    entry = line.value
    message = entry["message"]
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    meta: dict[str, Any] = {"metadata": {IMPORTED: {"lines": [*before, {**entry, "message": rest}]}}}
    timestamp, message_id, reason = entry.get("timestamp"), entry.get("uuid"), message.get("stop_reason")
    if time_of(timestamp) is not None:
        meta["created_at"] = timestamp
    if is_text(message_id, MAX_NAME):
        meta["id"] = message_id
    if is_text(reason, MAX_NAME):
        meta["finish_reason"] = reason
    body = {"role": message["role"], "content": message["content"]}
    return SourceMessage(f"line {line.number}", body, meta)
