"""The benchmarks run and have their shape. No time and no figure that a machine decides is asserted."""

from __future__ import annotations

import json

import pytest

from benchmarks import cost, handlers, operations, worst_requests
from benchmarks.scenarios import ENGLISH, TENANT, USER, Scene, agent_turn, chat_message
from turnlog.routing import BY_NAME


@pytest.fixture(scope="module")
def report() -> operations.Report:
    """Without processes and emulators: both open sockets."""
    return operations.run(quick=True, only_moto=True, handlers=False, lengths=[10])


def test_every_operation_is_measured(report: operations.Report, capsys: pytest.CaptureFixture[str]) -> None:
    names = [row.operation for row in report.rows]
    assert {"create", "append 1 x 600 B", "append 25 x 600 B", "read 100 messages"} <= set(names)
    assert any(name.startswith("window") for name in names)
    for row in report.rows:
        assert row.error is None
        assert row.own_ms is not None
        assert row.handler_ms is not None
        assert sum(row.port_calls.values()) > 0
        assert sum((row.requests or {}).values()) > 0
        assert (row.sent_bytes or 0) > 0
    operations.show(report)
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)


def test_the_append_of_the_budget_is_metered(report: operations.Report) -> None:
    (append,) = [row for row in report.rows if row.operation == "append 1 x 600 B"]
    assert append.has_budget
    assert append.requests == {"Query": 1, "PutItem": 1}
    assert (append.read_units, append.write_units, append.index_write_units) == (1, 1, 0)


def test_a_figure_over_its_limit_is_named(report: operations.Report) -> None:
    from dataclasses import replace

    from benchmarks.measuring import judge
    from benchmarks.scenarios import operations as listed

    (append,) = [item for item in listed() if item.name == "append 1 x 600 B"]
    row = replace(
        report.rows[0], operation=append.name, read_units=1.5, write_units=1, own_ms=0.1, requests={"Query": 2}
    )
    judge(row, append)
    assert row.over == ["RCU 1.5 > 1"]


def test_the_report_is_plain_json_without_names_of_machines(report: operations.Report) -> None:
    loaded = json.loads(json.dumps(report.as_json()))
    assert loaded["versions"]["python"]
    assert {"operations", "handlers", "over", "note", "versions", "import_costs_ms"} == set(loaded)
    assert str(operations.ROOT) not in json.dumps(loaded)


def test_the_fixtures_are_what_the_budgets_say() -> None:
    assert len(TENANT) == len(USER) == 12
    assert len(ENGLISH) == len(chat_message(7)["content"]) == 600
    turn = agent_turn(1)
    assert len(turn) == 12
    results = [message["content"] for commit in turn for message in commit if message["role"] == "tool"]
    assert [len(text) for text in results] == [3_000] * 10
    assert Scene.build.__doc__


def test_handlers_are_found() -> None:
    names = handlers.handler_names()
    assert "api.append" in names
    assert not any(name.endswith("__init__") for name in names)


def test_a_turn_is_priced_from_its_units() -> None:
    spent = cost.Spent(api_requests=3, write_units=4, read_units=2)
    spent.requests.update({"Query": 1, "blob_put": 1})
    priced = spent.cost(cost.LambdaModel())
    assert priced["DynamoDB"] == pytest.approx(4 * 0.625e-6 + 2 * 0.125e-6)
    assert priced["HTTP API"] == pytest.approx(3e-6)
    assert priced["S3"] == pytest.approx(5e-6)
    assert priced["SQS"] == 0
    (table,) = [cost.lines([(cost.turns(10)[0], spent)], cost.LambdaModel())]
    assert len(table) == 2
    assert len({len(line) for line in table}) == 1


def test_the_worst_requests_have_a_case_for_every_route_and_no_other() -> None:
    assert set(worst_requests.CASES) == set(BY_NAME)
