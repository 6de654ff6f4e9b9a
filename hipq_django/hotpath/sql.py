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
from hipq_django.hotpath.dialects import factor_of
from hipq_django.hotpath.rows import COLUMNS, MOMENTS, read_jobs
from hipq_django.models import Queue
from hipq_django.ranking import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal

    from hipq_django.hotpath.dialects import Dialect
    from hipq_django.models import Job, Worker

ROWS_PER_INSERT = 5_000

# The columns of a new job that differ from job to job, and what is the same for all.
_INSERTED = {
    "id": "bigint",
    "queue_id": "bigint",
    "job_type_id": "bigint",
    "job_data": "jsonb",
    "job_key": "text",
    "timeout": "double precision",
    "scheduled_run_time": "timestamptz",
    "priority": "integer",
    "throttle_factor": "numeric",
    "time_windows": "jsonb",
    "rank": "bigint",
    "deadline": "timestamptz",
    "create_time": "timestamptz",
    "update_time": "timestamptz",
}
_SAME = {
    "state": "'initial'",
    "outcome": "'NONE'",
    "error": "'\"NONE\"'",
    "result": "'null'",
    "attempt": "0",
    "work": "'NONE'",
    "answered": "false",
    "prefetched": "false",
}

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
        """Plan: for each queue one probe of three partial indexes, each stopping at a row."""
        due = f"SELECT 1 FROM hipq_job j WHERE {_DUE.format(queue='q.id', bound='q.bound')}"
        sql = f"""
            SELECT q.*, CASE
                WHEN q.throttle_limit < 1 OR q.throttle_limit > (
                    SELECT COALESCE(SUM(j.throttle_factor), 0) FROM hipq_job j
                    WHERE j.queue_id = q.id AND j.state IN ('running'))
                THEN EXISTS ({due}) ELSE EXISTS ({due} AND j.throttle_factor = 0) END AS has_due,
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
                prefetched = v.prefetched, update_time = %s
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
            UPDATE hipq_job SET state = 'final', outcome = 'succeeded', result = v.result,
                worker_id = NULL, work = 'NONE', answered = false, update_time = %s
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
            UPDATE hipq_job SET worker_id = NULL, work = 'NONE', update_time = %s
            FROM (SELECT {self._field(0, "bigint")} AS id, {self._field(1, "integer")} AS attempt
                FROM {self._dialect.rows}) v
            WHERE hipq_job.id = v.id AND {_IS.format("running")}
                AND hipq_job.attempt = v.attempt AND hipq_job.worker_id = %s
            RETURNING hipq_job.id"""
        return self._ids(sql, [self._moment(now), json.dumps(rows), worker.pk])

    def finish_answered(self, responses: Mapping[int, Any], now: datetime) -> bool:
        """Plan: as `claim`."""
        sql = f"""
            UPDATE hipq_job SET state = 'final', outcome = 'succeeded', result = v.result,
                worker_id = NULL, work = 'NONE', answered = false, update_time = %s
            FROM (SELECT {self._field(0, "bigint")} AS id, {self._dialect.json.format(1)} AS result
                FROM {self._dialect.rows}) v
            WHERE hipq_job.id = v.id AND {_IS.format("running")}"""
        encode = self._dialect.encode_json
        rows = [(pk, encode(response)) for pk, response in sorted(responses.items())]
        self._execute(sql, [self._moment(now), json.dumps(rows)])
        return True

    def insert(self, jobs: Sequence[Job]) -> None:
        """Plan: none; one INSERT for each 5,000 rows.

        Where several may write at once the ids are reserved first, in the order of the jobs, and
        the rows go in by their keys: two batches with the same keys wait for each other in one
        order only.
        """
        columns = ", ".join([*_INSERTED, *_SAME])
        fields = [self._field(index, kind) for index, kind in enumerate(_INSERTED.values())]
        values = ", ".join([*fields, *_SAME.values()])
        sql = (
            f"INSERT INTO hipq_job ({columns}) SELECT {values} FROM {self._dialect.rows} "
            "RETURNING id"
        )
        rows = list(jobs)
        if self._dialect.reserve:
            for job, pk in zip(
                rows, sorted(self._ids(self._dialect.reserve, [len(rows)])), strict=True
            ):
                job.pk = pk
            rows.sort(key=lambda job: (job.job_type_id, job.job_key))
        for start in range(0, len(rows), ROWS_PER_INSERT):
            self._insert_part(sql, rows[start : start + ROWS_PER_INSERT])

    def _insert_part(self, sql: str, jobs: Sequence[Job]) -> None:
        text_of = self._moments()
        ids = self._ids(sql, [json.dumps([_inserted(job, text_of) for job in jobs])])
        if not self._dialect.reserve:
            # The rows are inserted in the order of the document, so their ids grow with it.
            for job, pk in zip(jobs, sorted(ids), strict=True):
                job.pk = pk
        for job in jobs:
            job._state.adding = False

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


def _inserted(job: Job, text_of: Callable[[datetime], str]) -> list[Any]:
    return [
        job.pk,
        job.queue_id,
        job.job_type_id,
        json.dumps(job.job_data),
        job.job_key,
        job.timeout,
        text_of(job.scheduled_run_time),
        job.priority,
        str(job.throttle_factor),
        json.dumps(job.time_windows),
        job.rank,
        text_of(job.deadline),
        text_of(job.create_time),
        text_of(job.update_time),
    ]
