"""Logs: ids, codes and counts. Of an error its types and the places in the code that it went through, never its text.

In Lambda they are Powertools' JSON lines, with the correlation id, the function, its request and the trace; beside Lambda the
logger ``turnlog`` is as the program has set it up.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TextIO, TypeVar

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from turnlog.core.errors import ConflictError, CorruptError, TurnlogError
from turnlog.core.identity import correlation_id
from turnlog.ports import SignalName

_FRAMES = 12
_CAUSES = 5
_SERVICE, _LEVEL = "POWERTOOLS_SERVICE_NAME", "POWERTOOLS_LOG_LEVEL"
_log = logging.getLogger("turnlog")
_Answer = TypeVar("_Answer")
LambdaHandler = Callable[[dict[str, Any], Any], _Answer]


class HandlerError(Exception):
    """What Lambda is told of an error that a handler has no answer to: its type. The log has where it was."""


def places(error: BaseException) -> str:
    """The error and what caused it, newest first: each type with the frames it went through, innermost last."""
    told, seen = list[str](), set[int]()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(told) < _CAUSES:
        seen.add(id(current))
        told.append(f"{type(current).__name__} at {_frames(current.__traceback__)}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "; caused by ".join(told)


def _frames(trace: TracebackType | None) -> str:
    found = traceback.StackSummary.extract(traceback.walk_tb(trace), lookup_lines=False)[-_FRAMES:]
    return " > ".join(f"{frame.name} {os.path.split(frame.filename)[1]}:{frame.lineno}" for frame in found) or "nowhere"


class _WithoutTexts(LambdaPowertoolsFormatter):
    """Powertools' lines with the correlation id, and without the texts of exceptions, which may quote what somebody said."""

    def _extract_log_keys(self, log_record: logging.LogRecord) -> dict[str, Any]:
        keys = super()._extract_log_keys(log_record)
        if (current := correlation_id()) is not None:
            keys["correlation_id"] = current
        return keys

    def _extract_log_exception(self, log_record: logging.LogRecord) -> Any:
        """As Powertools asks for it: the exception's text, its name, its notes."""
        error = log_record.exc_info[1] if isinstance(log_record.exc_info, tuple) else None
        return (places(error), type(error).__name__, None) if error is not None else (None, None, None)


class _Stdout(logging.StreamHandler[TextIO]):
    """Writes to what stdout is at the time."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stdout


def logged(handler: LambdaHandler[_Answer]) -> LambdaHandler[_Answer]:
    """The handler as Lambda calls it: its lines are Powertools', and what it does not catch leaves without its text."""

    @functools.wraps(handler)
    def called(event: dict[str, Any], context: Any) -> _Answer:
        logger = _logger()
        request_id = getattr(context, "aws_request_id", None)
        logger.append_keys(function_name=getattr(context, "function_name", None), function_request_id=request_id)
        try:
            return handler(event, context)
        except Exception as error:  # noqa: BLE001 - what Lambda is told has no text
            _log.error("the handler has failed: %s", places(error))
            name = type(error).__name__
        raise HandlerError(f"{name}: the function's log says where")

    return called


@functools.cache
def _logger() -> Logger:
    """The logger ``turnlog``, to which all our modules write, set up once as Powertools does it."""
    formatter = _WithoutTexts(utc=True, use_rfc3339=True, serialize_stacktrace=False)
    logger = Logger(service=_log.name, logger_formatter=formatter, logger_handler=_Stdout())
    logger.append_keys(service=os.environ.get(_SERVICE, _log.name))
    # Powertools prefers the level of Lambda's own filter, which has to stay at INFO: metrics are lines without a level.
    _log.setLevel(os.environ.get(_LEVEL) or "INFO")
    return logger


NAMESPACE = "Turnlog"
METRICS: Mapping[SignalName, str] = {
    "compression_off": "CompressionOff",
    "conflicts_exhausted": "ConflictsExhausted",
    "corrupt_item": "CorruptItem",
    "erasure_overdue": "ErasureOverdue",
    "summary_over_budget": "SummaryOverBudget",
    "summary_tokens": "SummaryTokens",
}


class EmfSignals:
    """`Signals` as lines of stdout in CloudWatch's embedded metric format: no request, no right.

    The dimension ``service`` is POWERTOOLS_SERVICE_NAME, which is the stack's name.
    """

    def count(self, name: SignalName, value: int = 1) -> None:
        from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

        metrics = EphemeralMetrics(namespace=NAMESPACE)
        metrics.add_metric(name=METRICS[name], unit=MetricUnit.Count, value=value)
        metrics.flush_metrics()


def signal_of(error: TurnlogError) -> SignalName | None:
    """What an error is to an operator: a stored item that can't be trusted, or writers that won every slot; else nothing."""
    if isinstance(error, CorruptError):
        return "corrupt_item"
    if isinstance(error, ConflictError) and error.error_code == ConflictError.code:
        return "conflicts_exhausted"
    return None
