"""The crash tests themselves: a short run of one cell, from the load to the page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.paths import FILE, PAGE, ROOT

pytestmark = [pytest.mark.processes, pytest.mark.nightly, pytest.mark.embedded]

SECONDS = 240


def test_a_short_cell_makes_faults_checks_the_ledger_and_writes_the_page(tmp_path: Path) -> None:
    """On SQLite, whatever the tests run on; how quick it is depends on the machine."""
    command = [sys.executable, "-m", "chaos", "--only=workers-killed", "--database=SQLite"]
    command += ["--minutes=0.07", f"--folder={tmp_path}"]

    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS
    )

    outcome = json.loads((tmp_path / FILE).read_text())["outcomes"]["workers-killed"]["SQLite"]
    assert (outcome["broken"], outcome["skipped"]) == ("", ""), ended.stdout + ended.stderr
    assert outcome["figures"]["faults"] >= 1
    assert outcome["figures"]["jobs"] >= 50
    assert outcome["counts"]["lost"] == outcome["counts"]["ended_twice"] == 0
    assert ended.returncode == (1 if any(outcome["counts"].values()) else 0)
    assert "| Workers killed, SQLite |" in (tmp_path / PAGE).read_text()
