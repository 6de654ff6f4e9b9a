"""The setting AUTODISCOVER: which modules of which apps declare jobs when Django starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

PROJECT = """
import json
import sys

import django
from django.conf import settings
from django.core.checks import run_checks

settings.configure(
    INSTALLED_APPS=[
        "django.contrib.contenttypes", "django.contrib.auth", "hipq_django", "shop", "bank", "plain"
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    HIPQ=json.loads(sys.argv[1]),
)
django.setup()

from hipq_django.conf.rules import DEFAULT
from hipq_django.job_types.registry import get_all_declared

names = sorted(declared.name for declared in get_all_declared(DEFAULT))
print(json.dumps([names, sorted(said.id for said in run_checks())]))
"""

TASK = "import hipq_django as hipq\n\n@hipq.task{options}\ndef {name}(): ...\n"


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    """Return the folder of three apps: with jobs and tasks, with tasks, with neither."""
    for app in ("shop", "bank", "plain"):
        (tmp_path / app).mkdir()
        (tmp_path / app / "__init__.py").touch()
    for module, name in (("shop/jobs", "send"), ("shop/tasks", "pack"), ("bank/tasks", "charge")):
        (tmp_path / f"{module}.py").write_text(TASK.format(options="", name=name))
    return tmp_path


def start(apps: Path, setting: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROJECT, json.dumps(setting)],
        cwd=apps,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{apps}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("setting", "declared"),
    [
        ({}, ["shop.jobs.send"]),
        ({"default": {"AUTODISCOVER": []}}, []),
        ({"default": {"AUTODISCOVER": ["tasks"]}}, ["bank.tasks.charge", "shop.tasks.pack"]),
        (
            {"default": {}, "mailing": {"AUTODISCOVER": ["tasks"]}},
            ["bank.tasks.charge", "shop.jobs.send", "shop.tasks.pack"],
        ),
        (
            {"default": {"AUTODISCOVER": []}, "mailing": {"AUTODISCOVER": ["jobs"]}},
            ["shop.jobs.send"],
        ),
        ({"default": {"AUTODISCOVER": ["nothing"]}}, []),
    ],
    ids=["default", "off", "another name", "of all instances", "off in one", "in no app"],
)
def test_modules_are_imported_as_the_setting_says(
    apps: Path, setting: Any, declared: list[str]
) -> None:
    """What an app lacks is passed over."""
    found = start(apps, setting)

    assert found.returncode == 0, found.stderr
    names, problems = json.loads(found.stdout)
    assert names == declared
    assert "hipq.E034" not in problems


def test_a_setting_that_cannot_be_used_is_told_by_the_check(apps: Path) -> None:
    """And not by an error in the import of the apps, before any check could run."""
    found = start(apps, {"default": {"AUTODISCOVER": "tasks"}})

    assert found.returncode == 0, found.stderr
    names, problems = json.loads(found.stdout)
    assert names == ["shop.jobs.send"]
    assert "hipq.E034" in problems


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import nowhere_to_be_found",
            "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        ("from shop.tasks import nothing", "ImportError: cannot import name 'nothing'"),
        ("raise RuntimeError('no bank')", "RuntimeError: no bank"),
    ],
)
def test_an_error_in_a_module_is_raised(apps: Path, code: str, said: str) -> None:
    """Else its jobs would wait for ever, and nobody would know why."""
    (apps / "bank" / "tasks.py").write_text(code)

    found = start(apps, {"default": {"AUTODISCOVER": ["tasks"]}})

    assert found.returncode != 0
    assert said in found.stderr
    assert str(Path("bank") / "tasks.py") in found.stderr


def test_two_modules_that_declare_one_name_are_named(apps: Path) -> None:
    for app in ("shop", "bank"):
        code = TASK.format(options='(name="send")', name="send")
        (apps / app / "tasks.py").write_text(code)

    found = start(apps, {"default": {"AUTODISCOVER": ["tasks"]}})

    assert found.returncode != 0
    assert (
        "InvalidJobTypeError: job type 'send' is declared twice in instance 'default': by "
        "shop.tasks.send and bank.tasks.send; rename one of them."
    ) in found.stderr


def test_a_module_that_others_import_declares_its_jobs_once(apps: Path) -> None:
    (apps / "bank" / "jobs.py").write_text("from shop.jobs import send\n")

    found = start(apps, {})

    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)[0] == ["shop.jobs.send"]
