"""Models are values: what has been checked once stays as it was checked."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from inspect import isabstract

import pytest
from pydantic import BaseModel, ValidationError

import turnlog

BASES = {"turnlog.sessions.context_models._Build"}
"""Fields that models share; each of those models is frozen."""


def test_no_field_of_a_model_can_be_set() -> None:
    rooms = ("core", "windows", "sessions", "summaries", "snapshots", "search", "memory", "privacy", "jobs", "http")
    for module in pkgutil.walk_packages(turnlog.__path__, "turnlog."):
        if module.name.split(".")[1] in rooms:
            importlib.import_module(module.name)
    models = [model for model in _below(BaseModel) if _name(model).startswith("turnlog.") and not isabstract(model)]
    assert len(models) > 80
    for model in models:
        if _name(model) in BASES:
            continue
        value = model.model_construct()
        for field in model.model_fields:
            with pytest.raises(ValidationError, match="frozen"):
                setattr(value, field, None)


def _name(model: type[BaseModel]) -> str:
    return f"{model.__module__}.{model.__qualname__}"


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for subclass in model.__subclasses__():
        yield subclass
        yield from _below(subclass)
