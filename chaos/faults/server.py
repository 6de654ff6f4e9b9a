"""Faults of the database server."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import psycopg

from chaos import orders
from chaos.databases import session
from chaos.faults.processes import await_row, place
from chaos.run import THREADS

if TYPE_CHECKING:
    from chaos.stage import Stage

TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> 'chaos'
"""


def restart(stage: Stage) -> None:
    """Restart the server as an administrator does: sessions are ended, data is written."""
    stage.postgres.stop("fast")
    time.sleep(stage.chance.uniform(0, 0.5))
    stage.postgres.start_again()


def crash(stage: Stage) -> None:
    """Stop the server without writing anything, then let it recover from its log."""
    stage.postgres.stop("immediate")
    stage.postgres.start_again()


def kill(stage: Stage) -> None:
    """Kill the server's main process; its children notice and end."""
    stage.postgres.kill()
    stage.postgres.start_again()


def outage(stage: Stage) -> None:
    """Keep the server away until every worker has missed more beats than make it lost."""
    stage.postgres.stop("fast")
    time.sleep(stage.silence + stage.chance.uniform(1, 3))
    stage.postgres.start_again()


AWAY_SECONDS = (orders.HELD_SECONDS + 0.5, orders.HELD_SECONDS + 1.5)
"""How long the server is away from threads that are held: it is not back when they are free."""

RESERVED_WITHIN_SECONDS = 3.0
RESERVED = f"""
SELECT 1 FROM hipq_job j JOIN hipq_jobtype t ON t.id = j.job_type_id
WHERE j.state = 'running' AND j.worker_id IS NOT NULL GROUP BY j.worker_id
HAVING COUNT(*) FILTER (WHERE t.name = 'slow_among_quick') >= {THREADS}
    AND COUNT(*) FILTER (WHERE t.name = 'plain' AND j.prefetched) > 0
"""
"""Whether a worker has slow jobs for all of its threads, and quick ones that wait for these."""


def outage_of_reserved(stage: Stage) -> None:
    """Take the server away just when slow jobs hold threads, and quick ones are claimed ahead."""
    placing = threading.Thread(target=place(orders.held), args=[stage])
    placing.start()
    with session(stage.database) as asked:
        await_row(asked, RESERVED, RESERVED_WITHIN_SECONDS)
    stage.postgres.stop("immediate")
    time.sleep(stage.chance.uniform(*AWAY_SECONDS))
    stage.postgres.start_again()
    placing.join()


def end_sessions(stage: Stage) -> None:
    """End all sessions of the project, ten times in three seconds."""
    for _ in range(10):
        stage.run(TERMINATE)
        time.sleep(0.3)


def use_up_slots(stage: Stage) -> None:
    """Take all connections that the server allows, those of the project too; hold them."""
    until = time.monotonic() + stage.chance.uniform(3, 6)
    with ExitStack() as stack:
        first = stack.enter_context(stage.postgres.connect())
        while time.monotonic() < until:
            first.execute(TERMINATE)
            _take_all(stage, stack)
            time.sleep(0.1)


def _take_all(stage: Stage, stack: ExitStack) -> None:
    """Open sessions until the server refuses one."""
    with suppress(psycopg.OperationalError):
        while True:
            stack.enter_context(stage.postgres.connect())
