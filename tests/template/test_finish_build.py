"""`tools/finish_build.py`: bytecode that needs no source to be looked at, and no endpoint told otherwise."""

from __future__ import annotations

import ast
import json
import marshal
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import create_loader
from botocore.regions import EndpointResolver

from tests.conftest import ROOT
from tools import finish_build
from tools.finish_build import UNUSED, NotTheRuntimeError, finish, trimmed
from turnlog.engines.aws_clients import SERVICES

_UNCHECKED = b"\1\0\0\0"
"""Flags of a bytecode file whose source is not looked at (PEP 552)."""
_TEMPLATE = """\
Metadata:
  cfn-lint: {}
  Turnlog::Shared:
    Read:
      Fn::If:
      - IsTraced
      - Sid: Read
  Other: {}
Resources:
  Shared:
    Type: AWS::SQS::Queue
"""


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `sam build` leaves, in small; finished by the Python that runs the tests."""
    monkeypatch.setattr(finish_build, "RUNTIME", sys.version_info[:2])
    files = {
        "template.yaml": _TEMPLATE,
        "AppendFunction/api/append.py": "handler = 1\n",
        "SharedLayer/python/turnlog/log.py": "def where():\n    raise ValueError\n",
        "DependenciesLayer/python/botocore/data/endpoints.json": json.dumps({"partitions": [], "version": 3}),
        "DependenciesLayer/python/botocore/data/sqs/1/service-2.json": "{}",
        "DependenciesLayer/python/botocore/data/ec2/1/service-2.json": "{}",
        "DependenciesLayer/python/boto3/session.py": "",
        "DependenciesLayer/python/boto3-1.0.dist-info/METADATA": "",
        "DependenciesLayer/python/pydantic/main.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_what_resources_share_is_left_out_of_the_template(build: Path) -> None:
    finish(build)
    left = (build / "template.yaml").read_text(encoding="utf-8")
    assert left == _TEMPLATE.replace(
        "  Turnlog::Shared:\n    Read:\n      Fn::If:\n      - IsTraced\n      - Sid: Read\n", ""
    )


def _bytecode(build: Path, name: str) -> bytes:
    source = build / name
    cached = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
    return cached.read_bytes()


def test_each_source_has_bytecode_that_names_it_as_it_is_mounted(build: Path) -> None:
    finish(build)
    places = {
        "AppendFunction/api/append.py": "/var/task/api/append.py",
        "SharedLayer/python/turnlog/log.py": "/opt/python/turnlog/log.py",
        "DependenciesLayer/python/pydantic/main.py": "/opt/python/pydantic/main.py",
    }
    for name, mounted in places.items():
        data = _bytecode(build, name)
        assert data[4:8] == _UNCHECKED
        code = marshal.loads(data[16:])  # noqa: S302 - made a moment ago
        assert code.co_filename == mounted
        assert {column for _, _, column, _ in code.co_positions()} == {None}


def test_what_no_function_uses_goes_and_the_rest_stays(build: Path) -> None:
    finish(build)
    layer = build / "DependenciesLayer" / "python"
    assert {path.name for path in layer.iterdir()} == {"botocore", "pydantic"}
    assert {path.name for path in (layer / "botocore" / "data").iterdir()} == {"endpoints.json", "sqs"}


def test_finished_twice_is_finished_once(build: Path) -> None:
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}

    finish(build)
    once = contents()
    finish(build)
    assert contents() == once


def test_another_python_is_refused(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish_build, "RUNTIME", (2, 7))
    with pytest.raises(NotTheRuntimeError, match=r"functions run 2\.7"):
        finish(build)


def test_a_source_that_does_not_compile_is_told(build: Path) -> None:
    (build / "SharedLayer" / "python" / "turnlog" / "bad.py").write_text("def", encoding="utf-8")
    with pytest.raises(SystemExit, match="not every source compiles"):
        finish(build)


def test_the_runtime_is_the_templates() -> None:
    assert f"Runtime: python{'.'.join(map(str, (3, 13)))}\n" in (ROOT / "template.yaml").read_text(encoding="utf-8")
    assert finish_build.RUNTIME == (3, 13)


def test_every_endpoint_is_told_as_before() -> None:
    result, _ = create_loader().load_data_with_path("endpoints")
    full, short = EndpointResolver(result), EndpointResolver(trimmed(result))
    asked = 0
    for partition in result["partitions"]:
        name = partition["partition"]
        regions = [*partition["regions"], "eu-nowhere-1", "aws-global"]
        for service in SERVICES:
            assert full.get_available_endpoints(service, name) == short.get_available_endpoints(service, name)
            for region in regions:
                asked += 1
                assert _told(full, service, region, name) == _told(short, service, region, name)
        for region in partition["regions"]:
            assert short.get_partition_for_region(region) == full.get_partition_for_region(region) == name
    assert full.get_available_partitions() == short.get_available_partitions()
    assert asked > 100


def _told(resolver: EndpointResolver, service: str, region: str, partition: str) -> Any:
    return [resolver.construct_endpoint(service, region, partition, use_fips_endpoint=fips) for fips in (False, True)]


@pytest.fixture(scope="module")
def nodes() -> list[ast.AST]:
    """Of all that the shared layer has and that may call AWS or import a library."""
    folders = (
        ROOT / "shared" / "turnlog" / name for name in ("core", "engines", "http", "memory", "search", "summaries")
    )
    files = [path for folder in folders for path in folder.rglob("*.py")]
    files += (ROOT / "shared" / "turnlog").glob("*.py")
    return [node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def test_every_service_that_is_opened_has_its_data(nodes: list[ast.AST]) -> None:
    opened = {
        ast.literal_eval(node.args[0])
        for node in nodes
        if isinstance(node, ast.Call)
        and node.args
        and "read_timeout_seconds" in {keyword.arg for keyword in node.keywords}
    }
    assert opened == set(SERVICES)


def test_no_function_imports_what_is_left_out(nodes: list[ast.AST]) -> None:
    imported = {name.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module.split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    assert "botocore" in imported
    assert not imported & set(UNUSED)
