"""The hot path in SQL for PostgreSQL and SQLite; a batch travels as one JSON document.

Compiling the ORM's queries, and a parameter for each value of each row, cost more than the
statements themselves. The texts are made once; each says which plan it expects.
"""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING, Any

from django.db import connections

from hipq_django.hotpath.base import Busy, Finished
from hipq_django.hotpath.bulk import (
    INSERT_ONE,
    ROWS_PER_INSERT,
    copy_in,
    document_row,
    insert_statement,
)
from hipq_django.hotpath.dialects import factor_of
from hipq_django.hotpath.rows import COLUMNS, MOMENTS, read_jobs
from hipq_django.models import Queue
from hipq_django.ranking import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal

    from hipq_django.hotpath.dialects import Dialect
    from hipq_django.models import Job, Worker

_SUCCEEDED = (
    "state = 'final', outcome = 'succeeded', result = v.result, worker_id = NULL, "
    "work = 'NONE', answered = false, update_time = %s"
)

_IS = "hipq_job.state || '' = '{}'"
"""The row is in this state, said so that no partial index serves.

A row is looked up by its primary key. By its statistics, which a queue outruns, the planner would
rather go through all rows in the state: those of other workers, and the dead ones.
"""

_DUE = (
    "j.queue_id = {queue} AND j.state IN ('initial', 'retry') AND j.rank <= {bound} "
    "AND j.scheduled_run_time <= %s"
)


class SqlPath:
    """The statements on one database alias; see `base.HotPath`."""

    def __init__(self, using: str, dialect: Dialect) -> None:
        self.using = using
        self._dialect = dialect
        self._read = ", ".join(
            (dialect.moment if name in MOMENTS else "{0}").format(f"j.{name}") for name in COLUMNS
        )

    def look(
        self,
        instance: str,
        names: Sequence[str],
        now: datetime,
        bounds: Mapping[int, int],
    ) -> list[Busy]:
        """Plan: for each queue one probe of three partial indexes, each stopping at a row.

        The probe for due jobs asks for the first in order, not whether there is one: PostgreSQL
        believes that an EXISTS soon finds a row anywhere, and reads the table from end to end
        when all waiting jobs are of the future.
        """
        due = f"SELECT j.id FROM hipq_job j WHERE {_DUE.format(queue='q.id', bound='q.bound')}"
        first = "ORDER BY j.rank, j.id LIMIT 1"
        sql = f"""
            SELECT q.*, CASE
                WHEN q.throttle_limit < 1 OR q.throttle_limit > (
                    SELECT COALESCE(SUM(j.throttle_factor), 0) FROM hipq_job j
                    WHERE j.queue_id = q.id AND j.state IN ('running'))
                THEN ({due} {first}) ELSE ({due} AND j.throttle_factor = 0 {first})
                END IS NOT NULL AS has_due,
                EXISTS (SELECT 1 FROM hipq_job j WHERE j.queue_id = q.id AND
                    j.state IN ('running') AND j.answered AND j.worker_id IS NULL) AS has_response,
                EXISTS (SELECT 1 FROM hipq_job j WHERE j.queue_id = q.id AND
                    j.state IN ('error') AND j.worker_id IS NULL) AS has_error
            FROM (SELECT q.*, COALESCE(b.bound, {MAX_RANK}) AS bound FROM hipq_queue q
                LEFT JOIN (SELECT {self._field(0, "bigint")} AS id,
                    {self._field(1, "bigint")} AS bound FROM {self._dialect.rows}) b
                ON b.id = q.id) q
            WHERE q.instance = %s {self._in("q.name", names)} ORDER BY q.id"""
        moment = self._moment(now)
        params = [moment, moment, json.dumps([*bounds.items()]), instance, *names]
        rows: Any = Queue.objects.using(self.using).raw(sql, params)
        return [Busy(q, q.has_due, q.has_response, q.has_error) for q in rows]

    def load(self, queue: Queue) -> Decimal:
        """Plan: the partial index of running jobs alone."""
        sql = (
            "SELECT SUM(throttle_factor) FROM hipq_job WHERE queue_id = %s AND state IN ('running')"
        )
        [(total,)] = self._fetch(sql, [queue.pk])
        return factor_of(total or 0)

    def due(
        self,
        queue: Queue,
        now: datetime,
        limit: int,
        *,
        after: tuple[int, int] | None = None,
        critical: bool = False,
        without_types: Sequence[int] = (),
    ) -> list[Job]:
        """Plan: the index of waiting jobs in its own order, no sort, stopping at the limit."""
        bound = queue.last_due_rank(now)
        sql = f"""
            SELECT {self._read} FROM hipq_job j
            WHERE {_DUE.format(queue="%s", bound="%s")}
            {"AND j.throttle_factor = 0" if critical else ""}
            {"AND (j.rank, j.id) > (%s, %s)" if after else ""}
            {self._in("j.job_type_id", without_types, negated=True)}
            ORDER BY j.rank, j.id LIMIT %s {self._dialect.lock}"""
        params = [queue.pk, bound, self._moment(now), *(after or ()), *without_types, limit]
        zone = connections[self.using].timezone or UTC
        rows = self._fetch(sql, params)
        return read_jobs(rows, queue, lambda value: self._dialect.read_moment(value, zone))

    def claim(self, jobs: Sequence[Job], worker: Worker, now: datetime) -> None:
        """Plan: a nested loop over the document, one look-up by primary key for each row.

        The ids of the jobs that share a deadline stand together.
        """
        sql = f"""
            UPDATE hipq_job SET state = 'running', error = '"NONE"', worker_id = %s,
                work = 'request', attempt = attempt + 1, deadline = v.deadline,
                prefetched = v.prefetched, progress = 0, progress_message = 'NONE',
                extended_seconds = 0, update_time = %s
            FROM (SELECT {self._dialect.id} AS id, {self._field(1, "timestamptz")} AS deadline,
                    {self._field(2, "boolean")} AS prefetched FROM {self._dialect.ids}) v
            WHERE hipq_job.id = v.id AND hipq_job.state || '' IN ('initial', 'retry')"""
        groups: dict[tuple[float, bool], tuple[list[int], Job]] = {}
        for job in jobs:
            groups.setdefault((job.timeout, job.prefetched), ([], job))[0].append(job.id)
        rows = [
            [ids, str(self._moment(job.deadline)), job.prefetched] for ids, job in groups.values()
        ]
        self._execute(sql, [worker.pk, self._moment(now), json.dumps(rows)])

    def finish(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> set[int]:
        """Plan: as `claim`. An answer that came while the request was sent goes first."""
        if not jobs:
            return set()
        sql = f"""
            UPDATE hipq_job SET {_SUCCEEDED}
            FROM (SELECT {self._field(0, "bigint")} AS id, {self._field(1, "integer")} AS attempt,
                    {self._dialect.json.format(2)} AS result,
                    {self._field(3, "boolean")} AS is_request FROM {self._dialect.rows}) v
            WHERE hipq_job.id = v.id AND {_IS.format("running")}
                AND hipq_job.attempt = v.attempt AND hipq_job.worker_id = %s
                AND NOT (hipq_job.answered AND v.is_request)
            RETURNING hipq_job.id"""
        encode = self._dialect.encode_json
        rows = [(pk, attempt, encode(value), first) for pk, attempt, value, first in sorted(jobs)]
        return self._ids(sql, [self._moment(now), json.dumps(rows), worker.pk])

    def let_go(self, jobs: Iterable[tuple[int, int]], worker: Worker, now: datetime) -> set[int]:
        """Plan: as `claim`."""
        rows = sorted(jobs)
        if not rows:
            return set()
        sql = f"""
            UPDATE hipq_job SET worker_id = NULL, work = 'NONE', expects = '[]', update_time = %s
            FROM (SELECT {self._field(0, "bigint")} AS id, {self._field(1, "integer")} AS attempt
                FROM {self._dialect.rows}) v
            WHERE hipq_job.id = v.id AND {_IS.format("running")}
                AND hipq_job.attempt = v.attempt AND hipq_job.worker_id = %s
            RETURNING hipq_job.id"""
        return self._ids(sql, [self._moment(now), json.dumps(rows), worker.pk])

    def finish_answered(self, responses: Mapping[int, Any], now: datetime) -> bool:
        """Plan: as `claim`."""
        sql = f"""
            UPDATE hipq_job SET {_SUCCEEDED}
            FROM (SELECT {self._field(0, "bigint")} AS id, {self._dialect.json.format(1)} AS result
                FROM {self._dialect.rows}) v
            WHERE hipq_job.id = v.id AND {_IS.format("running")}"""
        encode = self._dialect.encode_json
        rows = [(pk, encode(response)) for pk, response in sorted(responses.items())]
        self._execute(sql, [self._moment(now), json.dumps(rows)])
        return True

    def insert_one(self, job: Job) -> None:
        """One INSERT; to compile it by the ORM takes as long as to run it."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(INSERT_ONE, [*document_row(job, self._moment), job.origin_id])
            [job.id] = cursor.fetchone()
        job._state.adding = False

    def insert(self, jobs: Iterable[Job], count: int, *, by_key: bool) -> list[Job]:
        """One COPY, or one statement for each 5,000 rows.

        Where several may write at once the ids are reserved first.
        """
        inserted: list[Job] = []
        connection = connections[self.using]
        # What the driver raises in the middle of a COPY becomes Django's error too.
        with connection.wrap_database_errors, connection.cursor() as cursor:
            if self._dialect.reserve and hasattr(cursor, "copy"):
                numbered = self._numbered(jobs, count, inserted)
                copy_in(cursor, sorted(numbered, key=_key) if by_key else numbered, self._moments())
            else:
                inserted += jobs
                for start in range(0, count, ROWS_PER_INSERT):
                    self._insert_part(inserted[start : start + ROWS_PER_INSERT])
        for job in inserted:
            job._state.adding = False
        return inserted

    def _numbered(self, jobs: Iterable[Job], count: int, inserted: list[Job]) -> Iterator[Job]:
        """Return the jobs one by one, each with its id, and note them down in their order."""
        reserved = self._fetch(self._dialect.reserve, [count])

        def number() -> Iterator[Job]:
            for job, (pk,) in zip(jobs, reserved, strict=True):
                job.id = pk
                inserted.append(job)
                yield job

        return number()

    def _insert_part(self, jobs: Sequence[Job]) -> None:
        text_of = self._moments()
        document = json.dumps([document_row(job, text_of) for job in jobs])
        ids = self._ids(insert_statement(self._dialect), [document])
        # The rows are inserted in the order of the document, so their ids grow with it.
        for job, pk in zip(jobs, sorted(ids), strict=True):
            job.id = pk

    # How it is said

    def _field(self, index: int, kind: str) -> str:
        return self._dialect.field.format(index, kind)

    def _in(self, column: str, values: Sequence[Any], *, negated: bool = False) -> str:
        if not values:
            return ""
        places = ", ".join(["%s"] * len(values))
        return f"AND {column} {'NOT IN' if negated else 'IN'} ({places})"

    def _moment(self, moment: datetime) -> Any:
        return connections[self.using].ops.adapt_datetimefield_value(moment)

    def _moments(self) -> Callable[[datetime], str]:
        """Return a function to text that remembers: most jobs of a batch share their moments."""
        texts: dict[datetime, str] = {}

        def text_of(moment: datetime) -> str:
            if moment not in texts:
                texts[moment] = str(self._moment(moment))
            return texts[moment]

        return text_of

    def _ids(self, sql: str, params: Sequence[Any]) -> set[int]:
        return {pk for (pk,) in self._fetch(sql, params)}

    def _fetch(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def _execute(self, sql: str, params: Sequence[Any]) -> None:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)


def _key(job: Job) -> tuple[int, str]:
    return job.job_type_id, job.job_key
