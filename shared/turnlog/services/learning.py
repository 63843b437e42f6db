"""What an append tells of the window that was sent before it: when that was, and how the provider counted it."""

from __future__ import annotations

from turnlog.contracts.messages import AppendMessages
from turnlog.domain.calibration import Calibration, ratio_of
from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.flow import Disorder
from turnlog.log.headers import Header, Sent

USAGE_IGNORED = "usage_ignored"


def sent_after(body: AppendMessages, header: Header, time_ms: int) -> Sent | None:
    """The newest window that is known to have been sent. One of a position that the log has not reached is refused."""
    if body.window is None:
        return header.sent
    if body.window.position > header.last:
        message = f"the window's position {body.window.position} is above the head, {header.last}"
        raise InvalidInputError(message, problems=[Problem("invalid_parameter", "/window/position", message)])
    return Sent(body.window.position, time_ms)


def calibrated(body: AppendMessages, header: Header, *, opens_loop: bool) -> tuple[Calibration, list[Disorder]]:
    """The session's token factor after the append. Counts that can't be true teach nothing and are reported."""
    ratio, ignored = None, list[Disorder]()
    if body.usage is not None and body.window is not None:
        try:
            ratio = ratio_of(body.usage.input_tokens, body.window.tokens)
        except ValueError:
            ignored.append(Disorder(USAGE_IGNORED, header.last + 1, "/usage"))
    return header.calibration.after(ratio, opens_loop=opens_loop), ignored
