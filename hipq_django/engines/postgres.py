"""PostgreSQL: hot statements are functions of the database, and nothing waits for a lock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from math import inf
from operator import attrgetter, itemgetter
from typing import Any

from django.db import connections

from hipq_django.database import notify
from hipq_django.database.errors import LockedRowError, telling_locks
from hipq_django.database.transactions import MAX_MILLISECONDS, worker_transaction
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.serialization import encode_json
from hipq_django.engines import statements
from hipq_django.engines.dialects import POSTGRESQL
from hipq_django.engines.functions import ServerFunction, has_functions
from hipq_django.engines.rows import (
    CONSTANT_COLUMNS,
    EXTRA_COLUMNS,
    JOB_COLUMNS,
    document_row,
    extra_row,
    extra_values,
    has_extra,
    is_same,
    keys_of,
    mark_stored,
    plain_row,
    raw_values,
    shared_row,
    shared_values,
    type_of,
)
from hipq_django.engines.settling import (
    BY_ATTEMPT,
    BY_KEYS,
    SETTLE_BY_ATTEMPT,
    SETTLE_BY_KEY,
    update_statement,
    with_answers,
)
from hipq_django.engines.sql import Row, SqlEngine, T, array, batch, by_id, still
from hipq_django.engines.values import (
    ClaimRequest,
    Concluded,
    Failing,
    Finished,
    SettledJob,
)
from hipq_django.models import Job, Queue, Worker

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CONTENDED_SECONDS = 1.0
"""How long rows are locked before they are written, after one was found locked."""

LINES_PER_WRITE = 50
"""So few that a write ends before the server has read it; meanwhile the next lines are made."""

_COPY = f"COPY hipq_job (id, {', '.join([*JOB_COLUMNS, *CONSTANT_COLUMNS])}) FROM STDIN"
_COPY_WITH_EXTRA = _COPY.replace(")", f", {', '.join(EXTRA_COLUMNS)})")
_SAME_IN_COPY = "\t".join(CONSTANT_COLUMNS.values())

_key = attrgetter("job_type_id", "job_key")

_contended: dict[str, float] = {}
"""When a row was last found locked, by database alias."""


class PostgresEngine(SqlEngine):
    """The statements for PostgreSQL, each one round trip."""

    dialect = POSTGRESQL

    @property
    def claims_in_sql(self) -> bool:  # type: ignore[override]  # nobody sets it
        return has_functions(self.using)

    def _read_moment(self, value: Any) -> datetime:
        return _EPOCH + timedelta(microseconds=value)

    def lock_unchanged(self, jobs: Sequence[Job]) -> list[Job]:
        if not jobs:
            return []
        rows = self._fetch(statements.lock_jobs(self.dialect), [array(job.id for job in jobs)])
        now = {job.id: job for job in self._read_jobs(rows, [jobs[0].queue])}
        return [now[job.id] for job in jobs if job.id in now and is_same(job, now[job.id])]

    def claim_due(
        self, queues: Sequence[Queue], worker: Worker, now: datetime, wanted: ClaimRequest
    ) -> list[Job]:
        moment = self._moment(now)
        ids, lows, highs, _ = zip(*(self._due_params(queue, now) for queue in queues), strict=True)
        arrays = map(array, (ids, lows, highs, wanted.types))
        places = [*arrays, moment, wanted.limit, wanted.limit]
        params = [*places, worker.id, worker.id, moment, moment, wanted.room, worker.id]
        rows = self._fetch(statements.claim_due(self.dialect).call, params)
        return self._in_order(rows, queues)

    def finish_and_claim(
        self,
        done: Sequence[Finished],
        queue: Queue,
        worker: Worker,
        now: datetime,
        wanted: ClaimRequest,
    ) -> tuple[set[int], list[Job]]:
        moment, place = self._moment(now), self._due_params(queue, now)
        fitting = [array(wanted.types), *place, wanted.limit, queue.id, *place]
        claim = statements.claim_fitting(self.dialect).call
        params = [*fitting, worker.id, worker.id, moment, moment, wanted.room, worker.id]
        if not done:
            return set(), self._in_order(self._fetch(claim, params), [queue])

        def write(jobs: Sequence[Finished]) -> tuple[set[int], list[Job]]:
            finish = statements.finish(self.dialect).call
            before = self._finish_params(jobs, worker, now)
            finished, rows = self._fetch_both(finish, claim, before, params)
            return {pk for (pk,) in finished}, self._in_order(rows, [queue])

        return self._pass_over_locked(done, write)

    def finish(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> set[int]:
        """Do it by one statement also inside a transaction, unless others have locked a row."""
        if jobs and connections[self.using].in_atomic_block and has_functions(self.using):
            params = self._finish_params(jobs, worker, now)
            ids = self._fetch_beside(_finish_if_free(), [params[0], len(jobs), *params])
            if ids:
                return {pk for (pk,) in ids}
        return super().finish(jobs, worker, now)

    def _finish_params(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> list[Any]:
        # Without any, where all rows are locked.
        rows = zip(*sorted(jobs), strict=True) if jobs else [()] * 4
        ids, attempts, results, are_requests = rows
        columns = [array(ids), array(attempts), json.dumps(results), array(are_requests)]
        return [*columns, len(ids), self._moment(now), worker.id]

    def claim(self, jobs: Sequence[Job], worker: Worker, now: datetime) -> int:
        moment = self._moment(now)
        at_once = array(job.id for job in jobs if not job.prefetched)
        ids = array(job.id for job in jobs)
        params = [worker.id, worker.id, moment, moment, at_once, ids, worker.id]
        return len(self._call(statements.claim(self.dialect), params))

    def _fail(
        self, failed: Sequence[Failing], follows: Sequence[Concluded], worker: Worker, now: datetime
    ) -> set[int]:
        if not failed:
            return self._conclude(follows, worker, now)
        fail, params = statements.fail(self.dialect), self._fail_params(failed, worker, now)
        if not follows:
            return self._ids(fail, params)
        if not has_functions(self.using):
            with worker_transaction(self.using):
                done = self._ids(fail, params)
                return done | self._conclude(still(follows, failed, done), worker, now)
        document, *more = self._conclude_params(follows, worker, now)
        params = [*params, document, array(row.id for row in failed), *more]
        return {pk for (pk,) in self._fetch_beside(_fail_and_conclude(), params)}

    def _fail_params(self, failed: Sequence[Failing], worker: Worker, now: datetime) -> list[Any]:
        (rows, texts), moment = self._failing(failed), self._moment(now)
        return [*rows, moment, worker.id, texts, moment, worker.name]

    def _failing(self, failed: Sequence[Failing]) -> tuple[list[Any], str]:
        """Return the parameters of failed attempts, and the tracebacks whose numbers they have."""
        encode, text_of = self.dialect.encode_json, self._moments()
        classes = {row.classes: encode(row.classes) for row in failed}
        texts: dict[str, int] = {}
        rows = [
            (
                *row[:6], encode(row.error), classes[row.classes],
                texts.setdefault(row.traceback, len(texts)), text_of(row.start_time), row.failures,
            )
            for row in sorted(failed, key=by_id)
        ]  # fmt: skip
        return batch(rows), json.dumps(list(texts))

    def _pass_over_locked(self, jobs: Sequence[Row], write: Callable[[Sequence[Row]], T]) -> T:
        """Write rows, without waiting for those that others have locked.

        Usually no row is locked: then this costs nothing. If some were locked a moment ago, and
        inside a transaction, which may not fail, the free rows are locked first.
        """
        if self._may_try():
            try:
                with telling_locks():
                    return write(jobs)
            except LockedRowError:
                _contended[self.using] = time.monotonic()
        within = connections[self.using].in_atomic_block
        with nullcontext() if within else worker_transaction(self.using):
            free = self._ids(statements.FREE, [array(job[0] for job in jobs)])
            return write([job for job in jobs if job[0] in free])

    def _may_try(self) -> bool:
        contended = time.monotonic() < _contended.get(self.using, -inf) + CONTENDED_SECONDS
        is_alone = not connections[self.using].in_atomic_block
        return is_alone and not contended and has_functions(self.using)

    def settle(
        self,
        messages: Sequence[IncomingAnswer],
        now: datetime,
        *,
        handled: bool,
        job_id: int | None = None,
    ) -> list[SettledJob]:
        settled = self._settle(messages, now, handled=handled, job_id=job_id)
        self.wake_workers(messages[0].instance, {job.queue_id for job in settled})
        return settled

    def _settle(
        self,
        messages: Sequence[IncomingAnswer],
        now: datetime,
        *,
        handled: bool,
        job_id: int | None,
    ) -> list[SettledJob]:
        first, moment = messages[0], self._moment(now)
        place = [first.instance, first.job_type] if job_id is None else [job_id, first.attempt]
        same = [first.instance, first.job_type, moment]
        if len(messages) == 1:
            one = SETTLE_BY_KEY if job_id is None else SETTLE_BY_ATTEMPT
            response = [first.job_key, first.message_id, first.payload, handled]
            settled = self._call_for_value(one, [moment, *response, *place, *same])
            return [SettledJob(*json.loads(settled))] if settled else []
        update = update_statement(self.dialect, BY_KEYS if job_id is None else BY_ATTEMPT)
        params = [moment, *self._response_params(messages, handled=handled), *place]
        return [SettledJob(*row) for row in self._fetch(with_answers(update), [*params, *same])]

    def wake_workers(self, instance: str, queues: Iterable[int]) -> None:
        notify.wake_workers(instance, queues, self.using)

    def lock_jobs_by_key(self, instance: str, keys: Iterable[tuple[str, str]]) -> None:
        """Plan: as `settle`, then a sort of what was found."""
        self._fetch(statements.lock_keys(self.dialect), [*batch(list(keys)), instance])

    def insert_one(self, job: Job) -> bool:
        versions = type_of(job).versions
        if not versions:
            return super().insert_one(job)
        text_of = self._moments()
        values, statement = plain_row(job, text_of), statements.INSERT_IF_UNCHANGED
        if has_extra(job):
            values += extra_row(job, text_of)
            statement = statements.INSERT_WITH_EXTRA_IF_UNCHANGED
        return self._note_id(job, self._call(statement, [*values, *versions]))

    def insert(
        self, jobs: Iterable[Job], count: int, *, by_key: bool, extra: bool = False
    ) -> list[Job]:
        """One COPY; the ids are reserved first, because several may write at once.

        The server reads while the client still writes.
        """
        inserted: list[Job] = []
        connection = connections[self.using]
        [(reserved,)] = self._fetch(statements.RESERVE_IDS, [count])
        numbered: Iterable[Job] = _numbered(jobs, reserved or (), inserted)
        in_order = iter(sorted(numbered, key=keys_of if extra else _key) if by_key else numbered)
        lines = _lines(in_order, self._moments(), extra=extra)
        # What the driver raises in the middle of a COPY becomes Django's error too.
        with (
            connection.wrap_database_errors,
            connection.cursor() as cursor,
            cursor.copy(_COPY_WITH_EXTRA if extra else _COPY) as copy,
        ):
            while chunk := "".join(islice(lines, LINES_PER_WRITE)):
                copy.write(chunk)
        for job in inserted:
            mark_stored(job)
        return inserted

    def insert_free(self, jobs: Sequence[Job]) -> None:
        """One statement; the ids are reserved first, and say which jobs were inserted."""
        [(reserved,)] = self._fetch(statements.RESERVE_IDS, [len(jobs)])
        text_of = self._moments()
        rows = [
            (keys_of(job), [*document_row(job, text_of), *extra_row(job, text_of), pk])
            for job, pk in zip(jobs, reserved, strict=True)
        ]
        document = [row for _, row in sorted(rows, key=itemgetter(0))]
        ids = {pk for pk, *_ in self._insert_free(document)}
        for job, pk in zip(jobs, reserved, strict=True):
            self._note_id(job, [(pk,)] if pk in ids else [])

    def _text_of(self) -> Callable[[datetime], str]:
        """A text with its offset is read in any time zone."""
        return str

    def _call_for_value(self, function: ServerFunction, params: Sequence[Any]) -> Any:
        """Return the value of a function that returns one; None if there is no row."""
        rows = self._call(function, params)
        return rows[0][0] if rows else None

    def _call(
        self, function: ServerFunction, params: Sequence[Any], worker: Worker | None = None
    ) -> list[tuple[Any, ...]]:
        if not has_functions(self.using):
            return self._fetch(function.text, function.text_params(params))
        params = function.params(params)
        if worker:
            params = [*params, min(int(worker.silence.total_seconds() * 1000), MAX_MILLISECONDS)]
        return self._fetch(function.call, params)

    def _ids(self, function: ServerFunction, params: Sequence[Any]) -> set[int]:
        if has_functions(self.using):
            return {pk for (pk,) in self._fetch_beside(function.call, params)}
        return super()._ids(function, params)

    def _fetch_beside(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Send the parameters beside the call of a function, not in it.

        Otherwise a large document would be quoted here and parsed there, which takes longer than
        writing its rows.
        """
        from django.db.backends.postgresql.base import ServerBindingCursor

        connection = connections[self.using]
        connection.ensure_connection()
        driver = connection.connection
        usual, driver.cursor_factory = driver.cursor_factory, ServerBindingCursor
        try:
            cursor = connection.cursor()
        finally:
            driver.cursor_factory = usual
        with cursor:
            cursor.execute(sql, params)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def _fetch_both(
        self, first: str, second: str, params: Sequence[Any], more: Sequence[Any]
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Send two statements at once; PostgreSQL runs them in one transaction.

        With server-side binding the driver sends them one by one.
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


@cache
def _finish_if_free() -> str:
    """Return the statement that finishes jobs if all of them are free, or none.

    The second function is given the ids by the first one, so that it is called after it.
    """
    free, finish = statements.FREE, statements.finish(POSTGRESQL)
    more = ", ".join(["%s"] * (len(finish.types) - 1))
    return f"""
        SELECT f.id FROM (SELECT count(*) AS n FROM {free.function}(%s)) AS free,
            LATERAL {finish.function}(CASE WHEN free.n = %s THEN %s::bigint[] END, {more}) AS f"""  # noqa: S608 - names of functions


@cache
def _fail_and_conclude() -> str:
    """Return the statement that writes failures and, like `still`, what follows.

    The second function needs what the first one has returned, so that it is called after it, and
    sees what that has written.
    """
    fail, conclude = statements.fail(POSTGRESQL), statements.conclude(POSTGRESQL)
    more = ", ".join(["%s"] * (len(conclude.types) - 1))
    return f"""
        WITH done AS MATERIALIZED ({fail.call})
        SELECT id FROM done
        UNION ALL
        SELECT c.id FROM {conclude.function}((
            SELECT jsonb_agg(r) FROM jsonb_array_elements(%s::jsonb) AS r
            WHERE (r ->> 0)::bigint IN (SELECT id FROM done)
                OR (r ->> 0)::bigint <> ALL (%s::bigint[])
        ), {more}) AS c"""  # noqa: S608 - names of functions


def _numbered(jobs: Iterable[Job], ids: Sequence[int], inserted: list[Job]) -> Iterator[Job]:
    """Yield the jobs one by one, each with its id, and note them down in their order."""
    for job, pk in zip(jobs, ids, strict=True):
        job.id = pk
        inserted.append(job)
        yield job


def _lines(
    jobs: Iterable[Job], text_of: Callable[[datetime], str], *, extra: bool
) -> Iterator[str]:
    """Yield the lines of a COPY."""
    shared, rest, rare, more = None, "", None, ""
    for job in jobs:
        own, _ = raw_values(job)
        if (values := shared_values(own)) != shared:
            shared, rest = values, "\t".join(map(str, shared_row(job, text_of)))
        data = encode_json(job.job_data).replace("\\", "\\\\")
        key = job.job_key.replace("\\", "\\\\")
        if extra and (values := extra_values(own)) != rare:
            rare = values
            more = "".join(f"\t{_in_copy(value)}" for value in extra_row(job, text_of))
        yield f"{job.id}\t{data}\t{key}\t{rest}\t{_SAME_IN_COPY}{more}\n"


_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
"""What has a meaning in a COPY; a shard key may have any of it."""


def _in_copy(value: Any) -> str:
    return "\\N" if value is None else str(value).translate(_ESCAPED)
