"""mypy and pyright find the mistakes in `project.py`, and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROJECT = Path(__file__).with_name("project.py")

pytestmark = pytest.mark.embedded  # what is checked has no database


def mistakes() -> set[int]:
    """Return the numbers of the lines with a mistake."""
    lines = PROJECT.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# mistake")}


def needs(checker: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        find_spec(checker) is None, reason=f"needs {checker}, of the extra lint"
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the file outside this repository, whose settings it must not have."""
    copy = tmp_path / "project.py"
    copy.write_text(PROJECT.read_text())
    return copy


def run(project: Path, *arguments: str) -> str:
    environment = os.environ | {"MYPY_CACHE_DIR": str(project.parent / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", *arguments, str(project)],
        check=False,
        capture_output=True,
        text=True,
        cwd=project.parent,
        env=environment,
        timeout=300,
    )
    return done.stdout


@needs("mypy")
@pytest.mark.nightly
def test_mypy_finds_each_mistake_and_nothing_else(project: Path) -> None:
    printed = run(project, "mypy", "--strict", "--config-file=", "--no-error-summary")

    found = {int(line) for line in re.findall(r"^project\.py:(\d+): error", printed, re.MULTILINE)}
    assert found == mistakes(), printed


@needs("pyright")
def test_pyright_finds_each_mistake_and_nothing_else(project: Path) -> None:
    printed = run(project, "pyright", "--outputjson", f"--pythonpath={sys.executable}")

    errors = [
        entry for entry in json.loads(printed)["generalDiagnostics"] if entry["severity"] == "error"
    ]
    found = {entry["range"]["start"]["line"] + 1 for entry in errors}
    assert found == mistakes(), printed
