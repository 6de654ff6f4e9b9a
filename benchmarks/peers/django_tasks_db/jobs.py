"""The task."""

import django

from benchmarks.measuring import handlers

if django.VERSION < (6, 0):
    from django_tasks import task
else:
    from django.tasks import task


@task()
def handle(kind: str, number: int) -> None:
    """Do one job."""
    handlers.handle(kind, number)
