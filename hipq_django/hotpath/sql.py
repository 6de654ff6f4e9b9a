"""The hot path in SQL for PostgreSQL and SQLite; a batch travels as one JSON document.

Compiling the ORM's queries, and a parameter for each value of each row, cost more than the
statements themselves. The texts are made once; each says which plan it expects.
"""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from datetime import UTC
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import OperationalError, connections

from hipq_django.database import (
    MAX_MILLISECONDS,
    is_locked_out,
    worker_transaction,
    write_transaction,
)
from hipq_django.hotpath import statements
from hipq_django.hotpath.base import (
    FIRST,
    Busy,
    Concluded,
    EarlyPlace,
    Failing,
    Finished,
    Head,
    Known,
    OutdatedError,
    Settled,
    Wanted,
    Which,
)
from hipq_django.hotpath.bulk import ROWS_PER_INSERT, copy_in, insert_statement
from hipq_django.hotpath.columns import document_row
from hipq_django.hotpath.dialects import factor_of
from hipq_django.hotpath.kept import has_functions
from hipq_django.hotpath.rows import COLUMNS, is_same, read_jobs, read_loads, read_queue
from hipq_django.hotpath.settling import (
    BY_ATTEMPT,
    BY_KEYS,
    SETTLE_BY_ATTEMPT,
    SETTLE_BY_KEY,
    answers_statement,
    one_response_params,
    update_params,
    update_statement,
    with_answers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from hipq_django.hotpath.dialects import Dialect
    from hipq_django.hotpath.kept import Kept
    from hipq_django.inbox import Message
    from hipq_django.models import Job, Queue, Worker
    from hipq_django.throttling import Load


CONTENDED_SECONDS = 1.0
"""For how long rows are locked before they are written, after one of them was locked."""

_contended: dict[str, float] = {}
"""When a row was last found locked, by database alias."""

Row = TypeVar("Row", bound=tuple[Any, ...])
T = TypeVar("T")

_id = itemgetter(0)
_queue_id = itemgetter(COLUMNS.index("queue_id"))
_rank_and_id = itemgetter(COLUMNS.index("rank"), COLUMNS.index("id"))


class SqlPath:
    """The statements on one database alias; see `base.HotPath`."""

    def __init__(self, using: str, dialect: Dialect) -> None:
        self.using = using
        self._dialect = dialect

    def look(
        self,
        instance: str,
        names: Sequence[str],
        now: datetime,
        known: Mapping[int, Known],
    ) -> list[Busy]:
        """See `statements.look`."""
        moment = self._moment(now)
        wanted = json.dumps(list(names))
        places = [(pk, *values) for pk, values in known.items()]
        params = [moment, moment, moment, *_batch(places), instance, wanted, wanted]
        rows = self._keep(statements.look(self._dialect), params)
        return [
            Busy(read_queue(row[:-3], self.using), row[-3], *map(bool, row[-2:])) for row in rows
        ]

    def has_overdue(self, instance: str, now: datetime) -> bool:
        """See `statements.HAS_OVERDUE`."""
        [(found,)] = self._keep(statements.HAS_OVERDUE, [self._moment(now), instance])
        return bool(found)

    def has_early(self, instance: str) -> bool:
        """See `statements.HAS_EARLY`."""
        [(found,)] = self._keep(statements.HAS_EARLY, [instance])
        return bool(found)

    def early_page(
        self, instance: str, after: EarlyPlace, limit: int
    ) -> tuple[list[EarlyPlace], EarlyPlace | None]:
        """See `statements.EARLY_PAGE`."""
        params = [instance, *after, limit, instance, limit]
        rows = self._fetch(statements.EARLY_PAGE, params)
        last = [EarlyPlace(*row[:3]) for row in rows if not row[3]]
        return [EarlyPlace(*row[:3]) for row in rows if row[3]], last[0] if last else None

    def new_early(self, instance: str, after: int, limit: int) -> list[int]:
        """See `statements.NEW_EARLY`."""
        rows = self._fetch(statements.NEW_EARLY, [instance, after, limit, instance])
        return [answer_id for _, _, answer_id, _ in rows]

    def lock(self, queue: Queue, worker: Worker) -> Queue | None:
        """See `statements.lock`."""
        rows = self._keep(statements.lock(self._dialect), [queue.pk], worker)
        return read_queue(rows[0], self.using) if rows else None

    def head(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> Head:
        """See `statements.head`."""
        place = self._place(queue, now)
        if which == FIRST:
            rows = self._keep(statements.head(self._dialect), [queue.pk, *place, *place, limit])
        else:
            conditions, params = self._conditions(which)
            sql = statements.head(self._dialect, conditions, locks=which.locks).text
            rows = self._fetch(sql, [queue.pk, *place, *place, *params, limit])
        load, has_critical = rows[0][-2:] if rows else (None, False)
        jobs = self._read_jobs([row[:-2] for row in rows], [queue])
        return Head(jobs, factor_of(load or 0), bool(has_critical))

    def running(self, queue: Queue) -> list[Load]:
        """Plan: the index of running jobs, and for each the primary key of job types."""
        sql = """
            SELECT t.name, j.job_key, j.job_data, j.throttle_factor
            FROM hipq_job j JOIN hipq_jobtype t ON t.id = j.job_type_id
            WHERE j.queue_id = %s AND j.state IN ('running')"""
        return read_loads(self._fetch(sql, [queue.pk]))

    def due(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> list[Job]:
        """See `statements.due`, and `select_due` for other jobs than the first."""
        place = self._place(queue, now)
        unlimited = [] if queue.is_limited else [queue.pk]
        if unlimited and which == FIRST:
            rows = self._keep(statements.due(self._dialect), [*place, *unlimited, limit])
            return self._read_jobs(rows, [queue])
        conditions, params = self._conditions(which)
        if unlimited:
            conditions = f"{statements.UNLIMITED} {conditions}"
        sql = statements.select_due(self._dialect, conditions, locks=which.locks)
        rows = self._fetch(sql, [*place, *unlimited, *params, limit])
        return self._read_jobs(rows, [queue])

    def lock_unchanged(self, jobs: Sequence[Job]) -> list[Job]:
        """See `statements.lock_jobs`. One writer at a time needs no locks: nothing can change."""
        if not jobs or not self._dialect.lock:
            return list(jobs)
        sql = statements.lock_jobs(self._dialect)
        rows = self._fetch(sql, [_array(job.id for job in jobs)])
        now = {job.id: job for job in self._read_jobs(rows, [jobs[0].queue])}
        return [now[job.id] for job in jobs if job.id in now and is_same(job, now[job.id])]

    def _conditions(self, which: Which) -> tuple[str, list[Any]]:
        """Return what `which` asks for, and its parameters."""
        conditions = [
            "AND j.throttle_factor = 0" if which.critical else "",
            "AND (j.rank, j.id) > (%s, %s)" if which.after else "",
            self._in("j.job_type_id", which.without_types, negated=True),
            statements.NO_SUSPECT if which.without_suspects else "",
        ]
        return " ".join(conditions), [*(which.after or ()), *which.without_types]

    def _place(self, queue: Queue, now: datetime) -> list[Any]:
        """Return the parameters of `_DUE`."""
        return [queue.pk, queue.front, queue.last_due_rank(now), self._moment(now)]

    def _read_jobs(self, rows: Sequence[tuple[Any, ...]], queues: Sequence[Queue]) -> list[Job]:
        zone = connections[self.using].timezone or UTC
        return read_jobs(rows, queues, lambda value: self._dialect.read_moment(value, zone))

    def claim_due(
        self, queues: Sequence[Queue], worker: Worker, now: datetime, wanted: Wanted
    ) -> list[Job]:
        """See `statements.claim_due`. Where no function can look again, all jobs need a look."""
        if not has_functions(self.using):
            return []
        moment = self._moment(now)
        ids, fronts, bounds, _ = zip(*(self._place(queue, now) for queue in queues), strict=True)
        places = [
            _array(ids),
            _array(fronts),
            _array(bounds),
            _array(wanted.types),
            moment,
            wanted.limit,
            wanted.limit,
        ]
        params = [*places, worker.pk, moment, moment, wanted.room, worker.pk]
        rows = self._keep(statements.claim_due(self._dialect), params)
        return self._in_order(rows, queues)

    def refill(
        self,
        done: Sequence[Finished],
        queue: Queue,
        worker: Worker,
        now: datetime,
        wanted: Wanted,
    ) -> tuple[set[int], list[Job]]:
        """See `statements.finish` and `claim_fitting`: both in one round trip."""
        if not has_functions(self.using):
            return set(), []
        moment, place = self._moment(now), self._place(queue, now)
        fitting = [_array(wanted.types), *place, wanted.limit, queue.pk, *place]
        claim = statements.claim_fitting(self._dialect).call
        params = [*fitting, worker.pk, moment, moment, wanted.room, worker.pk]
        if not done:
            return set(), self._in_order(self._fetch(claim, params), [queue])

        def write(jobs: Sequence[Finished]) -> tuple[set[int], list[Job]]:
            finish = statements.finish(self._dialect).call
            before = self._finish_params(jobs, worker, now)
            finished, rows = self._fetch_both(finish, claim, before, params)
            return {pk for (pk,) in finished}, self._in_order(rows, [queue])

        return self._pass_over_locked(done, write)

    def _in_order(self, rows: Sequence[tuple[Any, ...]], queues: Sequence[Queue]) -> list[Job]:
        """Return claimed jobs in the order of the queues, and in each by their ranks."""
        rows = sorted(rows, key=_rank_and_id)
        if len(queues) > 1:
            turns = {queue.pk: turn for turn, queue in enumerate(queues)}
            rows.sort(key=lambda row: turns[_queue_id(row)])
        return self._read_jobs(rows, queues)

    def claim(self, jobs: Sequence[Job], worker: Worker, now: datetime) -> int:
        """See `statements.claim`; without it a document says what is reckoned there."""
        moment = self._moment(now)
        if self._dialect.later:
            at_once = _array(job.id for job in jobs if not job.prefetched)
            ids = _array(job.id for job in jobs)
            params = [worker.id, moment, moment, at_once, ids, worker.id]
            return len(self._keep(statements.claim(self._dialect), params))
        text_of = self._moments()
        rows = [[job.id, text_of(job.deadline), job.prefetched] for job in jobs]
        params = [worker.pk, moment, *_batch(rows), worker.pk]
        return self._execute(statements.claim_rows(self._dialect), params)

    def finish(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> set[int]:
        """See `statements.finish`."""
        if not jobs:
            return set()

        def write(jobs: Sequence[Finished]) -> set[int]:
            return self._changed(
                statements.finish(self._dialect), self._finish_params(jobs, worker, now)
            )

        return self._pass_over_locked(jobs, write)

    def _finish_params(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> list[Any]:
        encode = self._dialect.encode_json
        rows = [(pk, attempt, encode(value), first) for pk, attempt, value, first in sorted(jobs)]
        return [self._moment(now), *_batch(rows), worker.pk]

    def let_go(self, jobs: Iterable[tuple[int, int]], worker: Worker, now: datetime) -> set[int]:
        """See `statements.let_go`."""
        rows = sorted(jobs)
        if not rows:
            return set()

        def write(rows: Sequence[tuple[int, int]]) -> set[int]:
            params = [self._moment(now), *_batch(rows), worker.pk]
            return self._changed(statements.let_go(self._dialect), params)

        return self._pass_over_locked(rows, write)

    def fail(
        self,
        failed: Sequence[Failing],
        concluded: Sequence[Concluded],
        worker: Worker,
        now: datetime,
    ) -> set[int]:
        """See `statements.fail` and `conclude`: both in one round trip where that can be."""
        ids = {row.id for row in failed} | {row.id for row in concluded}
        if not ids:
            return set()

        def write(free: Sequence[tuple[int]]) -> set[int]:
            still = {pk for (pk,) in free}
            first = [row for row in failed if row.id in still]
            then = [row for row in concluded if row.id in still]
            return self._fail(first, then, worker, now)

        return self._pass_over_locked([(pk,) for pk in sorted(ids)], write)

    def _fail(
        self,
        failed: Sequence[Failing],
        concluded: Sequence[Concluded],
        worker: Worker,
        now: datetime,
    ) -> set[int]:
        if not failed:
            return self._conclude(concluded, worker, now)
        if not self._dialect.writes_in_with:
            with write_transaction(self.using):
                done = self._fail_in_steps(failed, worker, now)
                return done | self._conclude(_still(concluded, failed, done), worker, now)
        fail, params = statements.fail(self._dialect), self._fail_params(failed, worker, now)
        if not concluded:
            return self._changed(fail, params)
        calls = [self._call(fail), self._call(statements.conclude(self._dialect))]
        more = self._conclude_params(concluded, worker, now)
        rows = self._fetch_both(calls[0], calls[1], params, more)
        return {pk for part in rows for (pk,) in part}

    def _conclude(self, concluded: Sequence[Concluded], worker: Worker, now: datetime) -> set[int]:
        if not concluded:
            return set()
        params = self._conclude_params(concluded, worker, now)
        return self._changed(statements.conclude(self._dialect), params)

    def failures(self, ids: Sequence[int]) -> dict[int, int]:
        """See `statements.failures`."""
        if not ids:
            return {}
        rows = self._keep(statements.failures(self._dialect), _batch([(pk,) for pk in ids]))
        return {pk: count or 0 for pk, count in rows}

    def _fail_in_steps(self, failed: Sequence[Failing], worker: Worker, now: datetime) -> set[int]:
        """Do what `statements.fail` does, where one statement writes to one table."""
        document, number, moment = *self._failing(failed), self._moment(now)
        sql = statements.to_error(self._dialect)
        done = self._ids(sql, [moment, document, number, worker.pk])
        written = self._failing([row for row in failed if row.id in done])
        sql = statements.attempts_of(self._dialect)
        self._execute(sql, [moment, worker.name, *written])
        return done

    def _fail_params(self, failed: Sequence[Failing], worker: Worker, now: datetime) -> list[Any]:
        moment = self._moment(now)
        return [moment, *self._failing(failed), worker.pk, moment, worker.name]

    def _failing(self, failed: Sequence[Failing]) -> list[Any]:
        encode, text_of = self._dialect.encode_json, self._moments()
        return _batch(
            [
                (
                    *row[:6], encode(row.error), encode(row.classes), row.traceback,
                    text_of(row.start_time),
                )
                for row in sorted(failed, key=_id)
            ]
        )  # fmt: skip

    def _conclude_params(
        self, concluded: Sequence[Concluded], worker: Worker, now: datetime
    ) -> list[Any]:
        text_of = self._moments()
        rows = [
            (*row[:4], row[4] and text_of(row[4]), row.rank) for row in sorted(concluded, key=_id)
        ]
        return [self._moment(now), *_batch(rows), worker.pk]

    # What others have locked

    def _pass_over_locked(self, jobs: Sequence[Row], write: Callable[[Sequence[Row]], T]) -> T:
        """Write rows, without waiting for those that somebody else has locked.

        Mostly there are none: then this costs nothing. Where there were some a moment ago, and
        inside a transaction, which may not fail, those that are free are locked first.
        """
        if not self._dialect.lock:
            return write(jobs)
        if self._may_try():
            try:
                return write(jobs)
            except OperationalError as error:
                if not is_locked_out(error):
                    raise
                _contended[self.using] = time.monotonic()
        within = connections[self.using].in_atomic_block
        with nullcontext() if within else worker_transaction(self.using):
            free = self._free([_id(job) for job in jobs])
            return write([job for job in jobs if _id(job) in free])

    def _may_try(self) -> bool:
        contended = time.monotonic() < _contended.get(self.using, -inf) + CONTENDED_SECONDS
        is_alone = not connections[self.using].in_atomic_block
        return is_alone and not contended and has_functions(self.using)

    def _free(self, ids: Sequence[int]) -> set[int]:
        """Lock the jobs that nobody else has locked; see `statements.FREE`."""
        return self._changed(statements.FREE, [_array(ids)])

    def settle(
        self,
        messages: Sequence[Message],
        now: datetime,
        *,
        handled: bool,
        job_id: int | None = None,
    ) -> list[Settled]:
        """Plan: a nested loop over the responses, one look-up by the index of live keys for each.

        Said in one statement where that is possible: the price of an answer is its round trips.
        """
        first, moment = messages[0], self._moment(now)
        place = [first.instance, first.job_type] if job_id is None else [job_id, first.attempt]
        same = [first.instance, first.job_type, moment]
        if self._dialect.writes_in_with and len(messages) == 1:
            one = SETTLE_BY_KEY if job_id is None else SETTLE_BY_ATTEMPT
            response = one_response_params(first, handled=handled)
            settled = self._ask(one, [moment, *response, *place, *same])
            return [Settled(*json.loads(settled))] if settled else []
        update = update_statement(self._dialect, BY_KEYS if job_id is None else BY_ATTEMPT)
        params = [moment, *update_params(self._dialect, messages, handled=handled), *place]
        if self._dialect.writes_in_with:
            rows = self._fetch(with_answers(update), [*params, *same])
            return [Settled(*row) for row in rows]
        jobs = self._fetch(f"{update} RETURNING id, job_key, attempt, queue_id", params)
        return self._store(jobs, messages, same) if jobs else []

    def _store(
        self, jobs: Sequence[tuple[Any, ...]], messages: Sequence[Message], same: Sequence[Any]
    ) -> list[Settled]:
        """Insert the answers of jobs that were settled."""
        by_key = {message.job_key: message for message in messages}
        encode = self._dialect.encode_json
        rows = [
            (pk, key, attempt, by_key[key].message_id, encode(by_key[key].payload))
            for pk, key, attempt, _ in jobs
        ]
        stored = self._fetch(answers_statement(self._dialect), [*same, *_batch(rows)])
        answer_ids = {job_id: answer_id for answer_id, job_id in stored}
        return [Settled(answer_ids[job[0]], *job) for job in jobs]

    def lock_live(self, instance: str, keys: Iterable[tuple[str, str]]) -> None:
        """Plan: as `settle`, then a sort of what was found."""
        if not self._dialect.lock:
            return
        sql = f"""
            SELECT 1 FROM (SELECT {self._field(0, "text")} AS name, {self._field(1, "text")} AS key
                FROM {self._dialect.rows}) v
            JOIN hipq_jobtype t ON t.instance = %s AND t.name = v.name
            JOIN hipq_job j ON j.job_type_id = t.id AND j.job_key = v.key
                AND NOT (j.state = 'final') AND NOT (j.job_key = 'NONE')
            ORDER BY j.id FOR NO KEY UPDATE OF j"""
        self._fetch(sql, [*_batch(list(keys)), instance])

    def name_and_key(self, job_id: int) -> tuple[str, str] | None:
        """Plan: two look-ups by primary key."""
        sql = """
            SELECT t.name, j.job_key FROM hipq_job j JOIN hipq_jobtype t ON t.id = j.job_type_id
            WHERE j.id = %s"""
        rows = self._fetch(sql, [job_id])
        return (rows[0][0], rows[0][1]) if rows else None

    def insert_one(self, job: Job) -> None:
        """See `statements.INSERT_IF`. To compile it by the ORM takes as long as to run it."""
        versions = job.job_type.versions
        values = [*document_row(job, self._moments()), job.origin_id]
        if versions:
            pk = self._ask(statements.INSERT_IF, [*values, *versions])
        else:
            [(pk,)] = self._fetch(statements.INSERT, values)
        if pk is None:
            raise OutdatedError
        job.id = pk
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
        [(reserved,)] = self._fetch(self._dialect.reserve, [count])

        def number() -> Iterator[Job]:
            for job, pk in zip(jobs, reserved or (), strict=True):
                job.id = pk
                inserted.append(job)
                yield job

        return number()

    def _insert_part(self, jobs: Sequence[Job]) -> None:
        text_of = self._moments()
        rows = [document_row(job, text_of) for job in jobs]
        ids = self._ids(insert_statement(self._dialect), _batch(rows))
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

    def _ask(self, kept: Kept, params: Sequence[Any]) -> Any:
        """Return the value of a single one, None where there is no row."""
        rows = self._keep(kept, params)
        return rows[0][0] if rows else None

    def _keep(
        self, kept: Kept, params: Sequence[Any], worker: Worker | None = None
    ) -> list[tuple[Any, ...]]:
        if not has_functions(self.using):
            return self._fetch(kept.text, params)
        params = kept.params(params)
        if worker:
            params = [*params, min(int(worker.silence.total_seconds() * 1000), MAX_MILLISECONDS)]
        return self._fetch(kept.call, params)

    def _changed(self, kept: Kept, params: Sequence[Any]) -> set[int]:
        return {pk for (pk,) in self._keep(kept, params)}

    def _call(self, kept: Kept) -> str:
        return kept.call if has_functions(self.using) else kept.text

    def _ids(self, sql: str, params: Sequence[Any]) -> set[int]:
        return {pk for (pk,) in self._fetch(sql, params)}

    def _fetch(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def _fetch_both(
        self, first: str, second: str, params: Sequence[Any], more: Sequence[Any]
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Send two statements at once; by itself PostgreSQL makes one transaction of them.

        The driver sends them one by one where the server is to bind the parameters.
        """
        connection = connections[self.using]
        if connection.settings_dict["OPTIONS"].get("server_side_binding"):
            with worker_transaction(self.using):
                return self._fetch(first, params), self._fetch(second, more)
        with connection.cursor() as cursor:
            cursor.execute(f"{first}; {second}", [*params, *more])
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            cursor.nextset()
            return rows, cursor.fetchall()

    def _execute(self, sql: str, params: Sequence[Any]) -> int:
        """Return how many rows were written."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)
            return int(cursor.rowcount)


def _batch(rows: Sequence[Any]) -> list[Any]:
    """Return the parameters of `Dialect.rows`."""
    return [json.dumps(rows), len(rows)]


def _array(ids: Iterable[int]) -> str:
    """Return an array as PostgreSQL writes it; the driver takes much longer for a list."""
    return f"{{{','.join(map(str, ids))}}}"


def _still(
    concluded: Sequence[Concluded], failed: Sequence[Failing], done: set[int]
) -> list[Concluded]:
    """Return what follows, without those that should have failed first and did not."""
    undone = {row.id for row in failed} - done
    return [row for row in concluded if row.id not in undone]


def _key(job: Job) -> tuple[int, str]:
    return job.job_type_id, job.job_key
