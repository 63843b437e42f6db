"""Signals as CloudWatch metrics."""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.core.errors import ConflictError, CorruptError, TurnlogError
from turnlog.ports import SignalName

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
        from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

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
