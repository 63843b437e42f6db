"""Operations of the table with the capacity that dynoxide says each consumed: what our own meter must say too.

    python tools/record_operations.py            # writes tests/engines/recorded_operations.json; needs dynoxide

The list is made from a fixed seed. `replay` runs it through our adapter on any DynamoDB and gives two figures of each
operation: by the guard's meter, and by the service's ``ConsumedCapacity``. Of a put that lost its condition no service
tells the units.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from turnlog.ports import (
    INDEX_KEYS,
    Absent,
    AttributeValue,
    Condition,
    Equal,
    ItemTable,
    Key,
    Less,
    Lost,
    Query,
    item_size_bytes,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tests" / "engines" / "recorded_operations.json"
SEED = 20_261_121
RANDOM_OPERATIONS = 300

Operation = Mapping[str, Any]
Units = tuple[float, float, float]
"""Read, write and index write units."""
_EDGES = (1_023, 1_024, 1_025, 2_047, 2_048, 2_049, 4_095, 4_096, 4_097, 8_192, 8_193, 12_289)
_LARGE = (65_536, 102_400, 102_401, 307_200, 409_599, 409_600)
_PARTITIONS = ("T#acme#U#ada#S#one", "T#acme#U#ada#S#two", "T#ümlaut#U#ü#S#drei")
_OWNERS = ("T#acme#U#ada", "T#ümlaut#U#ü")
# Not among them: 0, which emulators count as one byte and we as two, and 120 or 12000, of which ministack counts a byte more.
_NUMBERS = (1, 7, -7, 100, 12_345, -(10**12), 2**63 - 1)


class Replayed(NamedTuple):
    """One operation: what our meter says, and what the service says (None: it says nothing)."""

    operation: Operation
    metered: Units
    reported: Units | None
    lost: bool


def operations() -> list[dict[str, Any]]:
    """Return the list, always the same. An item is its keys, its size and its places on the indexes: `item_of` makes it."""
    rng = random.Random(SEED)
    made: list[dict[str, Any]] = []
    for number, size in enumerate((*_EDGES, *_LARGE)):
        key = ["T#edges", f"C#{number:012}"]
        made += [{"do": "put", "item": {"key": key, "size": size}}, {"do": "get", "keys": [key]}]
        made.append({"do": "get", "keys": [key], "eventual": True})
        made.append({"do": "query", "pk": key[0], "low": key[1], "high": key[1]})
    makers = (_put, _put, _put_if, _put_if, _query, _query, _query_index, _get, _write, _delete, _delete)
    made += [rng.choice(makers)(rng) for _ in range(RANDOM_OPERATIONS)]
    return made


def _put(rng: random.Random) -> dict[str, Any]:
    return {"do": "put", "item": _item(rng)}


def _put_if(rng: random.Random) -> dict[str, Any]:
    """Make a conditional put of few keys and values, so that it is lost about as often as won."""
    condition = rng.choice((["absent"], ["equal", "n", 7], ["less", "n", rng.choice(_NUMBERS)]))
    return {"do": "put", "item": _item(rng), "if": condition}


def _query(rng: random.Random) -> dict[str, Any]:
    low, high = sorted((rng.randrange(14), rng.randrange(14)))
    bounds = {"pk": rng.choice(_PARTITIONS), "low": _sk(low), "high": _sk(high)}
    rest = {"limit": rng.choice((None, 1, 2, 5)), "descending": rng.random() < 0.5}
    return {"do": "query", **bounds, **rest}


def _query_index(rng: random.Random) -> dict[str, Any]:
    index = rng.choice(("activity", "expiry"))
    rest = {"limit": rng.choice((None, 1, 3)), "descending": rng.random() < 0.5}
    return {"do": "query", "index": index, "pk": rng.choice(_OWNERS), "low": "", "high": "~", **rest}


def _get(rng: random.Random) -> dict[str, Any]:
    return {"do": "get", "keys": _keys(rng, rng.choice((1, 2, 5, 12))), "eventual": rng.random() < 0.4}


def _write(rng: random.Random) -> dict[str, Any]:
    items = {tuple(item["key"]): item for item in (_item(rng) for _ in range(rng.choice((1, 3, 10, 24))))}
    return {"do": "write", "items": list(items.values())}


def _delete(rng: random.Random) -> dict[str, Any]:
    return {"do": "delete", "keys": _keys(rng, rng.choice((1, 4, 24)))}


def _item(rng: random.Random) -> dict[str, Any]:
    size = rng.choice((rng.choice(_EDGES), rng.randrange(200, 1_100), rng.randrange(200, 6_000)))
    item: dict[str, Any] = {"key": _keys(rng, 1)[0], "size": size}
    if rng.random() < 0.7:
        item["n"] = rng.choice((7, 7, 7, *_NUMBERS))
    if rng.random() < 0.3:
        item["activity"] = [rng.choice(_OWNERS), f"{rng.randrange(3):04}"]
    if rng.random() < 0.15:
        item["expiry"] = [rng.choice(_OWNERS), f"{rng.randrange(3):04}"]
    return item


def _keys(rng: random.Random, count: int) -> list[list[str]]:
    return [[rng.choice(_PARTITIONS), _sk(rng.randrange(12))] for _ in range(count)]


def _sk(number: int) -> str:
    return f"C#{number:012}"


def item_of(spec: Operation) -> dict[str, AttributeValue]:
    """Return the item of exactly the size that the list names."""
    item: dict[str, AttributeValue] = {"pk": spec["key"][0], "sk": spec["key"][1], "body": b""}
    if "n" in spec:
        item |= {"n": spec["n"], "title": "Grüße, 世界"}
    for index, names in INDEX_KEYS.items():
        if index in spec:
            item |= dict(zip(names, spec[index], strict=True))
    return {**item, "body": b"\xa5" * (spec["size"] - item_size_bytes(item))}


def replay(listed: Sequence[Operation], client: DynamoDBClient, table_name: str) -> Iterator[Replayed]:
    """Runs the list on an empty table."""
    from turnlog.engines.dynamodb import DynamoItemTable
    from turnlog.testing.aws import Guard

    guard = Guard.attach(client, demand_consistent=lambda operation, params: False)
    table, consumed = DynamoItemTable(client, table_name), _Consumed(client)
    for operation in listed:
        consumed.forget()
        with guard.measure() as spent:
            lost = perform(operation, table)
        metered = (spent.read_units, float(spent.write_units), float(spent.index_write_units))
        yield Replayed(operation, metered, None if lost else consumed.units(operation["do"]), lost)


def perform(operation: Operation, table: ItemTable) -> bool:
    """Runs one; whether it lost its condition."""
    match operation["do"]:
        case "put":
            return isinstance(table.put(item_of(operation["item"]), condition=_condition(operation.get("if"))), Lost)
        case "get":
            table.get_many([Key(*key) for key in operation["keys"]], consistent=not operation.get("eventual", False))
        case "write":
            table.write_many([item_of(spec) for spec in operation["items"]])
        case "delete":
            table.delete_many([Key(*key) for key in operation["keys"]])
        case "query":
            fields = {name: operation[name] for name in ("limit", "descending", "index") if name in operation}
            table.query(Query(operation["pk"], operation["low"], operation["high"], **fields))
    return False


def _condition(listed: Sequence[Any] | None) -> Condition | None:
    match listed:
        case ["absent"]:
            return Absent()
        case ["equal", attribute, value]:
            return Equal(attribute, value)
        case ["less", attribute, value]:
            return Less(attribute, value)
    return None


class _Consumed:
    """Asks for ``ConsumedCapacity`` and keeps what is answered."""

    def __init__(self, client: DynamoDBClient) -> None:
        self._answers: list[tuple[bool, Mapping[str, Any]]] = []
        events = client.meta.events
        events.register("provide-client-params.dynamodb", self._ask)
        events.register("after-call.dynamodb", self._keep)

    def forget(self) -> None:
        self._answers.clear()

    def units(self, do: str) -> Units | None:
        """Return the units of the last operation. Reads during a write are those of the meter, which looks at the old items."""
        is_read = do in ("get", "query")
        consumeds = [consumed for was_read, consumed in self._answers if was_read is is_read]
        if not consumeds:
            return None
        if is_read:
            return sum(item["CapacityUnits"] for item in consumeds), 0.0, 0.0
        indexes = [index for item in consumeds for index in item.get("GlobalSecondaryIndexes", {}).values()]
        return 0.0, _total(item["Table"] for item in consumeds), _total(indexes)

    def _ask(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        params["ReturnConsumedCapacity"] = "INDEXES"

    def _keep(self, model: Any, parsed: Mapping[str, Any], **_: Any) -> None:
        consumed = parsed.get("ConsumedCapacity", [])
        is_read = model.name in ("GetItem", "BatchGetItem", "Query")
        self._answers += [(is_read, item) for item in (consumed if isinstance(consumed, list) else [consumed])]


def _total(entries: Any) -> float:
    return float(sum(entry["CapacityUnits"] for entry in entries))


def recorded() -> dict[str, Any]:
    """Return the committed file."""
    loaded: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from tools.emulators import DYNOXIDE, running
    from turnlog.engines.aws_clients import Clients
    from turnlog.testing.aws import create_table

    if not DYNOXIDE.is_installed and DYNOXIDE.variable not in os.environ:
        print(DYNOXIDE.why_not)
        return 1
    os.environ |= {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    with running(DYNOXIDE) as url:
        client = Clients("eu-central-1", url, max_attempts=1).dynamodb
        create_table(client, "recorded")
        lines = [
            json.dumps({**item.operation, "lost": item.lost, "units": item.reported}, ensure_ascii=False)
            for item in replay(operations(), client, "recorded")
        ]
        client.close()
    header = json.dumps({"by": f"dynoxide {DYNOXIDE.version}", "seed": SEED, "units": "read, write, index write"})
    FILE.write_text(f'{header[:-1]}, "operations": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    print(f"{len(lines)} operations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
