"""Lazy dataclasses are what the standard library makes, and compile nothing before a method is called."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, asdict, astuple, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from tests.conftest import ROOT
from turnlog.core import lazy_dataclass as values

ours = values.lazy_dataclass


def _classes(dataclass: Callable[..., Any]) -> dict[str, type[Any]]:
    @dataclass(frozen=True, slots=True)
    class Plain:
        """With a docstring."""

        a: int
        b: str = "b"

    @dataclass(frozen=True, slots=True)
    class Made:
        of: ClassVar[int] = 3
        a: int
        b: list[int] = field(default_factory=list)
        c: int = field(default=1, compare=False)
        d: str = field(default="secret", repr=False)
        e: int = field(default=2, hash=False)

        @property
        def twice(self) -> int:
            return self.a * 2

    @dataclass(frozen=True, slots=True)
    class Checked:
        a: int = 0

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

    @dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.a % 2 == other.a % 2

        def __hash__(self) -> int:
            return self.a % 2

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, slots=True)
    class Empty:
        """No fields."""

    return {kind.__name__: kind for kind in (Plain, Made, Checked, Own, Empty)}


OURS, THEIRS = _classes(ours), _classes(dataclasses.dataclass)
ARGUMENTS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("Plain", (1,), {}),
    ("Plain", (1, "x"), {}),
    ("Plain", (), {"a": 1, "b": "x"}),
    ("Plain", (), {}),
    ("Plain", (1, "x", 2), {}),
    ("Plain", (1,), {"c": 2}),
    ("Plain", (1,), {"a": 2}),
    ("Made", (1,), {}),
    ("Made", (1, [2], 3, "d", 4), {}),
    ("Made", (1,), {"e": 5}),
    ("Checked", (), {}),
    ("Checked", (-1,), {}),
    ("Own", (3,), {}),
    ("Empty", (), {}),
    ("Empty", (1,), {}),
)


def _tried(act: Callable[[], Any]) -> str:
    """What comes of it, in words."""
    try:
        return str(act())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(("name", "args", "kwargs"), ARGUMENTS)
def test_an_instance_is_made_and_shown_alike(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def made(kind: type[Any]) -> list[str]:
        acts: tuple[Callable[[Any], object], ...] = (repr, asdict, astuple)
        return [_tried(lambda act=act: act(kind(*args, **kwargs))) for act in acts]  # type: ignore[misc]

    assert made(OURS[name]) == made(THEIRS[name])


@pytest.mark.parametrize("kinds", [OURS, THEIRS], ids=["ours", "theirs"])
def test_instances_compare_by_their_fields(kinds: dict[str, type[Any]]) -> None:
    plain, made, own, empty = kinds["Plain"], kinds["Made"], kinds["Own"], kinds["Empty"]
    assert plain(1) == plain(1, "b") != plain(1, "c")
    assert plain(1) != made(1)
    assert plain(1).__eq__(1) is NotImplemented
    assert len({plain(1), plain(1, "b"), plain(2)}) == 2
    assert made(1, [1], 1) == made(1, [1], 2), "what is not to be compared is not"
    assert made(1, (), 1, "d", 2) != made(1, (), 1, "d", 3)
    assert hash(made(1, (), 1, "d", 2)) == hash(made(1, (), 1, "d", 3)), "what is not to be hashed is not"
    with pytest.raises(TypeError, match="unhashable"):
        hash(made(1))
    assert own(1) == own(3)
    assert hash(own(5)) == 1
    assert empty() == empty()
    assert made(1).b is not made(1).b


@pytest.mark.parametrize("kinds", [OURS, THEIRS], ids=["ours", "theirs"])
def test_an_instance_does_not_change(kinds: dict[str, type[Any]]) -> None:
    result = kinds["Plain"](1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        result.a = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del result.a
    with pytest.raises((FrozenInstanceError, TypeError)):
        result.other = 2
    assert not hasattr(result, "__dict__")
    assert replace(result, a=2) == kinds["Plain"](2)
    with pytest.raises(ValueError, match="negative"):
        replace(kinds["Checked"](1), a=-1)


def test_a_class_tells_the_same_of_itself() -> None:
    for name, kind in OURS.items():
        other = THEIRS[name]
        assert is_dataclass(kind)
        assert [(field.name, field.type, field.default, field.compare) for field in fields(kind)] == [
            (field.name, field.type, field.default, field.compare) for field in fields(other)
        ]
        assert kind.__match_args__ == other.__match_args__  # type: ignore[attr-defined]
        assert kind.__slots__ == other.__slots__  # type: ignore[attr-defined]
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert kind.__dataclass_params__.eq  # type: ignore[attr-defined]
    match OURS["Plain"](1, "x"):
        case object(a=1, b="x"):
            pass
        case found:
            pytest.fail(f"{found}")


@ours(frozen=True, slots=True)
class Found:
    """At the top of a module, as pickle wants it."""

    a: int
    b: tuple[int, ...] = ()


def test_instances_are_copied_and_pickled() -> None:
    result = Found(1, (2,))  # type: ignore[call-arg]
    for other in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):  # noqa: S301 - our own
        assert other == result
        assert other is not result


def test_a_recursive_instance_is_shown() -> None:
    inner: list[Any] = []
    result = OURS["Made"](1, inner)
    inner.append(result)
    assert "b=[...]" in repr(result)


def test_nothing_is_compiled_before_it_is_called() -> None:
    @ours(frozen=True, slots=True)
    class Late:
        """Made here."""

        a: int

    def names() -> set[str]:
        return {getattr(Late, name).__name__ for name in ("__init__", "__eq__", "__hash__")}

    assert names() == {"first_init", "first_eq", "first_hash"}
    result = Late(1)  # type: ignore[call-arg]
    assert names() == {"__init__", "first_eq", "first_hash"}
    assert hash(result) == hash(Late(1))  # type: ignore[call-arg]
    assert names() == {"__init__", "__eq__", "__hash__"}
    assert list(inspect.signature(Late).parameters) == ["a"]


@pytest.mark.parametrize("parameters", [{"frozen": False, "slots": True}, {"frozen": True, "slots": False}])
def test_another_kind_is_refused(parameters: dict[str, bool]) -> None:
    with pytest.raises(TypeError, match="only"):
        ours(**parameters)


@pytest.mark.parametrize("option", [{"init": False}, {"kw_only": True}])
def test_a_field_that_is_no_positional_parameter_is_refused(option: dict[str, bool]) -> None:
    with pytest.raises(TypeError, match="every field is a positional parameter"):

        @ours(frozen=True, slots=True)
        class Odd:
            a: int = field(default=1, **option)


@ours(frozen=True, slots=True)
class Kept(values.Lasting):
    """Remembers what is computed of it."""

    a: int


def test_a_result_is_computed_once_for_an_object_and_its_arguments() -> None:
    calls = list[tuple[int, ...]]()

    @values.once
    def total(kept: Any, *more: int) -> int:
        calls.append((kept.a, *more))
        return int(kept.a + sum(more))

    @values.once
    def twice(kept: Any) -> int:
        return int(2 * kept.a)

    result, equal = Kept(1), Kept(1)  # type: ignore[call-arg]
    for _ in range(2):
        assert [total(result), total(result, 1), total(result, 1, 2), total(result, 2), twice(result)] == [
            1,
            2,
            4,
            3,
            2,
        ]
    assert calls == [(1,), (1, 1), (1, 1, 2), (1, 2)]
    assert total(equal) == total(replace(result)) == 1
    assert calls[4:] == [(1,), (1,)], "an equal object and a copy begin with nothing"


def test_a_result_of_several_objects_is_computed_once_for_the_same_ones_in_a_row() -> None:
    calls = list[tuple[int, ...]]()

    @values.once_for_all
    def total(several: Sequence[Any], *more: int) -> int:
        calls.append(more)
        return sum(kept.a for kept in several) + sum(more)

    result, two, three = (Kept(number) for number in (1, 2, 3))  # type: ignore[call-arg]
    assert [total([result, two]), total((result, two)), total([result, two], 1), total([result, two])] == [3, 3, 4, 3]
    assert len(calls) == 2
    assert [total([three, two]), total([two]), total([result, three, two]), total([result, two])] == [5, 2, 6, 3]
    assert len(calls) == 6


def test_a_class_costs_no_compilation() -> None:
    """Counted: the standard library compiles six functions for each."""
    program = (
        "import sys\nfrom turnlog.core import lazy_dataclass as values\nfound = []\n"
        "sys.addaudithook(lambda name, args: found.append(name) if name == 'compile' else None)\n"
        "before = len(found)\n"
        "@values.lazy_dataclass(frozen=True, slots=True)\n"
        "class A:\n    a: int\n    b: int = 0\n"
        "made = len(found)\nA(1) == A(2)\nprint(made - before, len(found) - made)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    made, used = map(int, ran.stdout.split())
    # Since Python 3.13 `dataclass` compiles the frame of the functions, also when there is none in it.
    assert made == (sys.version_info >= (3, 13))
    assert used > 0


def test_every_frozen_class_of_the_functions_is_of_this_kind() -> None:
    """Frozen classes of the linter, which shares no code with the rest, and of what no function imports, may be others."""
    shared = ROOT / "shared" / "turnlog"
    folders = ("agents", "cli", "client", "importers", "integrations", "linter", "server", "testing", "upkeep")
    apart = tuple(shared / name for name in (*folders, "core/lazy_dataclass.py"))
    paths = [path for path in shared.rglob("*.py") if not any(map(path.is_relative_to, apart))]
    sources = {path: path.read_text(encoding="utf-8") for path in paths}
    assert len([path for path, text in sources.items() if "@lazy_dataclass(frozen=True, slots=True)" in text]) > 60
    assert [path for path, text in sources.items() if "\n@dataclass(frozen=True, slots=True)\n" in text] == []


@pytest.mark.parametrize("decorate", [ours, dataclasses.dataclass], ids=["ours", "theirs"])
def test_an_object_of_a_subclass_is_one_of_the_subclass_and_frozen_too(decorate: Any) -> None:
    @decorate(frozen=True, slots=True)
    class Base:
        number: int

    class Plain(Base):
        pass

    class Slotted(Base):
        __slots__ = ()

    classes: tuple[Any, ...] = (Base, Plain, Slotted, Base)
    for cls in classes:
        value = cls(1)
        assert type(value) is cls and value.number == 1
        with pytest.raises(FrozenInstanceError):
            value.number = 2
