"""A message that says nothing: as valid beside its neighbours as the one in whose place it stands."""

from __future__ import annotations

from turnlog.domain.messages import Message, Text, ToolCall, ToolResult

REDACTED = "[redacted]"


def neutral(message: Message) -> Message:
    """Who spoke, which tools were called by which ids, and which calls were answered; nothing else."""
    calls = tuple(ToolCall(call.id, call.name, "{}") for call in message.tool_calls)
    text = (Text(REDACTED),)
    results = tuple(
        ToolResult(one.tool_call_id, text, one.name, one.is_error, one.by_name) for one in message.tool_results
    )
    content = text if message.content or not (calls or results) else ()
    return Message(message.role, content, calls, results, given_role=message.given_role)
