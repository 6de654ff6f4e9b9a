"""Cases 46 and 50: real workers, one of which is killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hipq_django import flow
from tests.processes.conftest import Workers, eventually, workers

__all__ = ["workers"]

pytestmark = pytest.mark.processes

NODES = 20


@pytest.fixture
def performed(tmp_path: Path) -> Path:
    """Where each run says that its code was called, whatever becomes of its effects."""
    return tmp_path / "performed"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_case_046(workers: Workers, performed: Path) -> None:
    nodes = [flow.start("says_so", args=[str(performed)], run=False) for _ in range(NODES)]
    for _ in range(2):
        workers.start("chaos", "-v0")
    for node in nodes:
        node.run()
    eventually(lambda: len(lines(performed)) >= NODES, "all have run")
    eventually(lambda: all(node.status == "completed" for node in nodes), "all have ended")

    assert Counter(lines(performed)) == {str(node.pk): 1 for node in nodes}


def test_case_050(workers: Workers, performed: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = workers.start("chaos", "-v0")
    node = flow.start("says_so", args=[str(performed), str(gate)], data={"x": [1]})
    eventually(lambda: lines(performed), "it runs")
    assert node.status == "running"
    first.kill()
    gate.touch()
    workers.start("chaos", "-v0")
    eventually(lambda: node.status == "completed", "another worker has run it")

    assert lines(performed) == [str(node.pk)] * 2
    assert node.outputs["out"].peek(2) == [1]
