"""Runs the tests of the example's apps under the example's own settings.

A run of pytest has one settings module, and the main run has the one of the tests; so these tests
have a run of their own. Their files are not called `test_….py`, so that only it collects them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.plugin import renamed

APPS = ("analytics", "demo", "events", "flows", "orders", "payments", "reminders")


def run(*arguments: str) -> str:
    """Run Python with the example's settings, on a database of its own; return what it prints."""
    own = {
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        # Neither the main run nor another process of pytest-xdist has a database of this name.
        "DATABASE_URL": renamed(os.environ["DATABASE_URL"], f"example_{os.getpid()}"),
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=ROOT,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_tests_of_the_examples_apps_pass() -> None:
    files = [str(Path(__file__).with_name(f"{app}.py")) for app in APPS]

    assert " passed" in run("-m", "pytest", "-p", "no:cacheprovider", *files)


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


def test_the_example_lacks_no_migration() -> None:
    assert "No changes detected" in run("manage.py", "makemigrations", "--check", "--dry-run")


def test_the_example_passes_the_system_checks() -> None:
    assert "no issues" in run("manage.py", "check")
