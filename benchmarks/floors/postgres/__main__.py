"""The runner of the floor."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import psycopg

from benchmarks.measuring.postgres import ask
from benchmarks.measuring.runner import Runner, main

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = """
CREATE TABLE job (
    id bigserial PRIMARY KEY,
    state text NOT NULL DEFAULT 'initial',
    payload jsonb NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX job_waiting ON job (id) WHERE state = 'initial';
"""
INSERT = "INSERT INTO job (payload) VALUES (%s)"


class FloorRunner(Runner):
    """Plain statements on one table."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection | None = None

    def prepare(self) -> None:
        """Make the table."""
        self._connected().execute(TABLE)

    def enqueue(self, kind: str, number: int) -> None:
        """Insert one row; wake the worker only where its latency is measured."""
        connection = self._connected()
        connection.execute(INSERT, [_payload(kind, number)])
        if kind == "stamp":
            connection.execute("NOTIFY job")

    def enqueue_bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Copy all rows."""
        with self._connected().cursor().copy("COPY job (payload) FROM STDIN") as copy:
            for number in numbers:
                copy.write_row([_payload(kind, number)])

    def unfinished(self) -> int:
        """Count the rows that are not final."""
        return ask("SELECT count(*) FROM job WHERE state <> 'final'")

    def disconnect(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command of the worker, which does one job at a time."""
        return [sys.executable, "-m", "benchmarks.floors.postgres.worker"]

    def _connected(self) -> psycopg.Connection:
        if self._connection is None:
            self._connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        return self._connection


def _payload(kind: str, number: int) -> str:
    return json.dumps({"kind": kind, "number": number})


if __name__ == "__main__":
    main(FloorRunner())
