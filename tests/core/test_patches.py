"""JSON Merge Patch and JSON Patch: the examples of RFC 7396 and RFC 6902, their laws, and what is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonpatch import JsonPatch

from tests.effort import examples
from turnlog.core.errors import PatchError, TooMuchWorkError
from turnlog.core.json_patch import (
    MAX_OPERATIONS,
    MAX_STEPS,
    MAX_WORK_BYTES,
    PatchedValue,
    apply_patch,
    apply_patches,
    difference,
    equal,
)
from turnlog.core.json_values import measured


def merge(target: Any, patch: Any) -> Any:
    document = PatchedValue(target, limit=MAX_STEPS)
    document.merge(patch)
    return document.root


def apply_operations(target: Any, operations: Any) -> Any:
    document = PatchedValue(target, limit=MAX_STEPS)
    document.operate(operations)
    return document.root


RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
"""The table of appendix A."""


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396)
def test_rfc_7396_appendix_a(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert merge(target, patch) == result
    assert target == before, "a value is never changed in place"


RFC_6902: list[tuple[str, Any, Any, Any]] = [
    ("A.1", {"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ("A.2", {"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ("A.3", {"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ("A.4", {"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    (
        "A.5",
        {"baz": "qux", "foo": "bar"},
        [{"op": "replace", "path": "/baz", "value": "boo"}],
        {"baz": "boo", "foo": "bar"},
    ),
    (
        "A.6",
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        "A.7",
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    (
        "A.8",
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    ("A.9", {"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}], "/0/value"),
    (
        "A.10",
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    (
        "A.11",
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
        {"foo": "bar", "baz": "qux"},
    ),
    ("A.12", {"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}], "/0/path"),
    (
        "A.14",
        {"/": 9, "~1": 10},
        [{"op": "test", "path": "/~01", "value": 10}],
        {"/": 9, "~1": 10},
    ),
    ("A.15", {"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": "10"}], "/0/value"),
    (
        "A.16",
        {"foo": ["bar"]},
        [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}],
        {"foo": ["bar", ["abc", "def"]]},
    ),
]
"""Appendix A but A.13, whose duplicate key no request gets past; where it is an error, its pointer."""


@pytest.mark.parametrize(("name", "target", "operations", "result"), RFC_6902, ids=[item[0] for item in RFC_6902])
def test_rfc_6902_appendix_a(name: str, target: Any, operations: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    if isinstance(result, str):
        with pytest.raises(PatchError) as caught:
            apply_operations(target, operations)
        assert [problem.pointer for problem in caught.value.problems] == [result]
    else:
        assert apply_operations(target, operations) == result
    assert target == before


@pytest.mark.parametrize(
    ("operation", "pointer"),
    [
        ("remove", "/0"),
        ({}, "/0/op"),
        ({"op": "erase", "path": "/a"}, "/0/op"),
        ({"op": ["add"], "path": "/a"}, "/0/op"),
        ({"op": "remove"}, "/0/path"),
        ({"op": "remove", "path": 1}, "/0/path"),
        ({"op": "remove", "path": "a"}, "/0/path"),
        ({"op": "remove", "path": "/~2"}, "/0/path"),
        ({"op": "remove", "path": "/~"}, "/0/path"),
        ({"op": "add", "path": "ab", "value": 1}, "/0/path"),
        ({"op": "add", "path": "/~2", "value": 1}, "/0/path"),
        ({"op": "remove", "path": "/x"}, "/0/path"),
        ({"op": "remove", "path": "/l/2"}, "/0/path"),
        ({"op": "remove", "path": "/l/-"}, "/0/path"),
        ({"op": "replace", "path": "/l/-", "value": 1}, "/0/path"),
        ({"op": "add", "path": "/l/3", "value": 1}, "/0/path"),
        ({"op": "add", "path": "/l/01", "value": 1}, "/0/path"),
        ({"op": "add", "path": "/l/+1", "value": 1}, "/0/path"),
        ({"op": "add", "path": "/l/\u0661", "value": 1}, "/0/path"),
        ({"op": "add", "path": "/l/1e0", "value": 1}, "/0/path"),
        ({"op": "add", "path": "/l/9999999999999", "value": 1}, "/0/path"),
        ({"op": "add", "path": "/n/x", "value": 1}, "/0/path"),
        ({"op": "add", "path": "/a"}, "/0/value"),
        ({"op": "replace", "path": "/a"}, "/0/value"),
        ({"op": "test", "path": "/a"}, "/0/value"),
        ({"op": "test", "path": "/n", "value": True}, "/0/value"),
        ({"op": "test", "path": "/t", "value": 1}, "/0/value"),
        ({"op": "move", "path": "/b"}, "/0/from"),
        ({"op": "move", "path": "/b", "from": "/x"}, "/0/from"),
        ({"op": "move", "path": "/a/b", "from": "/a"}, "/0/path"),
        ({"op": "move", "path": "/m/0/0", "from": "/m/0"}, "/0/path"),
        ({"op": "copy", "path": "/b", "from": "/x"}, "/0/from"),
    ],
)
def test_what_does_not_apply_names_its_place(operation: Any, pointer: str) -> None:
    target = {"a": {}, "l": [1, 2], "m": [[1], [2]], "n": 1, "t": True}
    with pytest.raises(PatchError) as caught:
        apply_operations(target, [operation])
    assert [problem.pointer for problem in caught.value.problems] == [pointer]


def test_a_test_compares_as_json_does() -> None:
    same = [(1, 1.0), ([1, {"a": 2}], [1.0, {"a": 2.0}]), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (None, None)]
    assert all(equal(*pair) for pair in same)
    other = [
        (1, True),
        (0, False),
        (0, None),
        ("1", 1),
        ([1], [1, 1]),
        ({"a": 1}, {"a": 1, "b": 1}),
        ([], {}),
        ("", None),
    ]
    assert not any(equal(*pair) for pair in other)


def test_operations_see_what_the_ones_before_have_done_and_share_nothing() -> None:
    operations: list[Any] = [
        {"op": "add", "path": "/a", "value": {"x": 1}},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/y", "value": 2},
        {"op": "move", "from": "/a", "path": "/a"},
    ]
    given_operations = copy.deepcopy(operations)
    assert apply_operations({}, operations) == {"a": {"x": 1, "y": 2}, "b": {"x": 1}}
    assert operations == given_operations


def test_a_patch_can_not_grow_without_bound() -> None:
    doubling = [{"op": "add", "path": "/l", "value": ["x" * 1000]}]
    doubling += [{"op": "copy", "from": "/l", "path": "/l/-"}] * 40
    with pytest.raises(PatchError):
        apply_operations({}, doubling)
    wide: list[Any] = [{"op": "add", "path": "/a", "value": ["x" * 100_000]}]
    wide += [{"op": "copy", "from": "/a", "path": f"/a{at}"} for at in range(400)]
    with pytest.raises(PatchError):
        apply_operations({}, wide)
    with pytest.raises(PatchError):
        apply_patch({}, [{"op": "test", "path": "", "value": {}}] * (MAX_OPERATIONS + 1))
    deep: list[Any] = [{"op": "add", "path": "/a" * depth, "value": {}} for depth in range(1, 2_000)]
    with pytest.raises(PatchError):
        apply_operations({}, deep)


LONG: dict[str, Any] = {"l": [0] * 1_500_000}
COSTLY_PATCHES: dict[str, tuple[Any, list[Any]]] = {
    "adds at the front of a long list": (LONG, [{"op": "add", "path": "/l/0", "value": 1}] * 5_000),
    "removals at its front": (LONG, [{"op": "remove", "path": "/l/0"}] * 5_000),
    "moves of a large value": (
        {"a": [[]] * 50_000},
        [{"op": "move", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a"}] * 500,
    ),
    "copies of a large value": ({"a": [[]] * 50_000}, [{"op": "copy", "from": "/a", "path": "/b"}] * 500),
    "the same value added again and again": ({}, [{"op": "add", "path": "/a", "value": [0] * 50_000}] * 500),
    "tests of a large value": ({"a": [0] * 50_000}, [{"op": "test", "path": "/a", "value": [0] * 50_000}] * 500),
}


@pytest.mark.parametrize("name", COSTLY_PATCHES)
def test_a_patch_of_too_many_steps_is_refused_with_its_limit(name: str) -> None:
    target, patch = COSTLY_PATCHES[name]
    with pytest.raises(TooMuchWorkError) as caught:
        apply_patch(target, patch)
    assert caught.value.details == {"limit": MAX_STEPS} and str(MAX_STEPS) in caught.value.detail
    (problem,) = caught.value.problems
    assert problem.code == "too_much_work" and 0 < int(problem.pointer[1:]) < len(patch), (
        "the operation that was too much"
    )


def test_what_a_limit_refuses_today_is_read_when_it_is_stored() -> None:
    patch: Any = [{"op": "test", "path": "/a", "value": [0] * 50_000}] * 30
    state, steps = apply_patches({"a": [0] * 50_000}, [patch])
    assert len(state["a"]) == 50_000 and steps > MAX_STEPS  # type: ignore[arg-type]
    assert apply_patches({}, [[{"op": "add", "path": "/n", "value": 1}] * (MAX_OPERATIONS + 1)])[0] == {"n": 1}
    large = "x" * (MAX_WORK_BYTES // 2)
    assert apply_patches({}, [[{"op": "add", "path": "/n", "value": large}]] * 3)[0] == {"n": large}


def test_a_state_whose_root_is_removed_is_no_state() -> None:
    with pytest.raises(PatchError, match="not an object"):
        apply_patch({"a": 1}, [{"op": "remove", "path": ""}])


def test_an_ordinary_patch_takes_steps_by_what_it_changes_and_not_by_what_is_there() -> None:
    large: Any = {"l": [{"n": n} for n in range(100_000)], "o": {str(n): {} for n in range(100_000)}}
    for patch in (
        {"o": {"7": {"a": 1}}},
        [{"op": "add", "path": "/l/-", "value": {"n": 0}}, {"op": "replace", "path": "/l/5/n", "value": 1}],
    ):
        assert apply_patch(large, patch)[1] < 30


@pytest.mark.parametrize(
    ("patch", "steps"),
    [
        ({}, 1),
        ({"a": 1, "b": None}, 3),
        ({"a": {"b": [1, 2]}}, 4),
        ([], 0),
        ([{"op": "add", "path": "/a", "value": [1, {"b": 2}]}], 8 + 4),
        ([{"op": "test", "path": "/n", "value": 1}], 8 + 1),
        ([{"op": "copy", "from": "/n", "path": "/a"}, {"op": "move", "from": "/n", "path": "/b"}], 2 * (8 + 1)),
        ([{"op": "add", "path": "/l/-", "value": 1}], 8 + 1),
        ([{"op": "add", "path": "/l/1", "value": 1}], 8 + 1 + 2),
        ([{"op": "add", "path": "/l/2", "value": 1}], 8 + 1 + 1),
        ([{"op": "remove", "path": "/l/1"}, {"op": "remove", "path": "/l/1"}], 8 + 2 + 8 + 1),
    ],
)
def test_steps_are_those_of_what_is_handled_and_shifted(patch: Any, steps: int) -> None:
    assert apply_patch({"n": 1, "l": [0] * 2_049}, patch)[1] == steps


@pytest.mark.parametrize(
    ("largest", "larger"),
    [
        (
            [{"op": "test", "path": "/n", "value": 1}] * MAX_OPERATIONS,
            [{"op": "test", "path": "/n", "value": 1}] * (MAX_OPERATIONS + 1),
        ),
        (
            [{"op": "add", "path": "/a", "value": "x" * (MAX_WORK_BYTES - 2)}],
            [{"op": "add", "path": "/a", "value": "x" * (MAX_WORK_BYTES - 1)}],
        ),
        (
            [{"op": "add", "path": "/a", "value": [0] * (MAX_STEPS - 9)}],
            [{"op": "add", "path": "/a", "value": [0] * (MAX_STEPS - 8)}],
        ),
        (
            [{"op": "add", "path": "/a", "value": json.loads("[" * 31 + "]" * 31)}],
            [{"op": "add", "path": "/a", "value": json.loads("[" * 32 + "]" * 32)}],
        ),
    ],
    ids=["operations", "bytes", "steps", "levels"],
)
def test_a_patch_may_reach_each_limit(largest: Any, larger: Any) -> None:
    apply_patch({"n": 1}, largest)
    with pytest.raises((PatchError, TooMuchWorkError)):
        apply_patch({"n": 1}, larger)


SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, -0.0, 1.0, 2.5]) | st.sampled_from("ab")
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "~", "/", "0", ""]), inner),
    max_leaves=8,
)


@settings(max_examples=examples(150), deadline=None)
@given(VALUES, VALUES)
def test_the_difference_of_two_values_makes_the_one_of_the_other(before: Any, after: Any) -> None:
    operations = difference(before, after)
    assert json.dumps(apply_operations(before, operations), sort_keys=True) == json.dumps(after, sort_keys=True)
    assert difference(after, after) == []
    assert JsonPatch(operations).apply(before) == after, "another implementation understands it"


POINTERS = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "~0", "~1"]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
OPERATIONS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"op": st.sampled_from(["add", "replace"]), "path": POINTERS, "value": VALUES}),
        st.fixed_dictionaries({"op": st.just("remove"), "path": POINTERS.filter(bool)}),
        st.fixed_dictionaries({"op": st.just("copy"), "from": POINTERS, "path": POINTERS}),
    ),
    max_size=4,
)


@settings(max_examples=examples(300), deadline=None)
@given(VALUES, OPERATIONS)
def test_operations_do_what_another_implementation_does(target: Any, operations: Any) -> None:
    """Where that one does it too: it takes fewer mistakes for one."""
    try:
        mine = apply_operations(target, operations)
    except PatchError:
        return
    assert JsonPatch(operations).apply(target) == mine


def test_depth_is_counted_without_recursion() -> None:
    value: Any = []
    for _ in range(5_000):
        value = [value]
    assert measured(value) == (5_001, 5_001)
    assert [measured(small) for small in (1, {}, {"a": [1]})] == [(1, 0), (1, 1), (3, 2)]


PATCHES = st.lists(st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2) | OPERATIONS, max_size=4)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2), PATCHES)
def test_patches_fold_in_one_go_as_one_by_one_and_change_nothing_that_was_there(target: Any, patches: Any) -> None:
    before = copy.deepcopy((target, patches))
    expected, values = target, []
    try:
        for patch in patches:
            expected, _ = apply_patch(expected, patch)
            values.append((expected, copy.deepcopy(expected)))
    except PatchError:
        with pytest.raises(PatchError):
            apply_patches(target, patches)
    else:
        assert repr(apply_patches(target, patches)[0]) == repr(expected)
    assert all(repr(value) == repr(kept) for value, kept in values), "no later patch changes an earlier state"
    assert repr((target, patches)) == repr(before)
