"""A project that was written for django-tasks-db, on this queue: only its settings change."""

from __future__ import annotations

import re
from pathlib import Path

import django
import pytest

from tests.docs.project import FreshProject

pytestmark = pytest.mark.processes

PACKAGE = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"

SETTINGS = """
INSTALLED_APPS += ["django_tasks_db", "shop"]
TASKS = {
    "default": {
        "BACKEND": "django_tasks_db.DatabaseBackend",
        "QUEUES": ["default", "mail"],
    }
}
"""

NEW = {
    '"django_tasks_db", "shop"': '"hipq_django", "shop"',
    "django_tasks_db.DatabaseBackend": "hipq_django.tasks_backend.HipqBackend",
}

TASKS = f"""
from {PACKAGE} import task


@task(queue_name="mail", priority=5)
def welcome(name, *, times=1):
    return f"welcome, {{name}}" * times


@task(takes_context=True)
async def attempt(context):
    return context.attempt


@task
def broken():
    raise OSError("the mail server is away")
"""

TESTS = f"""
from django.test import TestCase
from {PACKAGE} import TaskResultStatus, default_task_backend

from shop.letters.outgoing import welcome


class WelcomeTest(TestCase):
    def test_a_task_waits_for_a_worker(self):
        result = welcome.enqueue("Ada", times=2)

        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertEqual((result.args, result.kwargs), (["Ada"], {{"times": 2}}))
        self.assertEqual(default_task_backend.get_result(result.id).id, result.id)
        self.assertFalse(result.is_finished)
        with self.assertRaises(ValueError):
            result.return_value
"""

ENQUEUE = """
from shop.letters.outgoing import attempt, broken, welcome
print("ids", *[task.enqueue(*args).id for task, *args in [(welcome, "Ada"), (attempt,), (broken,)]])
"""

READ = """
from shop.letters.outgoing import attempt, broken, welcome
for task, pk in zip([welcome, attempt, broken], {ids}):
    result = task.get_result(pk)
    print(result.status, result.return_value if result.status == "SUCCESSFUL" else result.errors[0])
"""


def in_terms_of_this_queue(settings: str) -> str:
    """Return the settings with a line changed for each app and backend of django-tasks-db."""
    for before, after in NEW.items():
        assert before in settings
        settings = settings.replace(before, after)
    return settings


def test_its_tests_and_its_tasks_in_any_module_run(fresh_project: FreshProject) -> None:
    fresh_project.create("shop")
    letters = fresh_project.folder / "shop" / "letters"
    letters.mkdir()
    for path, text in [
        (letters / "__init__.py", ""),
        (letters / "outgoing.py", TASKS),  # no module that a worker looks for by its name
        (fresh_project.folder / "shop" / "test_letters.py", TESTS),
    ]:
        Path(path).write_text(text)
    fresh_project.write([], settings=in_terms_of_this_queue(SETTINGS))

    assert "Ran 1 test" in fresh_project.manage("test", "shop")

    fresh_project.manage("migrate", "-v0")
    printed = fresh_project.manage("shell", "-v0", "-c", ENQUEUE)
    ids = re.search(r"ids (\d+) (\d+) (\d+)", printed)
    assert ids, printed
    fresh_project.manage("hipq_worker", "--until-idle", "-v0")
    said = fresh_project.manage("shell", "-v0", "-c", READ.format(ids=list(ids.groups())))
    assert "SUCCESSFUL welcome, Ada" in said
    assert "SUCCESSFUL 1" in said
    assert "FAILED" in said
    assert "the mail server is away" in said
