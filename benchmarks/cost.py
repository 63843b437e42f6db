"""What a thousand turns cost on AWS, from metered requests and capacity.

    python benchmarks/cost.py               # a table
    python benchmarks/cost.py --markdown    # the same for the docs

Requests, capacity and blobs are metered; own CPU time is measured on this machine; how long a Lambda runs is assumed from
both (`LambdaModel`). Not in it: storage, data transfer, logs, free tiers, the model itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.engines import Dynamo, Embedded, dynamo  # noqa: E402
from benchmarks.measuring import event_of  # noqa: E402
from benchmarks.scenarios import Call, Scene, agent_turn, chat_message  # noqa: E402
from turnlog.http.lambda_api import make_handler  # noqa: E402
from turnlog.routing import BY_NAME, ROUTES  # noqa: E402

PRICES_OF = (
    "us-east-1, USD, on demand, first tier; DynamoDB's since November 2024, the others as AWS listed them in 2025; "
    "check them before you rely on them"
)
PRICES = {
    "DynamoDB write unit": 0.625 / 1e6,
    "DynamoDB read unit": 0.125 / 1e6,
    "HTTP API request": 1.00 / 1e6,
    "Lambda request": 0.20 / 1e6,
    "Lambda GB-s, arm64": 0.0000133334,
    "SQS request, standard": 0.40 / 1e6,
    "S3 PUT": 0.005 / 1e3,
    "S3 GET": 0.0004 / 1e3,
}
TURNS = 3
BUDGET_TOKENS = 24_000
_SQS_REQUESTS_PER_JOB = 3  # send, receive, delete


@dataclass(frozen=True, slots=True)
class LambdaModel:
    """Billed duration = own CPU, slowed by the share of a vCPU that the memory gives, plus a wait for each request."""

    memory_mb: int = 1_024
    full_cpu_mb: int = 1_769
    wait_ms_per_request: float = 5.0

    def gb_seconds(self, own_ms: float, requests: int) -> float:
        slowed = own_ms * max(1.0, self.full_cpu_mb / self.memory_mb)
        return (slowed + requests * self.wait_ms_per_request) / 1_000 * self.memory_mb / 1_024

    def __str__(self) -> str:
        return (
            f"{self.memory_mb:,} MB arm64; billed = own CPU of this machine x {self.full_cpu_mb / self.memory_mb:.2f} + "
            f"{self.wait_ms_per_request:g} ms for each request to DynamoDB and S3; no cold starts"
        )


@dataclass
class Spent:
    """Of one turn."""

    api_requests: float = 0
    jobs: float = 0
    requests: Counter[str] = field(default_factory=Counter)
    read_units: float = 0
    write_units: float = 0
    own_ms: float = 0

    def cost(self, model: LambdaModel) -> dict[str, float]:
        """USD by service."""
        puts, gets = self.requests["blob_put"], self.requests["blob_get"]
        gb_seconds = model.gb_seconds(self.own_ms, sum(self.requests.values()))
        return {
            "DynamoDB": self.write_units * PRICES["DynamoDB write unit"]
            + self.read_units * PRICES["DynamoDB read unit"],
            "Lambda": (self.api_requests + self.jobs) * PRICES["Lambda request"]
            + gb_seconds * PRICES["Lambda GB-s, arm64"],
            "HTTP API": self.api_requests * PRICES["HTTP API request"],
            "SQS": self.jobs * _SQS_REQUESTS_PER_JOB * PRICES["SQS request, standard"],
            "S3": puts * PRICES["S3 PUT"] + gets * PRICES["S3 GET"],
        }


@dataclass(frozen=True, slots=True)
class Turn:
    """A kind of turn, after ``messages`` messages. ``summarised``: a summary is in force, and each turn ends with a job."""

    name: str
    messages: int
    steps: Callable[[Scene, int], Iterator[Call]]
    summarised: bool = False


def _chat(scene: Scene, turn: int) -> Iterator[Call]:
    path = {"session_id": scene.chat.id}
    yield Call("append_messages", path, body={"messages": [chat_message(2 * turn)]})
    yield Call("build_context", path, body={"budget": BUDGET_TOKENS})
    yield Call("append_messages", path, body={"messages": [chat_message(2 * turn + 1)]})


def _agent(scene: Scene, turn: int) -> Iterator[Call]:
    path = {"session_id": scene.agent.id}
    for commit in agent_turn(2_000 + turn):
        yield Call("append_messages", path, body={"messages": commit})
        yield Call("build_context", path, body={"budget": BUDGET_TOKENS})


def turns(long_messages: int) -> list[Turn]:
    return [
        Turn("chat turn: 2 appends, 1 window", 100, _chat),
        Turn("agent turn: 12 appends with 10 results of 3 KB, 12 windows", 114, _agent),
        Turn(
            f"the same after {long_messages:,} messages, with a summary and 1 compress job",
            long_messages,
            _agent,
            summarised=True,
        ),
    ]


def spend(turn: Turn, engine: Dynamo) -> Spent:
    """Return the mean of some turns. Each begins more than five minutes after the last, so it touches the list once."""
    spent, embedded = Spent(), Embedded.make()
    handler = make_handler(ROUTES, embedded.app)
    own = Scene.build(embedded.app, embedded.clock, turn.messages)
    metered = Scene.build(engine.plain, engine.clock, turn.messages, batches=engine.most_messages is not None)
    summarised = turn.summarised and "compress_session" in BY_NAME
    if summarised:
        _compress(own).send(embedded.app)
        _compress(metered).send(engine.plain)
    for number in range(TURNS):
        for scene in (own, metered):
            scene.clock.advance(301)
        blobs = engine.blobs.calls.copy()
        with engine.guard.measure() as meter:
            for call in turn.steps(metered, number):
                call.send(engine.metered)
                spent.api_requests += 1 / TURNS
            if summarised:
                _compress(metered).send(engine.metered)
                spent.jobs += 1 / TURNS
        spent.requests += Counter({**meter.requests, **(engine.blobs.calls - blobs)})
        spent.read_units += meter.read_units / TURNS
        spent.write_units += (meter.write_units + meter.index_write_units) / TURNS
        calls = [*turn.steps(own, number), *([_compress(own)] if summarised else [])]
        for event in map(event_of, calls):
            inside, start = embedded.times.seconds, time.process_time()
            answer = handler(event, None)
            spent.own_ms += (time.process_time() - start - embedded.times.seconds + inside) * 1_000 / TURNS
            assert answer["statusCode"] < 300, answer["body"]
    spent.requests = Counter({name: round(count / TURNS) for name, count in spent.requests.items()})
    embedded.app.close()
    return spent


def _compress(scene: Scene) -> Call:
    """Return the call that summarises as a worker does: in the background, without an API request."""
    return Call("compress_session", {"session_id": scene.agent.id}, body={"mode": "sync", "keep_loops": 1})


def sheet(*, only_moto: bool = False, long_messages: int = 10_000) -> tuple[str, list[tuple[Turn, Spent]]]:
    """Return what was metered where, and the kinds of turns."""
    with dynamo(only_moto=only_moto) as engine:
        long_messages = min(long_messages, engine.most_messages or long_messages)
        return engine.name, [(turn, spend(turn, engine)) for turn in turns(long_messages)]


def lines(rows: list[tuple[Turn, Spent]], model: LambdaModel) -> list[list[str]]:
    """Return a table: USD for a thousand turns."""
    services = ("DynamoDB", "Lambda", "HTTP API", "SQS", "S3")
    table = [["1,000 turns of", "API calls", "WRU", "RRU", "own ms", *services, "USD"]]
    for turn, spent in rows:
        cost = {name: 1_000 * value for name, value in spent.cost(model).items()}
        units = [f"{value:,.0f}" for value in (spent.write_units, spent.read_units, spent.own_ms)]
        figures = [f"{cost[name]:.4f}" for name in services]
        table.append([turn.name, f"{spent.api_requests:.0f}", *units, *figures, f"{sum(cost.values()):.3f}"])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="a table for the docs")
    parser.add_argument("--moto", action="store_true", help="moto, also where dynoxide is installed")
    options = parser.parse_args()
    model = LambdaModel()
    name, rows = sheet(only_moto=options.moto)
    table = lines(rows, model)
    metered = "WRU (indexes included), RRU and own CPU are of one turn"
    notes = [
        f"Metered on {name}; {metered}; windows within {BUDGET_TOKENS:,} tokens.",
        f"Prices: {PRICES_OF}.",
        f"Lambda: {model}.",
        "Not in it: storage, data transfer, logs, free tiers, the model.",
    ]
    if options.markdown:
        table.insert(1, ["---", *["---:"] * (len(table[0]) - 1)])
        print("\n".join("| " + " | ".join(cells) + " |" for cells in table) + "\n")
        print("\n".join(notes))
        return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        first, *rest = zip(cells, widths, strict=True)
        print("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]))
    print("\n".join(notes))


if __name__ == "__main__":
    main()
