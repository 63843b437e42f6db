"""Actions: what an entry of a session's history says was done. Some are the log's own words; the rest are the caller's."""

from __future__ import annotations

from turnlog.core.errors import InvalidInputError, Problem

STATE_CHANGE, RUN, APPROVE, REJECT = "state_change", "run", "approve", "reject"
CREATE, MESSAGE_ADDED, TOOL_CALL, TOOL_RESULT = "create", "message_added", "tool_call", "tool_result"
TOOL_RECALLED = "tool_recalled"
SUMMARY_PUBLISHED, SUMMARY_DISCARDED = "summary_published", "summary_discarded"
POLICY_CHANGE, END, TIME_OUT = "policy_change", "end", "time_out"
REWIND, FORK, RESTORE, REDACT = "rewind", "fork", "restore", "redact"
TOLD_BY_THE_LOG = frozenset(
    {CREATE, MESSAGE_ADDED, TOOL_CALL, TOOL_RESULT, TOOL_RECALLED, SUMMARY_PUBLISHED, SUMMARY_DISCARDED}
    | {RUN, APPROVE, REJECT, POLICY_CHANGE, RESTORE, REWIND, FORK, REDACT, END, TIME_OUT}
)
"""No caller gives these: an entry that has one tells of what the log itself did."""


def own_action(action: str | None, *, pointer: str) -> str:
    """The action of a caller's change, `STATE_CHANGE` where none is given."""
    if action is None:
        return STATE_CHANGE
    if action in TOLD_BY_THE_LOG:
        message = f"the action {action!r} is one that the log itself tells of"
        raise InvalidInputError(message, problems=[Problem("reserved_action", pointer, message)])
    return action
