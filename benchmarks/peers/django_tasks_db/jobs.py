"""The task."""

from django_tasks_db import compat

from benchmarks.measuring import handlers


@compat.task()
def handle(kind: str, number: int) -> None:
    """Do one job."""
    handlers.handle(kind, number)
