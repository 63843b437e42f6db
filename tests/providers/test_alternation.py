"""Laying out a conversation for Anthropic and Converse costs a constant number of looks at each block, however it is merged."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from turnlog.providers import alternation
from turnlog.providers.alternation import Layout


class Moves:
    """How many elements of lists the module has moved."""

    count = 0


class _AnyList(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.list)


class CountedList(builtins.list[Any], metaclass=_AnyList):
    def __iter__(self) -> Iterator[Any]:
        Moves.count += len(self)
        return super().__iter__()

    def __add__(self, other: Any) -> CountedList:
        Moves.count += len(self) + len(other)
        return CountedList(super().__add__(other))


class CountedLayout(Layout):
    """A layout whose lists are counted ones, whatever is assigned."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, CountedList(value) if type(value) is builtins.list else value)


def is_result(block: object) -> bool:
    Moves.count += 1
    return isinstance(block, dict) and "result" in block


def work_of(bodies: Sequence[list[Any]]) -> int:
    Moves.count = 0
    layout = CountedLayout(is_result, in_system=0)
    for index, blocks in enumerate(bodies):
        body: dict[str, Any] = {"role": "user", "content": blocks}
        if index:
            layout.extend_message(body)
        else:
            layout.add_message(body)
        layout.end_turn()
    messages, ends = layout.finish(lambda text: {"role": "user", "content": [{"text": text}]}, lambda _: False)
    assert len(ends) == len(bodies)
    (message,) = messages
    assert len(message["content"]) == sum(map(len, bodies))  # type: ignore[arg-type]
    return Moves.count


SHAPES = {
    "results": lambda n: [[{"result": n}]],
    "texts": lambda n: [[{"text": str(n)}]],
    "results and texts in turn": lambda n: [[{"result": n}], [{"text": str(n)}]],
    "both in each": lambda n: [[{"text": str(n)}, {"result": n}]],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_of_merging_is_linear_in_the_blocks(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternation, "list", CountedList, raising=False)
    work = [work_of([blocks for n in range(count) for blocks in SHAPES[shape](n)]) for count in (200, 2_000)]
    blocks = sum(map(len, SHAPES[shape](0))) * 2_000
    assert work[1] <= 6 * blocks
    assert work[1] <= 10 * work[0] + 100
