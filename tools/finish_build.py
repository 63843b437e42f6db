"""Finishes what `sam build` has built: bytecode beside the sources, nothing that no function uses, no shared pieces of YAML.

    python3.13 tools/finish_build.py .aws-sam/build          # by `make build`, and by whoever calls `sam build` himself

Layers are mounted read-only, so Python can keep no bytecode there and compiles all sources at each cold start: half a second
of CPU (ADR 41). Bytecode is of one version of Python: the functions'. The same sources give the same bytes, and run
twice it changes nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "shared"))

from turnlog.engines.aws_clients import SERVICES  # noqa: E402

RUNTIME = (3, 13)
"""Of the functions, as template.yaml says."""
UNUSED = ("bin", "boto3", "certifi", "charset_normalizer", "requests", "s3transfer")
"""What others ask for and no function imports. botocore trusts its own list of authorities where there is no certifi."""
_DATA = Path("botocore", "data")
_LAYERS = ("DependenciesLayer", "SharedLayer")
_SHARED = re.compile(r"^  Turnlog::Shared:\n(?: {3,}.*\n)*", re.M)
"""Metadata, Turnlog::Shared, of a built template: `sam build` indents by two and leaves no blank lines."""
_LAYER_ROOT, _FUNCTION_ROOT = "/opt/python", "/var/task"


class NotTheRuntimeError(Exception):
    """This Python is not the functions'."""


def finish(build: Path) -> None:
    """Finishes a folder that `sam build` has made; `NotTheRuntimeError` by another Python than the functions'."""
    if sys.version_info[:2] != RUNTIME:
        raise NotTheRuntimeError(
            "{}.{} compiles for itself, the functions run {}.{}".format(*sys.version_info[:2], *RUNTIME)
        )
    drop_shared(build / "template.yaml")
    trim(build / "DependenciesLayer" / "python")
    for folder in sorted(path for path in build.iterdir() if path.is_dir()):
        is_layer = folder.name in _LAYERS
        compile_sources(folder / "python" if is_layer else folder, _LAYER_ROOT if is_layer else _FUNCTION_ROOT)


def drop_shared(template: Path) -> None:
    """Remove Metadata, Turnlog::Shared, from a built template: `sam build` has written its pieces out where they are used.

    CloudFormation documents that it leaves Metadata as it is, but not that it takes intrinsic functions there.
    """
    template.write_text(_SHARED.sub("", template.read_text(encoding="utf-8")), encoding="utf-8")


def trim(layer: Path) -> None:
    """Leaves out what is never imported, and botocore's data of services that are never called."""
    for name in UNUSED:
        shutil.rmtree(layer / name, ignore_errors=True)
        for path in layer.glob(f"{name}-*.dist-info"):
            shutil.rmtree(path)
    for folder in (layer / _DATA).iterdir():
        if folder.is_dir() and folder.name not in SERVICES:
            shutil.rmtree(folder)
    endpoints = layer / _DATA / "endpoints.json"
    endpoints.write_text(json.dumps(trimmed(json.loads(endpoints.read_bytes()))), encoding="utf-8")


def trimmed(endpoints: dict[str, Any]) -> dict[str, Any]:
    """Return botocore's endpoints.json without the services that are never called."""
    partitions = [
        {
            **partition,
            "services": {name: service for name, service in partition["services"].items() if name in SERVICES},
        }
        for partition in endpoints["partitions"]
    ]
    return {**endpoints, "partitions": partitions}


def compile_sources(folder: Path, mounted: str) -> None:
    """Bytecode of every source, which Python takes as it is. Tracebacks name files as they are mounted.

    It has no columns, which only underline a part of a line in tracebacks and are a sixth of the layer.
    """
    options = ("-q", "--invalidation-mode", "unchecked-hash", "-s", folder, "-p", mounted)
    command = (sys.executable, "-X", "no_debug_ranges", "-m", "compileall", *options, folder)
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - the Python that runs this
        raise SystemExit(f"{folder}: not every source compiles")


def main() -> None:
    finish(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
