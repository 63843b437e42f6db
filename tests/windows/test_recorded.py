"""W8: a version of the renderer makes one window of one log and request. A change of windows is a change of the version."""

from __future__ import annotations

import json

from tests.effort import is_full
from tests.windows.recorded import PARTS, RECORD, cases, digests
from turnlog.windows.build import RENDERER_VERSION


def test_w8_a_renderer_version_always_makes_the_same_windows() -> None:
    """A window that differs is intended: raise `RENDERER_VERSION`, then run tools/record_windows.py. Else the change is a fault.

    Where only the histories of the tests have changed, the record is written anew without a new version. `make pr` compares
    every fifth window.
    """
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["renderer"] == RENDERER_VERSION, "run tools/record_windows.py"
    differing = list[str]()
    for number, case in enumerate(cases()):
        if number % 5 and not is_full():
            continue
        made = digests(case)
        recorded = dict(zip(PARTS, record["windows"][case.name].split(), strict=True))
        parts = [part for part in PARTS if made[part] != recorded[part]]
        if parts:
            differing.append(f"{case.name} differs in {', '.join(parts)}")
            break
    assert differing == []
