"""Models of requests and answers are built at first use, whatever threads use them first."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel

from turnlog.core.models import Answer, Body


@pytest.mark.parametrize("base", [Body, Answer])
def test_one_thread_builds_a_model_and_the_others_wait(base: type[BaseModel], monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked(base):  # type: ignore[valid-type, misc]
        name: str

    build, inside, most, starting = BaseModel.model_rebuild.__func__, [0], [0], threading.Barrier(8)  # type: ignore[attr-defined]

    def slow(cls: type[BaseModel], **options: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        try:
            return build(cls, **options)
        finally:
            inside[0] -= 1

    def ask(_: int) -> str:
        starting.wait()
        return str(Asked.model_validate({"name": "x"}).name)

    monkeypatch.setattr(BaseModel, "model_rebuild", classmethod(slow))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == ["x"] * 8
    assert most == [1], "a thread that builds a model that another one builds takes its rules away for a moment"
