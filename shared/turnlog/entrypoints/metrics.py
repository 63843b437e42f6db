"""Signals as metrics of CloudWatch."""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.ports import SignalName

NAMESPACE = "Turnlog"
METRICS: Mapping[SignalName, str] = {"compression_off": "CompressionOff"}


class EmfSignals:
    """`Signals` as lines of stdout in CloudWatch's embedded metric format: no request, no right.

    The dimension ``service`` is POWERTOOLS_SERVICE_NAME, which is the stack's name.
    """

    def count(self, name: SignalName) -> None:
        from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

        metrics = EphemeralMetrics(namespace=NAMESPACE)
        metrics.add_metric(name=METRICS[name], unit=MetricUnit.Count, value=1)
        metrics.flush_metrics()
