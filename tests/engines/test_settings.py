"""Settings from the environment: the table of models."""

from __future__ import annotations

import pytest

from turnlog import Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.engines import make_engine
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds


def test_models_of_the_environment_are_used_by_both_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_MODELS", '{"my-own": 9000}')
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", model="my-own-7b", output_reserve=1_000)
        windows = [session.context(), log.build_window([], model="my-own", output_reserve=1_000)]
        assert [(one.manifest.budget.tokens, one.manifest.budget.source) for one in windows] == [(8_000, "model")] * 2
        assert session.context(budget=500).manifest.budget.tokens == 500
        assert session.context(model="other").manifest.budget.source == "default"


def test_a_build_keeps_its_budget_when_the_table_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", model="gpt-4o")
        window = session.context()
        log._backend._app.build_context._models = {"gpt-4o": 5_000}  # type: ignore[attr-defined]
        assert session.context().manifest.budget.tokens == 904
        assert session.context(build=window.manifest.build) == window


def test_no_variable_no_models_of_our_own() -> None:
    assert Settings.from_environment({}).models == {}
    assert Settings.from_environment({"TURNLOG_MODELS": ""}).models == {}
    assert Settings.from_environment({"TURNLOG_MODELS": '{"a": 1, "b": 2}'}).models == {"a": 1, "b": 2}


@pytest.mark.parametrize("text", ["{", "32000", "[]", '{"a": 0}', '{"a": "x"}', '{"a": 1, "a": 2}', '{"a": 1e99}'])
def test_what_is_no_table_of_models_is_named(text: str) -> None:
    with pytest.raises(InvalidInputError, match="TURNLOG_MODELS"):
        Settings.from_environment({"TURNLOG_MODELS": text})


@pytest.mark.parametrize(
    "engine", ["sqlite://", "sqlite:///", "sqlite://host/a.db", "sqlite:////tmp/a%00b.db", "mysql://a"]
)
def test_an_engine_that_is_none_is_refused_by_name(engine: str) -> None:
    with pytest.raises(InvalidInputError, match="engine") as raised:
        make_engine(Settings(engine=engine), clock=FixedClock(), ids=SequentialIds())
    assert raised.value.error_code == "invalid_settings"
