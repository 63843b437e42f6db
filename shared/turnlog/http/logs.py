"""Logs and metrics of the Lambda functions. Logs contain ids, codes and counts; of an error its types and frames, never its text.

In Lambda, a log line is JSON by Powertools, with the correlation id, the function, its request and the trace. Outside Lambda, the
program configures the logger ``turnlog``.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeVar

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from turnlog.core.errors import ConflictError, CorruptError, TurnlogError, describe_error
from turnlog.core.identity import correlation_id
from turnlog.ports import SignalName

_SERVICE, _LEVEL = "POWERTOOLS_SERVICE_NAME", "POWERTOOLS_LOG_LEVEL"
_log = logging.getLogger("turnlog")
_Answer = TypeVar("_Answer")
LambdaHandler = Callable[[dict[str, Any], Any], _Answer]


class HandlerError(Exception):
    """A handler's unexpected error as Lambda sees it: only the type. The log has the frames."""


class _TextlessFormatter(LambdaPowertoolsFormatter):
    """Powertools' formatter with the correlation id, and without the texts of exceptions, which may quote messages."""

    def _extract_log_keys(self, log_record: logging.LogRecord) -> dict[str, Any]:
        keys = super()._extract_log_keys(log_record)
        if (current := correlation_id()) is not None:
            keys["correlation_id"] = current
        return keys

    def _extract_log_exception(self, log_record: logging.LogRecord) -> Any:
        """Return an exception's description, type and notes, as Powertools' formatter expects; never its text."""
        error = log_record.exc_info[1] if isinstance(log_record.exc_info, tuple) else None
        return (describe_error(error), type(error).__name__, None) if error is not None else (None, None, None)


class _Stdout(logging.StreamHandler[TextIO]):
    """A handler that writes to the current `sys.stdout`, also if it is replaced later."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stdout


def log_calls(handler: LambdaHandler[_Answer]) -> LambdaHandler[_Answer]:
    """Wrap a handler for Lambda: set up Powertools' log lines, and raise unexpected errors as `HandlerError`, without texts."""

    @functools.wraps(handler)
    def called(event: dict[str, Any], context: Any) -> _Answer:
        logger = powertools_logger()
        request_id = getattr(context, "aws_request_id", None)
        logger.append_keys(function_name=getattr(context, "function_name", None), function_request_id=request_id)
        try:
            return handler(event, context)
        except Exception as error:  # noqa: BLE001 - Lambda must not see the error's text
            _log.error("the handler has failed: %s", describe_error(error))
            name = type(error).__name__
        raise HandlerError(f"{name}: the function's log says where")

    return called


@functools.cache
def powertools_logger() -> Logger:
    """Set up the logger ``turnlog``, to which all modules write, and return its Powertools wrapper."""
    formatter = _TextlessFormatter(utc=True, use_rfc3339=True, serialize_stacktrace=False)
    logger = Logger(service=_log.name, logger_formatter=formatter, logger_handler=_Stdout())
    logger.append_keys(service=os.environ.get(_SERVICE, _log.name))
    # Powertools would take the level of Lambda's own filter, which must stay at INFO: metrics are lines without a level.
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
    """`Signals` as lines on stdout in CloudWatch's embedded metric format, which needs no request and no permission.

    The dimension ``service`` is POWERTOOLS_SERVICE_NAME, the stack's name.
    """

    def count(self, name: SignalName, value: int = 1) -> None:
        metrics = EphemeralMetrics(namespace=NAMESPACE)
        metrics.add_metric(name=METRICS[name], unit=MetricUnit.Count, value=value)
        metrics.flush_metrics()


def signal_of(error: TurnlogError) -> SignalName | None:
    """Return the signal for an operator: of a corrupt item, or of a write that lost every slot; None for any other error."""
    if isinstance(error, CorruptError):
        return "corrupt_item"
    if isinstance(error, ConflictError) and error.error_code == ConflictError.code:
        return "conflicts_exhausted"
    return None
