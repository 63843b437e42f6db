"""Writes the digests of the recorded windows of this renderer version: tests/windows/recorded.json.

python tools/record_windows.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.windows.recorded import RECORD, cases, digests
from turnlog.windows.build import RENDERER_VERSION


def main() -> int:
    windows = {case.name: " ".join(digests(case).values()) for case in cases()}
    RECORD.write_text(json.dumps({"renderer": RENDERER_VERSION, "windows": windows}, indent=0) + "\n", encoding="utf-8")
    print(f"{len(windows)} windows of version {RENDERER_VERSION}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
