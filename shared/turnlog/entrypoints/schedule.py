"""Schedules: EventBridge calls, and what is due is begun."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from turnlog.bootstrap import Application, make_application
from turnlog.domain.errors import UnavailableError
from turnlog.entrypoints.logs import logged

_LAST_BATCH_MS = 60_000
"""What is left of an invocation for the sessions that were begun."""
_log = logging.getLogger("turnlog")


def make_retention(app: Application | None = None) -> Callable[[dict[str, Any], Any], dict[str, int]]:
    """A Lambda handler that answers with how many sessions it has dealt with, and how.

    The event may name one of several workers, ``{"worker": 0, "workers": 4}``; each deals with its part of what is due, for as long
    as the invocation lasts.

    Without ``app``, as in Lambda, the application is made of the environment at the first event. Where something has failed it
    raises at the end, so that the alarm on its errors goes; the next run looks at it again.
    """
    holder = [app]

    def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
        application = holder[0] = holder[0] or make_application()
        remaining_ms = context.get_remaining_time_in_millis()
        work_ms = max(remaining_ms - _LAST_BATCH_MS, remaining_ms // 2)
        done = asdict(application.retain_sessions(event.get("worker", 0), event.get("workers", 1), work_ms=work_ms))
        _log.info("retention: %s", done)
        if done["failed"]:
            raise UnavailableError(f"retention of {done['failed']} sessions failed")
        return done

    return handler if app is not None else logged(handler)
