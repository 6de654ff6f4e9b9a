"""The setting AUTODISCOVER: which modules of which apps declare jobs when Django starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

PROJECT = """
import json
import os
import sys

import django
from django.conf import settings
from django.core.checks import run_checks

import hipq_django

# Each start is a process of its own, and most of what it imports is there already.
starts = []
for folder, setting in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        starts.append(reader)
        continue
    os.dup2(writer, 1)
    os.dup2(writer, 2)
    sys.path.insert(0, folder)
    settings.configure(
        INSTALLED_APPS=[
            "django.contrib.contenttypes", "django.contrib.auth", "hipq_django",
            "shop", "bank", "plain",
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        HIPQ=setting,
    )
    django.setup()

    from hipq_django.conf.rules import DEFAULT
    from hipq_django.job_types.registry import get_all_declared

    names = sorted(declared.name for declared in get_all_declared(DEFAULT))
    print(json.dumps([names, "hipq.E005" in {said.id for said in run_checks()}]))
    sys.exit()
print(json.dumps([os.fdopen(reader).read() for reader in starts]))
"""

TASK = "import hipq_django as hipq\n\n@hipq.task{options}\ndef {name}(): ...\n"


def apps(folder: Path, **modules: str) -> Path:
    """Make three apps: with jobs and tasks, with tasks, with neither; `modules` differ."""
    files = {
        "shop/jobs": TASK.format(options="", name="send"),
        "shop/tasks": TASK.format(options="", name="pack"),
        "bank/tasks": TASK.format(options="", name="charge"),
    }
    for app in ("shop", "bank", "plain"):
        (folder / app).mkdir(parents=True)
        (folder / app / "__init__.py").touch()
    for module, code in (files | modules).items():
        (folder / f"{module.replace('_', '/')}.py").write_text(code)
    return folder


def start(*projects: tuple[Path, Any]) -> list[str]:
    """Return what projects print when they start, each with its apps and its setting."""
    arguments = json.dumps([(str(folder), setting) for folder, setting in projects])
    done = subprocess.run(
        [sys.executable, "-c", PROJECT, arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    said: list[str] = json.loads(done.stdout)
    return said


def test_modules_are_imported_as_the_setting_says(tmp_path: Path) -> None:
    """What an app lacks is passed over, and what others import declares its jobs once.

    A setting that cannot be used is told by the check, and not by an error in the import of the
    apps, before any check could run.
    """
    send, pack, charge = "shop.jobs.send", "shop.tasks.pack", "bank.tasks.charge"
    usual = apps(tmp_path / "usual")
    importing = apps(tmp_path / "importing", bank_jobs="from shop.jobs import send")
    off: dict[str, Any] = {"AUTODISCOVER": []}
    cases: list[tuple[Path, Any, list[str], bool]] = [
        (importing, {}, [send], False),
        (usual, {"default": {"AUTODISCOVER": "tasks"}}, [send], True),
        (usual, {"default": {}, "other": {"AUTODISCOVER": ["tasks"]}}, [charge, send, pack], False),
        (usual, {"default": off, "other": {"AUTODISCOVER": ["nothing"]}}, [], False),
    ]

    said = start(*[(folder, setting) for folder, setting, _, _ in cases])

    expected = [json.dumps([names, is_told]) + "\n" for _, _, names, is_told in cases]
    assert said == expected


def test_an_error_in_a_module_is_raised(tmp_path: Path) -> None:
    """Else its jobs would wait for ever, and nobody would know why."""
    twice = TASK.format(options='(name="send")', name="send")
    cases = {
        "ModuleNotFoundError: No module named 'nowhere_to_be_found'": apps(
            tmp_path / "nowhere", bank_tasks="import nowhere_to_be_found"
        ),
        "InvalidJobTypeError: job type 'send' is declared twice in instance 'default', "
        "as a name or an alias: by shop.tasks.send and bank.tasks.send; rename one of them.": apps(
            tmp_path / "twice", shop_tasks=twice, bank_tasks=twice
        ),
    }
    setting = {"default": {"AUTODISCOVER": ["tasks"]}}

    said = start(*[(folder, setting) for folder in cases.values()])

    assert [error for error, text in zip(cases, said, strict=True) if error not in text] == []
    assert all(str(Path("bank") / "tasks.py") in text for text in said)
