"""Runs the tests of the example's apps under the example's own settings.

A run of pytest has one settings module, and the main run has the one of the tests; so these tests
have a run of their own. Their files are not called `test_….py`, so that only it collects them.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.plugin import renamed

APPS = ("analytics", "demo", "events", "flows", "orders", "payments", "reminders")
LONG = ("flows", "payments")


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(LONG, id="long", marks=pytest.mark.nightly),
        pytest.param({*APPS, "project"}.difference(LONG), id="short"),
    ],
)
def test_the_tests_of_the_example_pass(files: Iterable[str]) -> None:
    own = {
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        # Neither the main run nor another process of pytest-xdist has a database of this name.
        "DATABASE_URL": renamed(os.environ["DATABASE_URL"], f"example_{os.getpid()}"),
    }
    paths = [str(Path(__file__).with_name(f"{name}.py")) for name in files]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *paths],
        check=False,
        cwd=ROOT,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_app_of_the_example_has_tests() -> None:
    folders = {path.parent.name for path in (ROOT / "example_project").glob("*/apps.py")}

    assert folders == set(APPS)


def test_every_environment_variable_is_documented_and_no_other() -> None:
    settings = (ROOT / "example_project" / "settings.py").read_text()
    read = set(re.findall(r"env(?:\.\w+)?\(\s*\"([A-Z_]+)\"", settings))

    assert {name for name in names_in_tables() if name.isupper()} == read


def test_every_app_of_the_example_is_documented() -> None:
    assert {name for name in names_in_tables() if name.islower()} == set(APPS) - {"demo"}


def names_in_tables() -> set[str]:
    """Return what the tables of the document name in their first column."""
    document = (ROOT / "docs" / "example.md").read_text()
    return set(re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE))
