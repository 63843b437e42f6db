"""Generated pages are what the code says; the OpenAPI document is valid 3.1."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

ROOT = Path(__file__).parent.parent.parent


def make_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "tools" / "make_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    made: dict[str, str] = make_docs().pages()
    return made


@pytest.mark.parametrize("path", make_docs().PAGES)
def test_a_generated_page_is_up_to_date(pages: dict[str, str], path: str) -> None:
    assert (ROOT / "docs" / path).read_text(encoding="utf-8") == pages[path], "run `make docs`"


def test_no_generated_page_is_forgotten(pages: dict[str, str]) -> None:
    assert sorted(pages) == sorted(make_docs().PAGES)


def test_the_openapi_document_is_valid() -> None:
    document = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text(encoding="utf-8"))
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
