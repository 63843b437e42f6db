"""The bill of a month is arithmetic over what is metered; docs/reference/costs.md is made of it (tests/docs/test_generated.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import month
from benchmarks.cost import PRICES, LambdaModel
from tests.iam import resolved
from tests.support.templates import template

PAGE = (Path(__file__).parent.parent.parent / "docs" / "reference" / "costs.md").read_text(encoding="utf-8")


def lives() -> list[month.Life]:
    """The table of what one session takes, read back."""
    row = r"^\| ([\w: ]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,.]+) \| ([\d,]+) \| ([\d,]+) \|$"
    result = list[month.Life]()
    for name, *cells in re.findall(row, PAGE, re.M):
        calls, requests, writes, reads, stored, own = (float(cell.replace(",", "")) for cell in cells)
        result.append(month.Life(name, int(calls), writes, reads, int(requests), int(stored), own))
    return result


def test_the_page_has_both_kinds_and_every_size() -> None:
    """That its figures are those that are metered now is a test of the generated pages."""
    assert [live.name for live in lives()] == list(month.KINDS)
    for size in month.SIZES:
        assert f"\n| {size:,} |" in PAGE


def test_a_session_is_metered_alike_each_time() -> None:
    name = next(iter(month.KINDS))
    assert month.metered(name) == month.metered.__wrapped__(name)


def test_a_month_is_the_sum_of_its_sessions() -> None:
    result = month.Life("one", 2, 3, 4, 5, 1_000_000, 0)
    model = LambdaModel(wait_ms_per_request=0)
    made = month.month([result, result], 10, model, queues=0, alarm_metrics=2, dashboards=1)
    assert (made.sessions, made.api_requests, made.stored_gb) == (300, 600, pytest.approx(0.3))
    assert made.by_service["DynamoDB"] == pytest.approx(900 * 0.625e-6 + 1_200 * 0.125e-6)
    assert made.by_service["HTTP API"] == pytest.approx(600e-6)
    assert made.by_service["Lambda"] == pytest.approx(600 * PRICES["Lambda request"])
    assert made.by_service["standing"] == pytest.approx(3.2)
    assert made.total == pytest.approx(sum(made.by_service.values()))
    assert made.storage == pytest.approx(0.3 * 0.45)


def test_an_alarm_of_a_formula_is_billed_for_each_of_its_metrics() -> None:
    alarms = [alarm for _, alarm in template().of_type("AWS::CloudWatch::Alarm")]
    formulas = [alarm for alarm in alarms if "Metrics" in alarm]
    in_formulas = [str(entry) for alarm in formulas for entry in alarm["Metrics"] if "Expression" not in entry]
    assert month.standing()["alarm_metrics"] == len(alarms) - len(formulas) + len(in_formulas) > len(alarms)
    assert f"{month.standing()['alarm_metrics']} metrics of alarms" in PAGE


def test_an_idle_stack_costs_what_stands() -> None:
    """What the bill calls standing, and the runs of retention that no session pays for."""
    model, page = (
        LambdaModel(),
        (Path(__file__).parent.parent.parent / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8"),
    )
    parts = month.idle(model, **month.standing())
    cost = {part.without or part.name.split(":")[0].strip("`"): part.usd for part in parts}
    no_sessions = month.month(lives(), 0, model, **month.standing())
    runs = cost["RetentionWorker"] + cost["Tracing=PassThrough"]
    assert sum(cost.values()) == pytest.approx(no_sessions.total + runs) and 0 < runs < 0.2
    assert (cost["Alarms=false"], cost["Dashboard=false"]) == (pytest.approx(2.8), pytest.approx(3))
    parameters = template().parameters
    assert all(part.without.split("=")[0] in parameters for part in parts if part.without)
    assert month.markdown(month.idle_lines(parts)) in page


def test_a_stack_on_trial_has_no_alarms_and_no_dashboard() -> None:
    on_trial = template(Alarms="false", Dashboard="false")
    made = {resource["Type"] for resource in resolved(on_trial).values()}
    assert not {"AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard"} & made
    assert on_trial.document["Outputs"]["DashboardName"]["Condition"] == "HasDashboard"
    schedules = [rule for _, rule in on_trial.of_type("AWS::Events::Rule")]
    assert [rule["ScheduleExpression"] for rule in schedules] == [
        f"rate({month.RETENTION_MINUTES} minutes)"
    ] * month.RETENTION_RUNS


def test_a_bigger_month_costs_in_proportion_but_for_what_stands() -> None:
    model, (small, large) = LambdaModel(), (1_000, 30_000)
    result, many = (month.month(lives(), size, model, **month.standing()) for size in (small, large))
    rest = result.by_service.keys() - {"standing", "X-Ray"}
    assert {name: many.by_service[name] for name in rest} == {
        name: pytest.approx(30 * result.by_service[name]) for name in rest
    }
    assert many.by_service["standing"] == result.by_service["standing"] > 0


@pytest.mark.parametrize(("calls_a_second", "traced"), [(0.5, 0.5), (1, 1), (101, 6)])
def test_x_ray_takes_one_trace_a_second_and_a_share_of_the_others(calls_a_second: float, traced: float) -> None:
    a_day = 86_400
    result = month.Life("one", round(calls_a_second * 10), 0, 0, 0, 0, 0)
    made = month.month([result, result], a_day // 10, LambdaModel(), queues=0, alarm_metrics=0, dashboards=0)
    assert made.by_service["X-Ray"] == pytest.approx(traced * a_day * month.DAYS * 5e-6)
