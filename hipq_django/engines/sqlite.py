"""SQLite: one writer at a time, so there is nothing to lock; a statement writes to one table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import connections

from hipq_django.database.transactions import write_transaction
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.engines import statements
from hipq_django.engines.dialects import SQLITE
from hipq_django.engines.settling import BY_ATTEMPT, BY_KEYS, answers_statement, update_statement
from hipq_django.engines.sql import SqlEngine, batch
from hipq_django.engines.values import Concluded, Failing, SettledJob
from hipq_django.models import Job, Worker


class SqliteEngine(SqlEngine):
    """The statements for SQLite."""

    dialect = SQLITE

    def _read_moment(self, value: Any) -> datetime:
        zone = connections[self.using].timezone or UTC
        # For mypy: a driver's value.
        return value.replace(tzinfo=zone).astimezone(UTC)  # type: ignore[no-any-return]

    def lock_unchanged(self, jobs: Sequence[Job]) -> list[Job]:
        return list(jobs)  # nothing can change: one writer at a time

    def claim(self, jobs: Sequence[Job], worker: Worker, now: datetime) -> int:
        text_of = self._moments()
        rows = [[job.id, text_of(job.deadline), job.prefetched] for job in jobs]
        params = [worker.pk, self._moment(now), *batch(rows), worker.pk]
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
        rows, moment = self._failing(failed), self._moment(now)
        done = self._ids_of(statements.to_error(self.dialect), [*rows, moment, worker.pk])
        if len(done) < len(failed):
            rows = self._failing([row for row in failed if row.id in done])
        self._execute(statements.attempts_of(self.dialect), [moment, worker.name, *rows])
        return done

    def settle(
        self,
        messages: Sequence[IncomingAnswer],
        now: datetime,
        *,
        handled: bool,
        job_id: int | None = None,
    ) -> list[SettledJob]:
        first, moment = messages[0], self._moment(now)
        place = [first.instance, first.job_type] if job_id is None else [job_id, first.attempt]
        update = update_statement(self.dialect, BY_KEYS if job_id is None else BY_ATTEMPT)
        params = [moment, *self._response_params(messages, handled=handled), *place]
        jobs = self._fetch(f"{update} RETURNING id, job_key, attempt, queue_id", params)
        same = [first.instance, first.job_type, moment]
        return self._store(jobs, messages, same) if jobs else []

    def _store(
        self,
        jobs: Sequence[tuple[Any, ...]],
        messages: Sequence[IncomingAnswer],
        same: Sequence[Any],
    ) -> list[SettledJob]:
        """Insert the answers of jobs that were settled."""
        by_key = {message.job_key: message for message in messages}
        encode = self.dialect.encode_json
        rows = [
            (pk, key, attempt, by_key[key].message_id, encode(by_key[key].payload))
            for pk, key, attempt, _ in jobs
        ]
        stored = self._fetch(answers_statement(self.dialect), [*same, *batch(rows)])
        answer_ids = {job_id: answer_id for answer_id, job_id in stored}
        return [SettledJob(answer_ids[job[0]], *job) for job in jobs]

    def _execute(self, sql: str, params: Sequence[Any]) -> int:
        """Return how many rows were written."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)
            return int(cursor.rowcount)


def _still(
    follows: Sequence[Concluded], failed: Sequence[Failing], done: set[int]
) -> list[Concluded]:
    """Return what follows, without those that should have failed first and did not."""
    undone = {row.id for row in failed} - done
    return [row for row in follows if row.id not in undone]
