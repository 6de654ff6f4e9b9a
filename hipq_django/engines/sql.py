"""What PostgreSQL and SQLite share: a batch travels as one JSON document, in one statement.

Compiling the ORM's queries, and a parameter for each value of each row, cost more than the
statements themselves. The texts are in `statements`; each says which plan it expects.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, ClassVar, TypeVar

from django.db import connections

from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.serialization import encode_json
from hipq_django.domain.throttling import RunningJob, Throttler, keys_read
from hipq_django.engines import statements
from hipq_django.engines.base import Engine
from hipq_django.engines.dialects import Dialect
from hipq_django.engines.functions import ServerFunction
from hipq_django.engines.rows import (
    COLUMNS,
    Memory,
    document_row,
    extra_row,
    factor_of,
    has_extra,
    keys_of,
    mark_stored,
    read_jobs,
    read_queue,
    read_running_jobs,
)
from hipq_django.engines.settling import BY_ATTEMPT, BY_KEYS, answers_statement, update_statement
from hipq_django.engines.values import (
    FIRST,
    Concluded,
    DuePage,
    EarlyPlace,
    Failing,
    Finished,
    QueueWork,
    ScanBounds,
    SettledJob,
    Which,
)
from hipq_django.models import Job, Queue, ScheduleRun, Worker

Row = TypeVar("Row", bound=tuple[Any, ...])
T = TypeVar("T")

ROWS_PER_INSERT = 5_000

by_id = itemgetter(0)
_queue_id = itemgetter(COLUMNS.index("queue_id"))
_rank_and_id = itemgetter(COLUMNS.index("rank"), COLUMNS.index("id"))


class SqlEngine(Engine, ABC):
    """The statements in SQL."""

    dialect: ClassVar[Dialect]

    def probe_queues(
        self, worker: Worker, now: datetime, known: Mapping[int, ScanBounds]
    ) -> list[QueueWork]:
        moment = self._moment(now)
        names = json.dumps(worker.queues or worker.excluded_queues)
        places = [(pk, *values) for pk, values in known.items()]
        params = [*[moment] * 4, *batch(places)]
        params += [worker.instance, names, bool(worker.queues)]
        rows = self._call(statements.probe_queues(self.dialect), params)
        return [self._read_work(row) for row in rows]

    def _read_work(self, row: Sequence[Any]) -> QueueWork:
        *queue, first_rank, has_response, has_error = row
        is_hungry = first_rank == statements.HUNGRY
        return QueueWork(
            read_queue(queue, self.using),
            None if is_hungry else first_rank,
            bool(has_response),
            bool(has_error),
            is_hungry,
        )

    def has_overdue(self, instance: str, now: datetime) -> bool:
        [(found,)] = self._call(statements.HAS_OVERDUE, [self._moment(now), instance])
        return bool(found)

    def has_early(self, instance: str) -> bool:
        [(found,)] = self._call(statements.HAS_EARLY, [instance])
        return bool(found)

    def early_page(
        self, instance: str, after: EarlyPlace, limit: int
    ) -> tuple[list[EarlyPlace], EarlyPlace | None]:
        params = [instance, *after, limit, instance, limit]
        rows = self._fetch(statements.EARLY_PAGE, params)
        last = [EarlyPlace(*row[:3]) for row in rows if not row[3]]
        return [EarlyPlace(*row[:3]) for row in rows if row[3]], last[0] if last else None

    def new_early(self, instance: str, after: int, limit: int) -> list[int]:
        rows = self._fetch(statements.NEW_EARLY, [instance, after, limit, instance])
        return [answer_id for _, _, answer_id, _ in rows]

    def lock(self, queue: Queue, worker: Worker) -> Queue | None:
        rows = self._call(statements.lock(self.dialect), [queue.id], worker)
        return read_queue(rows[0], self.using) if rows else None

    def first_page(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> DuePage:
        place = self._due_params(queue, now)
        if which == FIRST:
            rows = self._call(
                statements.first_page(self.dialect), [queue.id, *place, *place, limit]
            )
        else:
            conditions, params = self._conditions(which)
            sql = statements.first_page(self.dialect, conditions, locks=which.locks).text
            rows = self._fetch(sql, [queue.id, *place, *place, *params, limit])
        load, has_critical = rows[0][-2:] if rows else (None, False)
        jobs = self._read_jobs([row[:-2] for row in rows], [queue])
        return DuePage(jobs, factor_of(load or 0), bool(has_critical))

    def running(self, queue: Queue, throttlers: Sequence[Throttler]) -> list[RunningJob]:
        """Plan: the index of running jobs, and for each the primary key of job types.

        Shipped throttlers read a key or two of documents that may be large.
        """
        keys = keys_read(throttlers)
        if keys == []:
            return []
        data = ", ".join(map(self.dialect.data.format, keys)) if keys else "job_data"
        sql = f"""
            SELECT t.name, j.job_key, j.throttle_factor, {data}
            FROM hipq_job j JOIN hipq_jobtype t ON t.id = j.job_type_id
            WHERE j.queue_id = %s AND j.state IN ('running')"""
        return read_running_jobs(self._fetch(sql, [queue.id]), keys)

    def due(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> list[Job]:
        place = self._due_params(queue, now)
        unlimited = [] if queue.is_limited else [queue.id]
        if unlimited and which == FIRST:
            rows = self._call(statements.due(self.dialect), [*place, *unlimited, limit])
            return self._read_jobs(rows, [queue])
        conditions, params = self._conditions(which)
        if unlimited:
            conditions = f"{statements.UNLIMITED} {conditions}"
        sql = statements.select_due(self.dialect, conditions, locks=which.locks)
        rows = self._fetch(sql, [*place, *unlimited, *params, limit])
        return self._read_jobs(rows, [queue])

    # How due jobs are read

    def _conditions(self, which: Which) -> tuple[str, list[Any]]:
        """Return what `which` asks for, and its parameters."""
        types = ", ".join(["%s"] * len(which.without_types))
        conditions = [
            "AND j.throttle_factor = 0" if which.critical else "",
            "AND (j.rank, j.id) > (%s, %s)" if which.after else "",
            f"AND j.job_type_id NOT IN ({types})" if types else "",
            statements.NO_SUSPECT if which.without_suspects else "",
        ]
        return " ".join(conditions), [*(which.after or ()), *which.without_types]

    def _due_params(self, queue: Queue, now: datetime) -> list[Any]:
        """Return the parameters of `_DUE`."""
        return [queue.id, queue.low_water_mark, queue.high_water_mark(now), self._moment(now)]

    def _read_jobs(self, rows: Sequence[tuple[Any, ...]], queues: Sequence[Queue]) -> list[Job]:
        return read_jobs(rows, queues, self._read_moment)

    @abstractmethod
    def _read_moment(self, value: Any) -> datetime:
        """Return a time that was read as `Dialect.moment`."""

    def _response_params(self, messages: Sequence[IncomingAnswer], *, handled: bool) -> list[Any]:
        """Return the parameters of the responses of `update_statement`."""
        encode = self.dialect.encode_json
        rows = [(m.job_key, m.message_id, encode(m.payload)) for m in messages]
        return [handled, encode_json(rows), len(rows)]

    def _in_order(self, rows: Sequence[tuple[Any, ...]], queues: Sequence[Queue]) -> list[Job]:
        """Return claimed jobs in the order of the queues, and in each by their ranks."""
        rows = sorted(rows, key=_rank_and_id)
        if len(queues) > 1:
            turns = {queue.id: turn for turn, queue in enumerate(queues)}
            rows.sort(key=lambda row: turns[_queue_id(row)])
        return self._read_jobs(rows, queues)

    def finish(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> set[int]:
        if not jobs:
            return set()

        def write(jobs: Sequence[Finished]) -> set[int]:
            return self._ids(
                statements.finish(self.dialect), self._finish_params(jobs, worker, now)
            )

        return self._pass_over_locked(jobs, write)

    def _finish_params(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> list[Any]:
        encode = self.dialect.encode_json
        rows = [(pk, attempt, encode(value), first) for pk, attempt, value, first in sorted(jobs)]
        return [*batch(rows), self._moment(now), worker.id]

    def park(self, jobs: Iterable[tuple[int, int]], worker: Worker, now: datetime) -> set[int]:
        rows = sorted(jobs)
        if not rows:
            return set()

        def write(rows: Sequence[tuple[int, int]]) -> set[int]:
            params = [*batch(rows), self._moment(now), worker.id]
            return self._ids(statements.park(self.dialect), params)

        return self._pass_over_locked(rows, write)

    def fail(
        self, failed: Sequence[Failing], follows: Sequence[Concluded], worker: Worker, now: datetime
    ) -> set[int]:
        ids = {row.id for row in failed} | {row.id for row in follows}
        if not ids:
            return set()

        def write(free: Sequence[tuple[int]]) -> set[int]:
            still = {pk for (pk,) in free}
            first = [row for row in failed if row.id in still]
            then = [row for row in follows if row.id in still]
            return self._fail(first, then, worker, now)

        return self._pass_over_locked([(pk,) for pk in sorted(ids)], write)

    @abstractmethod
    def _fail(
        self, failed: Sequence[Failing], follows: Sequence[Concluded], worker: Worker, now: datetime
    ) -> set[int]:
        """Write failed attempts and what follows, all of which may be written."""

    def _conclude(self, follows: Sequence[Concluded], worker: Worker, now: datetime) -> set[int]:
        if not follows:
            return set()
        params = self._conclude_params(follows, worker, now)
        return self._ids(statements.conclude(self.dialect), params)

    def failures(self, ids: Sequence[int]) -> dict[int, int]:
        if not ids:
            return {}
        rows = self._call(statements.failures(self.dialect), batch([(pk,) for pk in ids]))
        return {pk: count or 0 for pk, count in rows}

    def _conclude_params(
        self, follows: Sequence[Concluded], worker: Worker, now: datetime
    ) -> list[Any]:
        text_of = self._moments()
        rows = [
            (*row[:4], row[4] and text_of(row[4]), row.rank) for row in sorted(follows, key=by_id)
        ]
        return [*batch(rows), self._moment(now), worker.id]

    def _pass_over_locked(self, jobs: Sequence[Row], write: Callable[[Sequence[Row]], T]) -> T:
        """Write rows, without waiting for those that others have locked."""
        return write(jobs)

    def settle(
        self,
        messages: Sequence[IncomingAnswer],
        now: datetime,
        *,
        handled: bool,
        job_id: int | None = None,
    ) -> list[SettledJob]:
        """Two statements: not every database can write to two tables by one."""
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
        if len(messages) == 1:  # that of an attempt, whose job may have got another key meanwhile
            by_key = {key: messages[0] for _, key, _, _ in jobs}
        else:
            by_key = {message.job_key: message for message in messages}
        encode = self.dialect.encode_json
        rows = [
            (pk, key, attempt, by_key[key].message_id, encode(by_key[key].payload))
            for pk, key, attempt, _ in jobs
        ]
        stored = self._fetch(answers_statement(self.dialect), [*same, *batch(rows)])
        answer_ids = {job_id: answer_id for answer_id, job_id in stored}
        return [SettledJob(answer_ids[job[0]], *job) for job in jobs]

    def type_and_key_of(
        self, job_id: int, create_time: datetime | None = None
    ) -> tuple[str, str] | None:
        """Plan: two look-ups by primary key."""
        sql = """
            SELECT t.name, j.job_key FROM hipq_job j JOIN hipq_jobtype t ON t.id = j.job_type_id
            WHERE j.id = %s AND j.create_time = COALESCE(%s, j.create_time)"""
        rows = self._fetch(sql, [job_id, create_time and self._moment(create_time)])
        return (rows[0][0], rows[0][1]) if rows else None

    def insert_one(self, job: Job) -> bool:
        text_of = self._moments()
        values, statement = document_row(job, text_of), statements.INSERT
        if has_extra(job):
            values, statement = values + extra_row(job, text_of), statements.INSERT_WITH_EXTRA
        return self._note_id(job, self._fetch(statement, values))

    def _note_id(self, job: Job, rows: Sequence[tuple[Any, ...]]) -> bool:
        """Give a new job the id that its INSERT returned; return whether there is one."""
        job.id = rows[0][0] if rows else None  # type: ignore[assignment]  # none was inserted
        if job.id is not None:
            mark_stored(job)
        return job.id is not None

    def insert(
        self, jobs: Iterable[Job], count: int, *, by_key: bool, extra: bool = False
    ) -> list[Job]:
        """One statement for each 5,000 rows."""
        inserted = list(jobs)
        for start in range(0, count, ROWS_PER_INSERT):
            self._insert_part(inserted[start : start + ROWS_PER_INSERT], extra=extra)
        return inserted

    def _insert_part(self, jobs: Sequence[Job], *, extra: bool) -> None:
        text_of = self._moments()
        rows = [document_row(job, text_of) for job in jobs]
        if extra:
            rows = [row + extra_row(job, text_of) for row, job in zip(rows, jobs, strict=True)]
        statement = statements.insert_jobs(self.dialect, has_extra=extra)
        ids = self._ids_of(statement, batch(rows))
        # The rows are inserted in the order of the document, so their ids grow with it.
        for job, pk in zip(jobs, sorted(ids), strict=True):
            job.id = pk
            mark_stored(job)

    def insert_free(self, jobs: Sequence[Job]) -> None:
        """Do it by `insert_free`, whose rows come back in the order of the jobs."""
        text_of = self._moments()
        document = [document_row(job, text_of) + extra_row(job, text_of) for job in jobs]
        rows = self._insert_free(document)
        for job in jobs:
            is_next = bool(rows) and rows[0][1:] == keys_of(job)
            self._note_id(job, [(rows.popleft()[0],)] if is_next else [])

    def _insert_free(self, document: Sequence[Any]) -> deque[tuple[Any, ...]]:
        """Insert the rows of a document by `insert_free`; return what it returns, by id."""
        statement, rows = statements.insert_free(self.dialect), []
        for start in range(0, len(document), ROWS_PER_INSERT):
            rows += self._fetch(statement, batch(document[start : start + ROWS_PER_INSERT]))
        return deque(sorted(rows, key=itemgetter(0)))

    def insert_runs(self, runs: Sequence[ScheduleRun]) -> None:
        if not runs:
            return
        text_of = self._moments()
        rows = [
            (run.schedule_id, text_of(run.due_time), run.kind, run.until and text_of(run.until),
             run.count, run.reason, run.job_id, text_of(run.create_time))
            for run in runs
        ]  # fmt: skip
        self._execute(statements.insert_runs(self.dialect), batch(rows))

    def move_on(self, schedules: Sequence[int], next_time: datetime | None, now: datetime) -> None:
        params = [next_time and self._moment(next_time), self._moment(now)]
        params += batch([(pk,) for pk in schedules])
        self._execute(statements.move_on(self.dialect), params)

    def _moment(self, moment: datetime) -> Any:
        return connections[self.using].ops.adapt_datetimefield_value(moment)

    def _moments(self) -> Callable[[datetime], str]:
        """Return a cached function to text, because most jobs of a batch share their moments."""
        return Memory(self._text_of()).__getitem__

    def _text_of(self) -> Callable[[datetime], str]:
        """Return the function that makes a text of a moment, as the database reads it."""
        connection = connections[self.using]
        zone = connection.timezone
        if zone is None:
            adapted = connection.ops.adapt_datetimefield_value
            return lambda moment: str(adapted(moment))
        # As that does, in a fifth of the time: each failure has a moment of its own.
        return lambda moment: str(moment.astimezone(zone).replace(tzinfo=None))

    def _call(
        self, function: ServerFunction, params: Sequence[Any], worker: Worker | None = None
    ) -> list[tuple[Any, ...]]:
        """Execute a statement, by its function if the database has functions."""
        return self._fetch(function.text, params)

    def _ids(self, function: ServerFunction, params: Sequence[Any]) -> set[int]:
        """Do the same with one that returns ids."""
        return self._ids_of(function.text, params)

    def _ids_of(self, sql: str, params: Sequence[Any]) -> set[int]:
        return {pk for (pk,) in self._fetch(sql, params)}

    def _execute(self, sql: str, params: Sequence[Any]) -> int:
        """Return how many rows were written."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(without_indentation(sql), params)
            return int(cursor.rowcount)

    def _fetch(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(without_indentation(sql), params)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


@lru_cache(256)
def without_indentation(sql: str) -> str:
    """Return a statement without its indentation: on SQLite Django searches all of it each time."""
    return " ".join(sql.split())


def batch(rows: Sequence[Any]) -> list[Any]:
    """Return the parameters of `Dialect.rows`."""
    return [json.dumps(rows), len(rows)]


def still(
    follows: Sequence[Concluded], failed: Sequence[Failing], done: set[int]
) -> list[Concluded]:
    """Return what follows, without those that should have failed first and did not."""
    undone = {row.id for row in failed} - done
    return [row for row in follows if row.id not in undone]


def array(ids: Iterable[int]) -> str:
    """Return an array as PostgreSQL writes it; the driver takes much longer for a list."""
    return f"{{{','.join(map(str, ids))}}}"
