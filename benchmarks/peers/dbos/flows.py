"""The workflow; as a program, a worker."""

from __future__ import annotations

import os
import signal
import threading

from dbos import DBOS, DBOSConfig

from benchmarks.measuring.handlers import handle

QUEUE = "pipelines"
WORKFLOW = "pipeline"
STEPS = 3
AT_ONCE = 30
POLL_SECONDS = 0.01


def address() -> str:
    """Return the database as SQLAlchemy names it."""
    return os.environ["DATABASE_URL"].replace("postgres://", "postgresql://", 1)


@DBOS.step()
def step(kind: str, number: int) -> None:
    """Do one step."""
    handle(kind, number)


@DBOS.workflow(name=WORKFLOW)
def pipeline(number: int) -> None:
    """Do three steps, one after the other."""
    for _ in range(STEPS):
        step("noop", number)


def launch() -> None:
    """Set DBOS up in this process, and begin with what is in the queue."""
    config = DBOSConfig(
        name="bench",
        system_database_url=address(),
        sys_db_pool_size=20,
        executor_id=str(os.getpid()),
        application_version="1",
        log_level="WARNING",
    )
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=AT_ONCE, polling_interval_sec=POLL_SECONDS)


if __name__ == "__main__":
    launch()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
    DBOS.destroy()
