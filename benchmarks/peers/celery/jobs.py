"""The application."""

import os

from celery import Celery

from benchmarks.measuring import handlers

app = Celery("bench", broker=os.environ["REDIS_URL"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=100)


@app.task(name="handle")
def handle(kind: str, number: int) -> None:
    """Do one job."""
    handlers.handle(kind, number)
