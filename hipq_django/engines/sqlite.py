"""SQLite: one writer at a time, so there is nothing to lock; a statement writes to one table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import connections

from hipq_django.database.transactions import write_transaction
from hipq_django.engines import statements
from hipq_django.engines.dialects import SQLITE
from hipq_django.engines.sql import SqlEngine, batch, in_one_line
from hipq_django.engines.values import Concluded, Failing
from hipq_django.models import Job, Worker


class SqliteEngine(SqlEngine):
    """The statements for SQLite."""

    dialect = SQLITE

    def _read_moment(self, value: Any) -> datetime:
        zone = connections[self.using].timezone or UTC
        return datetime.fromisoformat(value).replace(tzinfo=zone).astimezone(UTC)

    def lock_unchanged(self, jobs: Sequence[Job]) -> list[Job]:
        return list(jobs)  # nothing can change: one writer at a time

    def claim(self, jobs: Sequence[Job], worker: Worker, now: datetime) -> int:
        text_of = self._moments()
        rows = [[job.id, text_of(job.deadline), job.prefetched] for job in jobs]
        params = [worker.id, worker.id, self._moment(now), *batch(rows), worker.id]
        return self._execute(statements.claim_rows(self.dialect), params)

    def _fail(
        self, failed: Sequence[Failing], follows: Sequence[Concluded], worker: Worker, now: datetime
    ) -> set[int]:
        if not failed:
            return self._conclude(follows, worker, now)
        with write_transaction(self.using):
            done = self._fail_in_steps(failed, worker, now)
            return done | self._conclude(_still(follows, failed, done), worker, now)

    def _fail_in_steps(self, failed: Sequence[Failing], worker: Worker, now: datetime) -> set[int]:
        """Do what `statements.fail` does, where one statement writes to one table."""
        (rows, texts), moment = self._failing(failed), self._moment(now)
        done = self._ids_of(statements.to_error(self.dialect), [*rows, moment, worker.id])
        if len(done) < len(failed):
            rows, texts = self._failing([row for row in failed if row.id in done])
        self._execute(statements.attempts_of(self.dialect), [texts, moment, worker.name, *rows])
        return done

    def _execute(self, sql: str, params: Sequence[Any]) -> int:
        """Return how many rows were written."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(in_one_line(sql), params)
            return int(cursor.rowcount)


def _still(
    follows: Sequence[Concluded], failed: Sequence[Failing], done: set[int]
) -> list[Concluded]:
    """Return what follows, without those that should have failed first and did not."""
    undone = {row.id for row in failed} - done
    return [row for row in follows if row.id not in undone]
