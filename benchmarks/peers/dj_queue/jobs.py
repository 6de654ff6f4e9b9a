"""The task."""

from django.tasks import task

from benchmarks.measuring import handlers


@task()
def handle(kind: str, number: int) -> None:
    """Do one job."""
    handlers.handle(kind, number)
