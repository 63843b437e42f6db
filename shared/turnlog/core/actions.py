"""Names of the actions in a session's history: those that the log itself records, and rules for a caller's own."""

from __future__ import annotations

from turnlog.core.errors import InvalidInputError, Problem

STATE_CHANGE, RUN, APPROVE, REJECT = "state_change", "run", "approve", "reject"
CREATE, MESSAGE_ADDED, TOOL_CALL, TOOL_RESULT = "create", "message_added", "tool_call", "tool_result"
TOOL_RECALLED = "tool_recalled"
SUMMARY_PUBLISHED, SUMMARY_DISCARDED = "summary_published", "summary_discarded"
POLICY_CHANGE, END, TIME_OUT = "policy_change", "end", "time_out"
REWIND, FORK, RESTORE, REDACT = "rewind", "fork", "restore", "redact"
LOG_ACTIONS = frozenset(
    {CREATE, MESSAGE_ADDED, TOOL_CALL, TOOL_RESULT, TOOL_RECALLED, SUMMARY_PUBLISHED, SUMMARY_DISCARDED}
    | {RUN, APPROVE, REJECT, POLICY_CHANGE, RESTORE, REWIND, FORK, REDACT, END, TIME_OUT}
)
"""Actions that only the log records; a caller's entry can't use them."""


def own_action(action: str | None, *, pointer: str) -> str:
    """Return the action of a caller's change, `STATE_CHANGE` when it is None.

    Raises `InvalidInputError` for an action that only the log records.
    """
    if action is None:
        return STATE_CHANGE
    if action in LOG_ACTIONS:
        message = f"the action {action!r} is reserved for entries that the log writes itself"
        raise InvalidInputError(message, problems=[Problem("reserved_action", pointer, message)])
    return action
