"""Faults of the database server."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import psycopg

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
