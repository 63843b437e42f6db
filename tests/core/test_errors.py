"""Errors of requests in plain sentences: what pydantic finds, each kind with its place."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from tests.conftest import ROOT
from turnlog.core.errors import SHAPES, CorruptError, Problem, TurnlogError, problem_text
from turnlog.core.json_values import json_pointer


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Named(Strict):
    name: str

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        raise ValueError(f"{name} is nobody's name")


def tree(kind: type[TurnlogError]) -> list[type[TurnlogError]]:
    return [kind, *(error for child in kind.__subclasses__() for error in tree(child))]


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])  # noqa: S301
@pytest.mark.parametrize("kind", tree(TurnlogError))
def test_an_error_passes_between_processes_with_its_details(
    kind: type[TurnlogError], through: Callable[[Any], Any]
) -> None:
    options: dict[str, Any] = {"details": {"n": 1}, "problems": [Problem("c", "/p", "m")], "retry_after_seconds": 3}
    error = kind("boom", item="x") if issubclass(kind, CorruptError) else kind("boom", code="own", **options)
    other = through(error)
    assert (type(other), str(other), vars(other)) == (kind, str(error), vars(error))


def sentences(model: type[BaseModel], value: object) -> list[str]:
    with pytest.raises(ValidationError) as raised:
        model.model_validate(value)
    return [problem_text(error, json_pointer(error["loc"])) for error in raised.value.errors()]


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (str, 1, "f is not a string"),
        (int, "1", "f is not an integer"),
        (float, "1", "f is not a number"),
        (bool, 1, "f is neither true nor false"),
        (list[int], {}, "f is not a list"),
        (list[int], [1, None], "item 1 of f is not an integer"),
        (dict[str, int], [], "f is not an object"),
        (Strict, [], "f is not an object"),
        (Literal["a", "b"], "c", "f is not 'a' or 'b'"),
        (Annotated[str, Field(min_length=2)], "a", "f has fewer characters than 2"),
        (Annotated[str, Field(max_length=2)], "abc", "f has more characters than 2"),
        (Annotated[list[int], Field(min_length=2)], [1], "f has 1 items; at least 2 is needed"),
        (Annotated[list[int], Field(max_length=2)], [1, 2, 3], "f has 3 items; at most 2 are allowed"),
        (Annotated[int, Field(gt=2)], 2, "f is not more than 2"),
        (Annotated[int, Field(ge=2)], 1, "f is less than 2"),
        (Annotated[int, Field(lt=2)], 2, "f is not less than 2"),
        (Annotated[int, Field(le=2)], 3, "f is more than 2"),
        (Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")], "x", "f is not 32 hexadecimal digits in lower case"),
        (Annotated[str, Field(pattern="^a$")], "x", "f is not a text that matches ^a$"),
    ],
)
def test_what_pydantic_finds_is_a_plain_sentence(kind: Any, value: object, sentence: str) -> None:
    assert sentences(create_model("Request", __base__=Strict, f=(kind, ...)), {"f": value}) == [sentence]


def test_a_field_that_is_missing_or_unknown_and_a_body_that_is_none_are_named() -> None:
    model = create_model("Request", __base__=Strict, f=(int, ...))
    assert sentences(model, {"a/b~c": 1}) == ["f is missing", "unknown field 'a/b~c'"]
    assert sentences(model, []) == ["the body is not an object"]


def test_the_words_of_a_validator_are_its_own() -> None:
    assert sentences(Named, {"name": "x"}) == ["x is nobody's name"]


def test_patterns_in_words_are_those_of_requests() -> None:
    reference = json.dumps(json.loads((ROOT / "docs/reference/openapi.json").read_text(encoding="utf-8")))
    patterns = {json.loads(f'"{text}"') for text in re.findall(r'"pattern": "((?:[^"\\]|\\.)*)"', reference)}
    assert set(SHAPES) - patterns == {"^[0-9a-f]{64}$"}, "that of an upload stands in its text"
