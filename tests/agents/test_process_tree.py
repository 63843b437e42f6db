"""A process tree of a parent and two workers is killed whole: others go on with all three, and no effect is repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.integrations.served import url_of
from turnlog.client.model import Turnlog

pytestmark = pytest.mark.network


def parent(url: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.agents.process_tree", "parent", url, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True)


@pytest.mark.parametrize(
    ("engine", "moment"),
    [
        ("sqlite", "after"),
        *(pytest.param("sqlite", moment, marks=pytest.mark.full) for moment in ("before", "replied")),
        *(pytest.param("moto", moment, marks=pytest.mark.full) for moment in ("before", "after", "replied")),
    ],
)
def test_d1_a_killed_process_tree_is_gone_on_with_and_pays_once(tmp_path: Path, engine: str, moment: str) -> None:
    with url_of(engine, tmp_path) as url:
        (tmp_path / moment).touch()
        with parent(url, tmp_path) as killed:
            while not all((tmp_path / f"{name} stops").exists() for name in ("first", "second")):
                assert killed.poll() is None, "the parent has ended by itself"
                time.sleep(0.05)
            os.killpg(killed.pid, signal.SIGKILL)
        (tmp_path / moment).unlink()
        with parent(url, tmp_path) as other:
            text, usage = json.loads(other.communicate()[0])
        paid = (tmp_path / "paid").read_text().split()
        assert sorted(key.split("/")[2] for key in paid) == ["first", "second"], "each is paid, and once"
        assert text == "first has paid; second has paid"
        assert usage == {"input_tokens": 27, "output_tokens": 9}, "of the parent and both workers"
        with Turnlog.open(url) as log:
            for session_id in ("desk", *(key.rpartition("/")[0] for key in paid)):
                roles = [message.body["role"] for message in log.sessions.get(session_id).messages()]
                assert roles == ["user", "assistant", "tool", "assistant"], session_id
