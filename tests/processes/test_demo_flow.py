"""`manage.py demo_flow` as a user runs it: real processes, of which one is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.embedded]


def test_each_order_comes_out_once_though_a_worker_is_killed(tmp_path: Path) -> None:
    demo = subprocess.run(
        [sys.executable, "manage.py", "demo_flow", "--orders=14"],
        cwd=ROOT,
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "DATABASE_URL": f"sqlite:///{tmp_path}/demo.sqlite3",
            "TMPDIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert (
        len(re.findall(r"^  flow-\d+-\d+ +(shipped as|not paid|a person)", demo.stdout, re.M)) == 14
    )
    assert re.search(r"flow-\d+-5 +shipped as", demo.stdout)
    assert re.search(r"flow-\d+-13 +a person said no", demo.stdout)
    assert re.search(r"Readings: \d+ above the limit", demo.stdout)
    assert re.search(r"the board, another graph, shows \d+", demo.stdout)
    assert "Fibonacci: 1, 1, 2, 3, 5, 8, 13, 21" in demo.stdout
    assert list(tmp_path.glob("hipq-demo-*")) == []
