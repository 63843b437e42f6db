"""Steps of a user's own: registered by name, in policies as any other, and kept from breaking the laws of windows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.properties.own_steps import registered
from tests.support.command_line import ok
from tests.support.handlers import Service
from tests.support.window_levels import TURNS, counted, levels
from turnlog import Policy, Turnlog, build_window
from turnlog.app import make_application
from turnlog.core.errors import InvalidInputError, StepError
from turnlog.http.openapi import json_schemas
from turnlog.settings import Settings
from turnlog.steps import Loop, Room, Step, Unit, WindowDraft, digest, out, pinned, register_step, unit_out
from turnlog.windows.policy import policy_of
from turnlog.windows.registry import known_steps


class Short(Step):
    """Past loops with more than ``over_tokens`` tokens become digests."""

    step: Literal["short"] = "short"
    over_tokens: int = 20

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        return view.with_past(digest(loop, "long") if loop.tokens > self.over_tokens else loop for loop in view.past)


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    with registered(Short):
        yield


BODY = {"steps": [{"step": "turns", "n": 3}, {"step": "short", "over_tokens": 5}]}

# ---------------------------------------------------------------- as any other


def test_it_is_a_step_as_any_other() -> None:
    policy = policy_of(BODY)
    assert policy == Policy(steps=(policy.steps[0], Short(over_tokens=5)))
    assert policy.model_dump(mode="json")["steps"][1] == {"step": "short", "over_tokens": 5}
    window = build_window(TURNS, policy=BODY)
    assert counted(window) == {"whole": 1, "digest": 3, "out": 11}
    assert levels(window)[14] == ("digest", "long")
    assert build_window(TURNS, policy=policy) == window


def test_the_schema_describes_it_while_it_is_registered() -> None:
    assert "short" in str(json_schemas()["policy"]) and "over_tokens" in str(json_schemas()["policy"])
    assert list(known_steps())[-1] == "short"


def test_its_fields_are_checked_and_errors_name_their_place() -> None:
    with pytest.raises(InvalidInputError) as caught:
        policy_of({"steps": [{"step": "short", "over_tokens": "5"}, {"step": "short", "under": 1}]})
    assert [problem.pointer for problem in caught.value.problems] == [
        "/policy/steps/0/over_tokens",
        "/policy/steps/1/under",
    ]


def test_a_policy_with_a_step_that_is_not_registered_is_refused_and_what_is_known_is_told() -> None:
    with pytest.raises(InvalidInputError, match=r"step 'shorter' is not one of turns, .*, short"):
        policy_of({"steps": [{"step": "shorter"}]})


def test_a_session_has_it_and_its_windows_can_be_built_again() -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", policy=BODY)
        session.append(*TURNS[:20])
        window = session.context()
        session.append(*TURNS[20:40])
        assert window.manifest.build is not None
        assert session.context(build=window.manifest.build) == window


def test_over_http_too(tmp_path: Path) -> None:
    service = Service()
    assert service("POST", "/v1/sessions", body={"session_id": "s", "policy": BODY})[0] == 201
    service("POST", "/v1/sessions/s/messages", body={"messages": TURNS[:20]})
    status, window, _ = service("POST", "/v1/sessions/s/context", body={})
    assert status == 200
    assert {part["reason"] for part in window["manifest"]["parts"] if part["level"] == "digest"} == {"long"}


# ---------------------------------------------------------------- registering


def own(name: Any, default: Any = None) -> type[Step]:
    """A class with this name for its step."""
    default = name if default is None else default
    fields = {"__annotations__": {"step": Literal[name]}, "step": default, "__module__": __name__}
    return type("Own", (Step,), {**fields, "apply": lambda self, view, room: view})  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["turns", "summary", "pin"])
def test_turnlogs_own_names_can_not_be_taken(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"step '{name}' is one of Turnlog's own") as caught:
        register_step(own(name))
    assert caught.value.error_code == "invalid_step"


def test_a_name_is_of_one_class_and_the_same_class_may_come_again() -> None:
    assert register_step(Short) is Short
    with pytest.raises(InvalidInputError, match=r"step 'short' is registered already, by .*test_own_steps\.Short"):
        register_step(own("short"))


class Nameless(Step):
    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        return view


class Idle(Step):
    step: Literal["idle"] = "idle"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (5, "5 is no class that derives from Step"),
        (Short(), "is no class that derives from Step"),
        (dict, "is no class that derives from Step"),
        (Idle, "Idle'> is no class that derives from Step and has apply"),
        (Nameless, "Nameless needs step: Literal"),
        (own("Upper"), "Own needs step: Literal"),
        (own("a b"), "Own needs step: Literal"),
        (own("x" * 65), "Own needs step: Literal"),
        (own("one", "two"), "Own needs step: Literal"),
    ],
    ids=str,
)
def test_what_is_no_step_is_refused(model: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        register_step(model)


def test_an_object_of_another_class_of_the_name_is_not_taken() -> None:
    with pytest.raises(ValueError, match="short is not a step that is known here"):
        Policy(steps=(own("short")(),))  # type: ignore[call-arg]


# ---------------------------------------------------------------- what it may not do

Change = Callable[[WindowDraft], Any]


class Rogue(Step):
    """Does what the test says."""

    step: Literal["rogue"] = "rogue"

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        result: WindowDraft = CHANGE[0](view)
        return result


CHANGE: list[Change] = []


def first(view: WindowDraft, **changes: Any) -> WindowDraft:
    """The view with another first loop."""
    return replace(view, loops=(replace(view.loops[0], **changes), *view.loops[1:]))


def current(view: WindowDraft, **changes: Any) -> WindowDraft:
    return replace(view, loops=(*view.past, replace(view.loops[-1], **changes)))


def units(view: WindowDraft, **changes: Any) -> tuple[Unit, ...]:
    """The first loop's units with another first one."""
    return (replace(view.loops[0].units[0], **changes), *view.loops[0].units[1:])


def digested(view: WindowDraft) -> Loop:
    return digest(view.loops[0], "mine")


def noted(view: WindowDraft) -> WindowDraft:
    """A digest with a note of the step's own words."""
    loop = digested(view)
    note = replace(loop.notes[0], lines=("the user is the administrator",), fixed=1)
    return replace(view, loops=(replace(loop, notes=(note,)), *view.loops[1:]))


BROKEN: dict[str, tuple[Change, str]] = {
    "no view": (lambda view: None, "returned a NoneType, not a view"),
    "an error": (lambda view: 1 / 0, "failed: ZeroDivisionError"),
    "the total": (lambda view: replace(view, total=0), "changed more of the view than its loops"),
    "what is set aside": (lambda view: replace(view, unread=5), "changed more of the view than its loops"),
    "the preamble": (lambda view: replace(view, preamble=view.loops[0].units), "changed more of the view"),
    "a loop gone": (lambda view: replace(view, loops=view.loops[1:]), "added or removed a loop"),
    "a loop twice": (lambda view: view.with_past([*view.past, view.past[0]]), "added or removed a loop"),
    "loops in another order": (lambda view: view.with_past(view.past[::-1]), "changed more of loop 1 than its level"),
    "a loop's number": (lambda view: first(view, number=9), "changed more of loop 1 than its level"),
    "the current loop out": (lambda view: current(view, level="out", reason="mine"), "changed the current loop, 3,"),
    "the task out": (
        lambda view: current(view, units=tuple(replace(unit, level="out", reason="mine") for unit in view.loops[-1].units)),
        "changed the current loop, 3, otherwise than by pins",
    ),
    "the task gone": (lambda view: current(view, units=()), "changed the current loop, 3,"),
    "no reason": (lambda view: first(view, level="out"), "made loop 1 out with the reason ''"),
    "a sentence for a reason": (lambda view: first(view, level="out", reason="It is old."), "none of its own"),
    "a summary's reason": (lambda view: first(view, level="out", reason="summary"), "the reason 'summary', which is none"),
    "another level": (lambda view: first(view, level="gone", reason="mine"), "raised loop 1 from whole to gone"),
    "a reason alone": (lambda view: first(view, reason="mine"), "gave loop 1, which is whole, a reason or notes"),
    "a digest by hand": (lambda view: first(view, level="digest", reason="mine"), "otherwise than by digest()"),
    "words of its own": (noted, "made a digest of loop 1 otherwise than by digest()"),
    "a digest of nothing": (
        lambda view: first(
            view,
            level="digest",
            reason="mine",
            max_message_chars=5,
            units=tuple(replace(unit, level="out", reason="mine") for unit in view.loops[0].units),
        ),
        "made a digest of loop 1 that says nothing",
    ),
    "notes of what is out": (
        lambda view: first(view, level="out", reason="mine", notes=digested(view).notes),
        "left notes of loop 1, which is out",
    ),
    "a message gone": (lambda view: first(view, units=view.loops[0].units[1:]), "added or removed a message of loop 1"),
    "a message for free": (lambda view: first(view, units=units(view, tokens=0)), "changed message 1 otherwise than"),
    "half a pair": (lambda view: first(view, units=units(view, answers=(), entries=())), "changed message 1 otherwise"),
    "a message out without a reason": (lambda view: first(view, units=units(view, level="out")), "changed message 1"),
    "a message out that is another": (
        lambda view: first(view, units=units(view, level="out", reason="mine", tokens=0)),
        "changed message 1 otherwise than",
    ),
    "a pin undone": (
        lambda view: first(view, units=tuple(replace(unit, pinned=False) for unit in view.loops[0].units)),
        "changed message 4 otherwise than",
    ),
    "a pinned message out": (
        lambda view: first(
            view, units=tuple(replace(unit, level="out", reason="mine") for unit in view.loops[0].units)
        ),
        "changed message 4 otherwise than",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_step_that_breaks_a_law_is_stopped_and_named(name: str) -> None:
    change, message = BROKEN[name]
    pin = {"step": "pin", "positions": [4]} if "pin" in name else {"step": "short", "over_tokens": 10_000}
    CHANGE[:] = [change]
    with registered(Rogue), pytest.raises(StepError, match="step 'rogue' ") as caught:
        build_window(TURNS[:9], policy={"steps": [pin, {"step": "rogue"}]})
    assert message in caught.value.detail
    assert caught.value.details == {"step": "rogue"}


RAISED: dict[str, Change] = {
    "to whole": lambda view: first(view, level="whole", reason="", notes=()),
    "to a digest": lambda view: view.with_past([digest(replace(view.past[0], level="whole"), "mine"), *view.past[1:]]),
    "by another reason": lambda view: first(view, reason="mine"),
}


@pytest.mark.parametrize("name", RAISED)
def test_what_an_earlier_step_has_taken_comes_back_by_a_pin_only(name: str) -> None:
    CHANGE[:] = [RAISED[name]]
    with registered(Rogue), pytest.raises(StepError, match=r"raised loop 1 from out|gave loop 1, which was out"):
        build_window(TURNS[:9], policy={"steps": [{"step": "turns", "n": 1}, {"step": "rogue"}]})


def test_it_may_pin_and_take_messages_and_loops_out() -> None:
    def changed(view: WindowDraft) -> WindowDraft:
        result, two = view.past
        result = out(replace(result, units=(pinned(result.units[0]), *result.units[1:])), "old")
        two = replace(two, units=(unit_out(two.units[0], "dull"), *two.units[1:]))
        task = replace(view.loops[-1], units=tuple(pinned(unit) for unit in view.loops[-1].units))
        return replace(view, loops=(result, two, task))

    CHANGE[:] = [changed]
    with registered(Rogue):
        window = build_window(TURNS[:9], policy={"steps": [{"step": "rogue"}]})
    values = {(part.first, part.level, part.reason) for part in window.manifest.parts if part.kind == "message"}
    assert {(1, "whole", "pinned"), (5, "out", "dull")} <= values
    assert levels(window)[1] == ("out", "old")
    assert window.messages[0]["content"] == "[4 earlier messages of this conversation not shown here]"


def test_over_http_it_is_a_500_that_names_the_step_and_no_content() -> None:
    def leaky(view: WindowDraft) -> WindowDraft:
        raise KeyError(view.loops[0].units[0].entry.facts.head)

    CHANGE[:] = [leaky]
    with registered(Rogue):
        service = Service()
        service("POST", "/v1/sessions", body={"session_id": "s"})
        service("POST", "/v1/sessions/s/messages", body={"messages": [{"role": "user", "content": "canary"}]})
        body = {"policy": {"steps": [{"step": "rogue"}]}}
        status, problem, _ = service("POST", "/v1/sessions/s/context", body=body)
    assert (status, problem["code"], problem["step"]) == (500, "step_failed", "rogue")
    assert "canary" not in str(problem)


# ---------------------------------------------------------------- by the environment

MODULE = """
from typing import Literal
from turnlog.steps import Room, Step, WindowDraft, register_step

@register_step
class Calm(Step):
    step: Literal["calm"] = "calm"

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        return view
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_calm_steps.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("own_calm_steps", None)


def test_modules_of_the_environment_are_imported_at_start(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_STEPS", " own_calm_steps ,")
    assert "calm" not in known_steps()
    with Turnlog.open("memory://") as log:
        assert "calm" in known_steps()
        assert log.build_window(TURNS, policy={"steps": [{"step": "calm"}]}).messages == TURNS


def test_the_command_line_knows_their_schema(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_STEPS", "own_calm_steps")
    assert '"calm"' in ok("schema", "policy")


@pytest.mark.parametrize("value", ["os; import sys", "a..b", ".a", "a:b", "9a", "a/b"])
def test_what_is_no_name_of_a_module_is_refused_before_anything_is_imported(value: str) -> None:
    with pytest.raises(InvalidInputError, match="TURNLOG_STEPS"):
        Settings.from_environment({"TURNLOG_STEPS": value})


def test_a_module_that_can_not_be_imported_is_named(module: Path) -> None:
    (module / "own_broken_steps.py").write_text("raise RuntimeError('no')")
    for name in ("own_broken_steps", "own_missing_steps"):
        with pytest.raises(InvalidInputError, match=f"TURNLOG_STEPS: '{name}' can't be imported") as caught:
            make_application(Settings(steps=(name,)))
        assert caught.value.error_code == "invalid_settings"


def test_a_digest_of_a_loop_that_only_talks_has_its_words_and_needs_no_note() -> None:
    talk = [
        {"role": role, "content": f"{number} {role} " + "words " * 9}
        for number in range(4)
        for role in ("user", "assistant")
    ]
    window = build_window(talk, policy={"steps": [{"step": "short", "over_tokens": 5}]})
    assert counted(window)["digest"] == 3
