"""D3 and D4 on every engine: the corner cases of JSON come back equal, and damage is a typed error that names the item."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnlog.client.model import Session
from turnlog.core.errors import CorruptError
from turnlog.ports import Key, Query

CORNERS: list[Any] = [
    None,
    True,
    0,
    -0.0,
    1.0,
    1e308,
    5e-324,
    2**64 - 1,
    -(2**63),
    "",
    "\x00\x1b\x7f",
    "\ud83d",
    "e\u0301 é 你好 🙂",
    [],
    {},
    {"": {"": []}},
    {"b": 1, "a": {"10": 1, "9": 2}},
    [[[[[[[[[["deep"]]]]]]]]]],
    "x" * 3_000,
]
PARTITION = "T#acme#U#ada#S#s"


def conversation(harness: Any) -> Session:
    session = harness.log().sessions.create("s", system="Be brief.")
    session.append({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, idempotency_key="k")
    session.append({"role": "user", "content": "".join(f"{at * 7919:06x}" for at in range(1_000))})
    session.append({"role": "assistant", "content": "".join(f"{at * 7919:09x}" for at in range(9_000))})
    session.append({"role": "user", "content": "bye"})
    return session


def stored(harness: Any, low: str, high: str) -> list[dict[str, Any]]:
    return [dict(item) for item in harness.app.engine.items.query(Query(PARTITION, low, high)).items]


def test_d3_every_corner_of_json_comes_back_equal(harness: Any) -> None:
    session = harness.log().sessions.create("s", metadata={"all": CORNERS})
    bodies = [{"role": "user", "content": "hi", "extra": value} for value in CORNERS]
    session.append(*bodies, meta=[{"metadata": {"same": value}} for value in CORNERS])
    messages = list(session.messages())
    assert [json.dumps(message.body) for message in messages] == [json.dumps(body) for body in bodies]
    assert [json.dumps(message.metadata["same"]) for message in messages] == [json.dumps(value) for value in CORNERS]
    assert json.dumps(session.info().metadata) == json.dumps({"all": CORNERS})


@pytest.mark.parametrize("attribute", ["b", "h", "l", "t", "n", "ct", "ol", "ik"])
def test_d4_a_changed_attribute_of_a_commit_is_a_typed_error(harness: Any, attribute: str) -> None:
    session = conversation(harness)
    item = stored(harness, "C#", "C~")[1]
    value = item[attribute]
    if isinstance(value, bytes):
        item[attribute] = value[:-1] + bytes([value[-1] ^ 1])
    else:
        item[attribute] = value + (1 if isinstance(value, int) else "1")
    harness.app.engine.items.put(item)
    for read in (lambda: list(session.messages()), session.context, lambda: list(session.loops())):
        with pytest.raises(CorruptError) as caught:
            read()
        assert caught.value.item.startswith("C#")


def test_d4_a_hole_and_a_missing_payload_are_typed_errors(harness: Any) -> None:
    session = conversation(harness)
    payload = stored(harness, "R#", "R~")[0]
    harness.app.engine.items.delete_many([Key(PARTITION, payload["sk"])])
    with pytest.raises(CorruptError, match="missing"):
        list(session.messages())
    harness.app.engine.items.put(payload)
    blob = harness.app.engine.blobs.names("")[0]
    harness.app.engine.blobs.erase(blob)
    with pytest.raises(CorruptError, match="missing"):
        list(session.messages())
    harness.app.engine.items.delete_many([Key(PARTITION, stored(harness, "C#", "C~")[2]["sk"])])
    with pytest.raises(CorruptError, match="missing between"):
        session.context()
