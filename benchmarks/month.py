"""What a month costs on AWS at three sizes, from two kinds of sessions that are metered from their creation to their last reply.

    python -m benchmarks.month               # tables
    python -m benchmarks.month --markdown    # the same for the docs

Requests, units and stored bytes are metered on moto and are the same on every machine; own CPU time is that of this one.
Prices and the model of a Lambda's time are those of `benchmarks.cost`.
"""

from __future__ import annotations

import argparse
import functools
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import botocore.session

from benchmarks.cost import BUDGET_TOKENS, PRICES, PRICES_OF, LambdaModel
from benchmarks.engines import REGION, TABLE, Embedded, dynamo
from benchmarks.measuring import event_of
from benchmarks.scenarios import SYSTEM, TOOL, Call, agent_turn, chat_message
from turnlog.http.lambda_api import make_handler
from turnlog.routing import ROUTES
from turnlog.server.stack import expand, template_path
from turnlog.testing.dynamodb_rules import wire_item_bytes

SIZES = (1_000, 30_000, 1_000_000)
DAYS = 30
CHAT_TURNS, AGENT_TURNS, CHATS_PER_AGENT = 10, 3, 9
SECONDS_BETWEEN_TURNS = 60
MORE_PRICES = {
    "DynamoDB storage, GB-month": 0.25,
    "DynamoDB point-in-time recovery, GB-month": 0.20,
    "logs, GB": 0.50,
    "X-Ray, million traces": 5.00,
    "alarm-month of a metric": 0.10,
    "dashboard-month": 3.00,
}
_ITEM_OVERHEAD = 100  # bytes that DynamoDB adds to an item, and to its copy in an index, when it bills storage
_ACCESS_LOG_BYTES = 330  # a line of API Gateway in the template's format, with what CloudWatch adds
_FUNCTION_LOG_BYTES = 420  # the line of a function for the same call
_LAMBDA_LOG_BYTES = 770  # Lambda's start and report of the same call, with a trace's id and what CloudWatch adds
_TRACES_A_SECOND, _TRACED_SHARE = 1, 0.05  # X-Ray's default rule: so many in each second, and a share of the others
_POLLERS, _POLL_SECONDS = 5, 20  # of each queue, by Lambda, with nothing in it
_BYTES_PER_GB = 1_000_000_000
_PEAK = 5


@dataclass(frozen=True, slots=True)
class Life:
    """What one session takes, from its creation to its last reply."""

    name: str
    api_requests: int
    write_units: float
    read_units: float
    table_requests: int
    stored_bytes: int
    own_ms: float


@dataclass(frozen=True, slots=True)
class Month:
    """USD of a month. ``storage``: what the month's sessions cost in each month that they are kept."""

    sessions: int
    api_requests: float
    by_service: dict[str, float]
    stored_gb: float
    storage: float

    @property
    def total(self) -> float:
        return sum(self.by_service.values())


def _chat(session: str) -> Iterator[Call | None]:
    """None: the time between two turns."""
    yield Call("create_session", body={"session_id": session})
    path = {"session_id": session}
    for turn in range(CHAT_TURNS):
        yield Call("append_messages", path, body={"messages": [chat_message(2 * turn)]})
        yield Call("build_context", path, body={"budget": BUDGET_TOKENS})
        yield Call("append_messages", path, body={"messages": [chat_message(2 * turn + 1)]})
        yield None


def _agent(session: str) -> Iterator[Call | None]:
    yield Call("create_session", body={"session_id": session, "system": SYSTEM, "tools": [TOOL]})
    path = {"session_id": session}
    for turn in range(AGENT_TURNS):
        commits = agent_turn(turn)
        for at, commit in enumerate(commits):
            yield Call("append_messages", path, body={"messages": commit})
            if at + 1 < len(commits):
                yield Call("build_context", path, body={"budget": BUDGET_TOKENS})
        yield None


KINDS: dict[str, Callable[[str], Iterator[Call | None]]] = {
    f"chat: {CHAT_TURNS} turns": _chat,
    f"agent: {AGENT_TURNS} turns of 10 calls": _agent,
}


@functools.cache
def metered(name: str) -> Life:
    """Return what is the same on every machine; own time is 0."""
    steps, requests = KINDS[name], 0
    with dynamo(only_moto=True) as engine:
        with engine.guard.measure() as meter:
            for call in steps("month-000001"):
                if call is None:
                    engine.clock.advance(SECONDS_BETWEEN_TURNS)
                    continue
                call.send(engine.metered)
                requests += 1
        client: Any = botocore.session.get_session().create_client("dynamodb", region_name=REGION)
        items = client.scan(TableName=TABLE)["Items"]
    copies = [item for item in items for key in ("g1pk", "g2pk") if key in item]
    stored = sum(wire_item_bytes(item) + _ITEM_OVERHEAD for item in [*items, *copies])
    writes = meter.write_units + meter.index_write_units
    return Life(name, requests, writes, meter.read_units, sum(meter.requests.values()), stored, 0.0)


def lived(name: str) -> Life:
    """Return the same with own time: that of the handlers on this machine, less the engine's, of a second, warm session."""
    embedded, steps, own = Embedded.make(), KINDS[name], 0.0
    handler = make_handler(ROUTES, embedded.app)
    for session in ("month-000000", "month-000001"):
        own = 0.0
        for call in steps(session):
            if call is None:
                embedded.clock.advance(SECONDS_BETWEEN_TURNS)
                continue
            event, inside, start = event_of(call), embedded.times.seconds, time.process_time()
            answer = handler(event, None)
            own += time.process_time() - start - (embedded.times.seconds - inside)
            assert answer["statusCode"] < 300, answer["body"]
    embedded.app.close()
    return replace(metered(name), own_ms=round(own * 1_000))


def month(
    lives: Sequence[Life], sessions_a_day: int, model: LambdaModel, *, queues: int, alarm_metrics: int, dashboards: int
) -> Month:
    """Return the bill of so many sessions a day: ``CHATS_PER_AGENT`` of the first kind to one of the second."""
    parts = CHATS_PER_AGENT + 1
    sessions = sessions_a_day * DAYS
    weights = (sessions * CHATS_PER_AGENT / parts, sessions / parts)

    def of(each: Callable[[Life], float]) -> float:
        return sum(weight * each(life) for weight, life in zip(weights, lives, strict=True))

    requests = of(lambda life: life.api_requests)
    gb_seconds = of(lambda life: model.gb_seconds(life.own_ms, life.table_requests))
    polls = queues * _POLLERS * DAYS * 86_400 / _POLL_SECONDS
    logs = requests * (_ACCESS_LOG_BYTES + _FUNCTION_LOG_BYTES + _LAMBDA_LOG_BYTES) / _BYTES_PER_GB
    first = min(requests, _TRACES_A_SECOND * DAYS * 86_400)
    traces = first + _TRACED_SHARE * (requests - first)
    stored = of(lambda life: life.stored_bytes) / _BYTES_PER_GB
    return Month(
        sessions,
        requests,
        {
            "DynamoDB": of(lambda life: life.write_units) * PRICES["DynamoDB write unit"]
            + of(lambda life: life.read_units) * PRICES["DynamoDB read unit"],
            "Lambda": requests * PRICES["Lambda request"] + gb_seconds * PRICES["Lambda GB-s, arm64"],
            "HTTP API": requests * PRICES["HTTP API request"],
            "logs": logs * MORE_PRICES["logs, GB"],
            "X-Ray": traces / 1_000_000 * MORE_PRICES["X-Ray, million traces"],
            "standing": polls * PRICES["SQS request, standard"]
            + alarm_metrics * MORE_PRICES["alarm-month of a metric"]
            + dashboards * MORE_PRICES["dashboard-month"],
        },
        stored,
        stored * sum(MORE_PRICES[f"DynamoDB {what}, GB-month"] for what in ("storage", "point-in-time recovery")),
    )


@functools.cache
def standing() -> dict[str, int]:
    """Return the template's queues that Lambda polls, metrics of its alarms (each is billed, in a formula too) and dashboards."""
    template = expand(template_path())
    kinds = [resource["Type"] for resource in template.resources.values()]
    return {
        "queues": kinds.count("AWS::Lambda::EventSourceMapping"),
        "alarm_metrics": sum(_alarm_metrics(alarm) for _, alarm in template.of_type("AWS::CloudWatch::Alarm")),
        "dashboards": kinds.count("AWS::CloudWatch::Dashboard"),
    }


@dataclass(frozen=True, slots=True)
class Standing:
    """A part of an idle stack, what it costs a month in USD, and the parameter that leaves it out."""

    name: str
    usd: float
    without: str = ""


RETENTION_RUNS, RETENTION_MINUTES, _RETENTION_OWN_MS = 4, 10, 10


@functools.cache
def idle_retention() -> tuple[int, float, float]:
    """Return requests, read units and write units of the runs of one schedule over an empty table, but for the very first."""
    with dynamo(only_moto=True) as engine:
        for _ in range(2):
            with engine.guard.measure() as meter:
                for worker in range(RETENTION_RUNS):
                    engine.metered.retain_sessions(worker, RETENTION_RUNS)
        return sum(meter.requests.values()), meter.read_units, meter.write_units + meter.index_write_units


def idle(model: LambdaModel, *, queues: int, alarm_metrics: int, dashboards: int) -> list[Standing]:
    """Return what a stack costs a month that nobody calls."""
    rounds = DAYS * 24 * 60 // RETENTION_MINUTES
    runs = rounds * RETENTION_RUNS
    requests, reads, writes = idle_retention()
    traces = runs / 1_000_000 * MORE_PRICES["X-Ray, million traces"]
    retention = (
        rounds * (reads * PRICES["DynamoDB read unit"] + writes * PRICES["DynamoDB write unit"])
        + runs * PRICES["Lambda request"]
        + runs * model.gb_seconds(_RETENTION_OWN_MS, requests // RETENTION_RUNS) * PRICES["Lambda GB-s, arm64"]
        + runs * (_FUNCTION_LOG_BYTES + _LAMBDA_LOG_BYTES) / _BYTES_PER_GB * MORE_PRICES["logs, GB"]
    )
    polls = queues * _POLLERS * DAYS * 86_400 / _POLL_SECONDS
    return [
        Standing(
            f"alarms: {alarm_metrics} metrics", alarm_metrics * MORE_PRICES["alarm-month of a metric"], "Alarms=false"
        ),
        Standing("the dashboard", dashboards * MORE_PRICES["dashboard-month"], "Dashboard=false"),
        Standing(
            f"Lambda asks {queues} queues for jobs: {_POLLERS} pollers each, a request in {_POLL_SECONDS} s",
            polls * PRICES["SQS request, standard"],
        ),
        Standing(
            f"`RetentionWorker`: {RETENTION_RUNS} runs every {RETENTION_MINUTES} minutes, and their logs", retention
        ),
        Standing("traces of these runs", traces, "Tracing=PassThrough"),
        Standing("API, functions, table, bucket, log groups, with nothing in them", 0.0),
    ]


def idle_lines(parts: Sequence[Standing]) -> list[list[str]]:
    rows = [[part.name, f"{part.usd:,.2f}", f"`{part.without}`" if part.without else "–"] for part in parts]
    total, rest = (sum(part.usd for part in parts if not (left and part.without)) for left in (False, True))
    return [
        ["an idle stack", "USD a month", "left out by"],
        *rows,
        ["**together**", f"**{total:,.2f}**", f"with all three: **{rest:,.2f}**"],
    ]


def _alarm_metrics(alarm: Mapping[str, Any]) -> int:
    return sum("MetricStat" in metric for metric in alarm.get("Metrics", [])) or 1


def life_lines(lives: Sequence[Life]) -> list[list[str]]:
    heads = ["one session", "API calls", "requests to DynamoDB", "WRU", "RRU", "stored bytes", "own ms"]
    rows = [
        [
            live.name,
            f"{live.api_requests:,}",
            f"{live.table_requests:,}",
            f"{live.write_units:,.0f}",
            f"{live.read_units:,.1f}",
            f"{live.stored_bytes:,}",
            f"{live.own_ms:,.0f}",
        ]
        for live in lives
    ]
    return [heads, *rows]


def month_lines(
    lives: Sequence[Life], model: LambdaModel, *, queues: int, alarm_metrics: int, dashboards: int
) -> list[list[str]]:
    """Return a row for each of `SIZES`."""
    months = [
        month(lives, size, model, queues=queues, alarm_metrics=alarm_metrics, dashboards=dashboards) for size in SIZES
    ]
    heads = [
        "sessions a day",
        "API calls, million",
        *months[0].by_service,
        "USD a month",
        "stored, GB",
        "USD to keep it",
    ]
    rows = [
        [
            f"{size:,}",
            f"{month.api_requests / 1e6:,.2f}",
            *(f"{value:,.2f}" for value in month.by_service.values()),
            f"{month.total:,.2f}",
            f"{month.stored_gb:,.2f}",
            f"{month.storage:,.2f}",
        ]
        for size, month in zip(SIZES, months, strict=True)
    ]
    return [heads, *rows]


def rate_lines(lives: Sequence[Life], model: LambdaModel) -> list[list[str]]:
    """Return what the largest of `SIZES` asks of AWS, beside the quotas of a new account."""
    parts = CHATS_PER_AGENT + 1

    def a_day(each: Callable[[Life], float]) -> float:
        weights = (CHATS_PER_AGENT / parts, 1 / parts)
        return SIZES[-1] * sum(weight * each(life) for weight, life in zip(weights, lives, strict=True))

    seconds = a_day(lambda life: model.gb_seconds(life.own_ms, life.table_requests)) * 1_024 / model.memory_mb
    rows = [
        ("API calls", a_day(lambda life: life.api_requests), "10,000 of an account"),
        ("requests to DynamoDB", a_day(lambda life: life.table_requests), ""),
        ("write units", a_day(lambda life: life.write_units), "40,000; 4,000 of a new table"),
        ("read units", a_day(lambda life: life.read_units), "40,000; 12,000 of a new table"),
        ("seconds of Lambda: executions at once", seconds, "1,000"),
        ("GB stored", a_day(lambda life: life.stored_bytes) / _BYTES_PER_GB, ""),
    ]
    heads = [f"{SIZES[-1]:,} sessions", "a day", "a second, mean", f"at a peak of {_PEAK} times", "quota"]
    made = [
        [name, f"{total:,.0f}", *(f"{total * times / 86_400:,.0f}" for times in (1, _PEAK)), quota]
        for name, total, quota in rows[:-1]
    ]
    name, total, _ = rows[-1]
    return [heads, *made, [name, f"{total:,.1f}", "", "", ""]]


def notes(model: LambdaModel) -> list[str]:
    alarm_metrics = standing()["alarm_metrics"]
    logs = f"{_ACCESS_LOG_BYTES} of the access log, {_FUNCTION_LOG_BYTES} of the function, {_LAMBDA_LOG_BYTES} of Lambda's report"
    more = ", ".join(f"{name} ${price:g}" for name, price in MORE_PRICES.items())
    mix = f"{CHATS_PER_AGENT} chats to one agent, {SECONDS_BETWEEN_TURNS} seconds between turns, a month of {DAYS} days"
    said = f"windows within {BUDGET_TOKENS:,} tokens; messages of 600 characters, tool results of 3 KB"
    rule = f"its default rule, {_TRACES_A_SECOND} trace a second and {_TRACED_SHARE:.0%}"
    polls = f"Lambda's {_POLLERS} pollers of each queue, one request each in {_POLL_SECONDS} seconds"
    return [
        f"{mix}; {said}.",
        f"Prices: {PRICES_OF}; {more}.",
        f"Lambda: {model}.",
        f"Logs: bytes a call are {logs}; the parameter `LogLevel=WARN` leaves the first.",
        f"X-Ray: {rule} of the other calls; the parameter `Tracing=PassThrough` makes none.",
        f"Standing: {alarm_metrics} metrics of alarms (of a formula each), the dashboard, and {polls}.",
        "Not in it: the model, transfer out of the region, ends, summaries, erasing, metrics of errors.",
        "Free tiers and discounts of volume are not taken off.",
    ]


def markdown(table: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(table[0]) - 1)]
    rows = ["| " + " | ".join(cells) + " |" for cells in table]
    return "\n".join([rows[0], "|" + "|".join(rule) + "|", *rows[1:]])


_MARKED = re.compile(r"(<!-- month: (\w+); made by `make docs` -->\n).*?(<!-- end -->)", re.S)
_ROW = re.compile(r"^\| ([\w: ]+) \|(?: [\d,.]+ \|){5} ([\d,]+) \|$", re.M)


def with_tables(page: str, *, own_times: str = "") -> str:
    """Return the page with its tables made again, of figures metered again and of the own times of a page (by default this one)."""
    model, own = LambdaModel(), {name: float(ms.replace(",", "")) for name, ms in _ROW.findall(own_times or page)}
    lives = [replace(metered(name), own_ms=own[name]) for name in KINDS]
    bill = markdown(month_lines(lives, model, **standing()))
    result = "\n".join(textwrap.fill(f"- {note}", 120, subsequent_indent="  ") for note in notes(model))
    made = {
        "sessions": markdown(life_lines(lives)),
        "bill": f"{bill}\n\n{result}",
        "rates": markdown(rate_lines(lives, model)),
        "idle": markdown(idle_lines(idle(model, **standing()))),
    }
    return _MARKED.sub(lambda item: f"{item[1]}{made[item[2]]}\n{item[3]}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="tables for the docs")
    options = parser.parse_args()
    model, lives = LambdaModel(), [lived(name) for name in KINDS]
    for table in (life_lines(lives), month_lines(lives, model, **standing())):
        if options.markdown:
            print(markdown(table) + "\n")
            continue
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        print("\n".join("  ".join(map(str.rjust, cells, widths)) for cells in table) + "\n")
    print("\n".join(f"- {note}" for note in notes(model)))


if __name__ == "__main__":
    main()
