"""SQLite: one writer at a time, so there is nothing to lock; a statement writes to one table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import connections

from hipq_django.database.transactions import write_transaction
from hipq_django.engines import statements
from hipq_django.engines.dialects import SQLITE
from hipq_django.engines.sql import SqlEngine, batch, by_id, still, without_indentation
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
            return done | self._conclude(still(follows, failed, done), worker, now)

    def _fail_in_steps(self, failed: Sequence[Failing], worker: Worker, now: datetime) -> set[int]:
        """Do what `statements.fail` does, where one statement writes to one table."""
        encode, text_of, moment = self.dialect.encode_json, self._text_of(), self._moment(now)
        errors = [encode(row.error) for row in failed]
        done = self._to_error(failed, errors, [moment, worker.id])
        classes = {row.classes: encode(row.classes) for row in failed}
        history = [
            (row.id, row.attempt, error, classes[row.classes], row.traceback,
             text_of(row.start_time), moment, worker.name,
             row.failures or None, row.id, row.attempt)
            for row, error in zip(failed, errors, strict=True)
            if row.id in done
        ]  # fmt: skip
        with connections[self.using].cursor() as cursor:
            cursor.executemany(without_indentation(statements.ATTEMPT), history)
        return done

    def _to_error(
        self, failed: Sequence[Failing], errors: Sequence[str], same: Sequence[Any]
    ) -> set[int]:
        """Write to jobs that they failed; less is written to those that are tried again."""
        kept: list[tuple[Any, ...]] = []
        others: list[tuple[Any, ...]] = []
        for row, error in zip(failed, errors, strict=True):
            if row.is_kept:
                kept.append((row.id, row.attempt, row.is_request, error))
            else:
                others.append((*row[:6], error))
        done: set[int] = set()
        if kept:
            done = self._ids_of(statements.to_kept_error(self.dialect), [*batch(kept), *same])
        if others:
            done |= self._ids_of(statements.to_error(self.dialect), [*batch(others), *same])
        return done

    def _conclude(self, follows: Sequence[Concluded], worker: Worker, now: datetime) -> set[int]:
        """Do the same with fewer columns if all are tried again, as nearly always."""
        if not follows or any(row.rank is None for row in follows):
            return super()._conclude(follows, worker, now)
        text_of = self._moments()
        rows = [
            (row.id, row.attempt, (time := row.scheduled_run_time) and text_of(time), row.rank)
            for row in sorted(follows, key=by_id)
        ]
        params = [*batch(rows), self._moment(now), worker.id]
        return self._ids_of(statements.retry(self.dialect), params)
