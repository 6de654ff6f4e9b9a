"""What the backend for `django.tasks` says where neither Django nor the backport has tasks."""

from __future__ import annotations

import subprocess
import sys

import django
import pytest

WITHOUT_BACKPORT = """
import sys

sys.modules["django_tasks"] = None

import hipq_django.tasks_backend.names
"""


@pytest.mark.skipif(django.VERSION >= (6, 0), reason="Django 6 has tasks itself")
def test_without_the_backport_the_package_to_install_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_BACKPORT], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr.endswith(
        "ImportError: hipq_django.tasks_backend needs django.tasks: Django 6, or on Django 5.2 the "
        "package django-tasks. Install it: pip install 'hipq-django[tasks]'.\n"
    )
