"""Signals as metrics of CloudWatch."""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.domain.errors import ConflictError, CorruptError, TurnlogError
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
