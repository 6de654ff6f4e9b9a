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


def run_demo(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "demo_flow", *options],
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


def test_each_order_comes_out_once_though_a_worker_is_killed(tmp_path: Path) -> None:
    demo = run_demo(tmp_path, "--orders=14")

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert (
        len(re.findall(r"^  flow-\d+-\d+ +(shipped as|not paid|a person)", demo.stdout, re.M)) == 14
    )
    assert re.search(r"flow-\d+-5 +shipped as", demo.stdout)
    assert re.search(r"flow-\d+-13 +a person said no", demo.stdout)
    assert re.search(r"Readings: \d+ above the limit", demo.stdout)
    assert re.search(r"the board, another graph, shows \d+", demo.stdout)
    assert "Fibonacci: 1, 1, 2, 3, 5, 8, 13, 21" in demo.stdout
    assert re.search(r"All of it took \d+ seconds\.", demo.stdout)
    assert list(tmp_path.glob("hipq-demo-*")) == []


def test_a_demo_that_is_not_done_in_time_ends_and_says_so(tmp_path: Path) -> None:
    demo = run_demo(tmp_path, "--orders=14", "--seconds=0")

    assert demo.returncode == 1, demo.stdout + demo.stderr
    assert "It was to be done within 0 seconds; --seconds gives it more time." in demo.stderr
    assert "still under way" in demo.stdout
