"""The task."""

import importlib

import django

from benchmarks.measuring import handlers

tasks = importlib.import_module("django_tasks" if django.VERSION < (6, 0) else "django.tasks")


@tasks.task()
def handle(kind: str, number: int) -> None:
    """Do one job."""
    handlers.handle(kind, number)
