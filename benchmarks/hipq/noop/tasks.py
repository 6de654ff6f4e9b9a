"""The measured task of `django.tasks`."""

from benchmarks.measuring import handlers
from hipq_django.tasks_backend.names import task


@task()
def handle(kind: str, number: int) -> None:
    """Do one job."""
    handlers.handle(kind, number)
