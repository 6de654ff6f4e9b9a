"""The worker of the floor: claims, handles and finishes batches, and listens when idle."""

from __future__ import annotations

import os

import psycopg

from benchmarks.measuring.handlers import handle

BATCH = 500
IDLE_SECONDS = 1.0
CLAIM = """
WITH due AS (
    SELECT id FROM job WHERE state = 'initial' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE job SET state = 'running' FROM due WHERE job.id = due.id RETURNING job.id, payload
"""
FINISH = "UPDATE job SET state = 'final' WHERE id = ANY(%s)"


def work() -> None:
    """Work until killed."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("LISTEN job")
        while True:
            claimed = connection.execute(CLAIM, [BATCH]).fetchall()
            if not claimed:
                list(connection.notifies(timeout=IDLE_SECONDS, stop_after=1))
                continue
            for _, payload in claimed:
                handle(payload["kind"], payload["number"])
            connection.execute(FINISH, [[number for number, _ in claimed]])


if __name__ == "__main__":
    work()
