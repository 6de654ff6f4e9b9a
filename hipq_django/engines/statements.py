"""The SQL texts of the engines. Each says which plan it expects."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

from hipq_django.domain.ordering import HELD_RANK, MAX_RANK
from hipq_django.domain.serialization import encode_json
from hipq_django.domain.states import NONE
from hipq_django.domain.suspects import LOST, SUSPECT
from hipq_django.engines.dialects import POSTGRESQL, Dialect, assignments
from hipq_django.engines.functions import ServerFunction
from hipq_django.engines.rows import (
    ALL_COLUMNS,
    COLUMNS,
    CONSTANT_COLUMNS,
    CONSTANTS_IN_SQL,
    JOB_COLUMNS,
    MOMENTS,
    QUEUE_COLUMNS,
)
from hipq_django.engines.settling import SETTLE_BY_ATTEMPT, SETTLE_BY_KEY
from hipq_django.engines.values import CLAIMED, SUCCEEDED

IN_STATE_BY_KEY = "hipq_job.state || '' = '{}'"
"""The row is in this state, in a form that no partial index matches.

A row is looked up by its primary key. By its statistics, which a queue outruns, the planner would
rather go through all rows in the state: those of other workers, and the dead ones.
"""

UNOWNED = "worker_id = NULL, phase = 'NONE'"

FINAL = f"state = 'final', {assignments(SUCCEEDED)}, result = v.result, {UNOWNED}, update_time = %s"

CLAIMED_TYPES = ("bigint", "bigint", "timestamptz")

IS_LIVE = "(SELECT w.state IN ('running', 'stopping') FROM hipq_worker w WHERE w.id = %s)"
"""The worker was not given up: one that was claims nothing.

Plan: the primary key of workers, once for the whole statement and before anything is locked.
"""

_PUT_BACK = "Waits for another release"
"""The beginning of the error of jobs that a worker of an older version has put back."""

_LATER = "(%s::timestamptz + j.timeout * interval '1 second')"
"""The deadline of a job that is claimed at a moment."""

_QUEUE = ", ".join(f'q."{name}"' for name in QUEUE_COLUMNS)
_QUEUE_TYPES = tuple(f'"{name}" hipq_queue."{name}"%TYPE' for name in QUEUE_COLUMNS)
_JOB_TYPES = tuple(
    f"{name} bigint" if name in MOMENTS else f"{name} hipq_job.{name}%TYPE" for name in COLUMNS
)

_DUE = (
    "j.queue_id = {queue} AND j.state IN ('initial', 'retry') "
    "AND j.rank BETWEEN {low} AND {high} AND j.scheduled_run_time <= %s"
)
_DUE_HERE = _DUE.format(queue="%s", low="%s", high="%s")
_DUE_TYPES = ("bigint", "bigint", "bigint", "timestamptz")
_FIRST_CRITICAL = (
    f"(SELECT j.id FROM hipq_job j WHERE {_DUE_HERE} AND j.throttle_factor = 0 "
    "ORDER BY j.rank, j.id LIMIT 1)"
)


HUNGRY = HELD_RANK
"""In place of the first rank: only a share is missing. Due jobs have no such rank."""


@cache
def probe_queues(dialect: Dialect) -> ServerFunction:
    """Plan: for each queue one probe of three partial indexes, each stopping at a row.

    Each asks for the first row in order, not whether there is one: PostgreSQL believes that an
    EXISTS soon finds a row anywhere, and reads the table from end to end when all waiting jobs
    are of the future, or when the statistics are of a storm of errors that is over. Only one
    index has each order; a queue is asked for as a range, or the order by id would do.

    A job needs as much room as `throttling.fits` says: a heavier one than the limit needs all
    of it. In a shard the share may be used. Where jobs behind the first may start before it,
    any room will do. The last digit is for SQLite, whose sums are floats. A shard that has due
    jobs and no room for them says `HUNGRY` instead of a rank. The names are of the queues that are
    asked for, or, where the last parameter is false, of those that are not.
    """
    due = f"FROM hipq_job j WHERE {_DUE.format(queue='q.id', low='q.low', high='q.high')}"
    first = "ORDER BY j.rank, j.id LIMIT 1"
    text = f"""
        SELECT {_QUEUE}, CASE
            WHEN q.throttle_limit < 1 THEN (SELECT j.rank {due} {first})
            WHEN COALESCE((SELECT CASE
                    WHEN NOT q.is_strict OR j.time_windows <> '[]' THEN 0.001
                    WHEN j.throttle_factor > q.throttle_limit THEN q.throttle_limit
                    ELSE j.throttle_factor END {due} {first}
                ) < COALESCE(q.share, q.throttle_limit) + 0.0005 - (
                    SELECT COALESCE(SUM(j.throttle_factor), 0) FROM hipq_job j
                    WHERE j.queue_id = q.id AND j.state IN ('running')
                ), false)
                OR (SELECT j.id {due} AND j.throttle_factor = 0 {first}) IS NOT NULL
            THEN {-MAX_RANK}
            WHEN q.share IS NOT NULL THEN (SELECT {HUNGRY} {due} {first}) END AS first_rank,
            (SELECT j.id FROM hipq_job j WHERE j.queue_id BETWEEN q.id AND q.id AND
                j.state IN ('running') AND j.has_pending_answer AND j.worker_id IS NULL
                ORDER BY j.queue_id, j.id LIMIT 1) IS NOT NULL AS has_response,
            (SELECT j.id FROM hipq_job j WHERE j.queue_id BETWEEN q.id AND q.id AND
                j.state IN ('error') AND j.worker_id IS NULL
                ORDER BY j.queue_id, j.id LIMIT 1) IS NOT NULL AS has_error
        FROM (SELECT q.*, COALESCE(k.high, {MAX_RANK}) AS high,
                COALESCE(k.is_strict, false) AS is_strict,
                COALESCE(k.low, {-MAX_RANK}) AS low FROM hipq_queue q
            LEFT JOIN (SELECT {dialect.field.format(0, "bigint")} AS id,
                {dialect.field.format(1, "bigint")} AS high,
                {dialect.field.format(2, "boolean")} AS is_strict,
                {dialect.field.format(3, "bigint")} AS low FROM {dialect.rows}) k
            ON k.id = q.id) q
        WHERE q.instance = %s AND (q.name IN (SELECT * FROM {dialect.texts})) = %s
        ORDER BY q.id"""
    flags = ("first_rank bigint", "has_response boolean", "has_error boolean")
    takes = (*["timestamptz"] * 4, "jsonb", "integer", "text", "jsonb", "boolean")
    return ServerFunction("probe_queues", takes, (*_QUEUE_TYPES, *flags), text, joins_sets=True)


HAS_OVERDUE = ServerFunction(
    "has_overdue",
    is_in_order=True,
    takes=("timestamptz", "text"),
    gives=("found boolean",),
    text="""
        SELECT COUNT(*) > 0 FROM hipq_queue q WHERE (
            SELECT j.id FROM hipq_job j
            WHERE j.queue_id = q.id AND j.state IN ('running') AND j.deadline < %s
            ORDER BY j.deadline LIMIT 1
        ) IS NOT NULL AND q.instance = %s""",
)
"""Plan: for each queue one probe of the index of running jobs, stopping at a row."""

HAS_EARLY = ServerFunction(
    "has_early",
    is_in_order=True,
    takes=("text",),
    gives=("found boolean",),
    text="""
        SELECT (SELECT a.id FROM hipq_answer a
            WHERE a.status = 'early' AND a.job_id IS NULL AND a.instance = %s
            ORDER BY a.job_type, a.job_key LIMIT 1) IS NOT NULL""",
)
"""Plan: the index of early answers, stopping at a row."""


_OF_EARLY = "SELECT j.id FROM hipq_job j WHERE j.job_type_id = t.id AND j.job_key = p.job_key"
_EARLY = """
    SELECT a.job_type, a.job_key, a.id FROM hipq_answer a
    WHERE a.status = 'early' AND a.job_id IS NULL AND a.instance = %s"""
_HAS_JOB = f"""
    SELECT p.job_type, p.job_key, p.id, 1 AS has_job
    FROM page p JOIN hipq_jobtype t ON t.instance = %s AND t.name = p.job_type
    WHERE ({_OF_EARLY} AND NOT (j.state = 'final') AND NOT (j.job_key = 'NONE') LIMIT 1) IS NOT NULL
        OR ({_OF_EARLY} AND j.state IN ('final') AND NOT (j.job_key = 'NONE') LIMIT 1) IS NOT NULL
"""

EARLY_PAGE = f"""
    WITH page AS ({_EARLY} AND (a.job_type, a.job_key, a.id) > (%s, %s, %s)
        ORDER BY a.job_type, a.job_key, a.id LIMIT %s)
    {_HAS_JOB}
    UNION ALL
    SELECT * FROM (
        SELECT p.job_type, p.job_key, p.id, 0 FROM page p WHERE (SELECT COUNT(*) FROM page) = %s
        ORDER BY p.job_type DESC, p.job_key DESC, p.id DESC LIMIT 1) last
    ORDER BY 1, 2, 3, 4"""
"""Plan: the index of early answers in its own order; for each two probes of indexes of keys.

Each probe is a look-up for itself, whatever the statistics say: EXISTS may read all jobs at once.
"""

NEW_EARLY = f"""
    WITH page AS ({_EARLY} AND NOT (a.status = 'accepted') AND a.id > %s
        ORDER BY a.id DESC LIMIT %s)
    {_HAS_JOB}"""
"""Plan: the index of answers that were not accepted, from its end; then as `EARLY_PAGE`."""


@cache
def lock(dialect: Dialect) -> ServerFunction:
    """Plan: the primary key of queues."""
    text = f"SELECT {_QUEUE} FROM hipq_queue q WHERE q.id = %s {dialect.lock}"
    return ServerFunction("lock", ("bigint",), _QUEUE_TYPES, text, ends_silence=True)


NO_SUSPECT = (
    "AND NOT (j.state || '' = 'retry' "
    f"AND substr(CAST(j.error AS text), 1, {len(SUSPECT) + 1}) = '\"{SUSPECT}')"
)
"""The job is not one that may have killed its worker."""


@cache
def first_page(dialect: Dialect, conditions: str = "", *, locks: bool = True) -> ServerFunction:
    """Plan: as `due`; before it, once, the index of running jobs and a probe for critical ones.

    In one statement, because all three see the same moment: the queue is locked already.
    """
    columns = f"""
        , (SELECT SUM(j.throttle_factor) FROM hipq_job j
            WHERE j.queue_id = %s AND j.state IN ('running')) AS load
        , {_FIRST_CRITICAL} IS NOT NULL AS has_critical"""
    takes = ("bigint", *_DUE_TYPES, *_DUE_TYPES, "integer")
    gives = (*_JOB_TYPES, "load numeric", "has_critical boolean")
    text = select_due(dialect, conditions, columns, locks=locks)
    return ServerFunction("first_page", takes, gives, text)


@cache
def due(dialect: Dialect) -> ServerFunction:
    """Plan: as `select_due`; the queue's row, by primary key, is read once.

    An unlimited queue is not locked. If it was paused or limited since it was read, there is
    nothing for those who do not know that.
    """
    text = select_due(dialect, UNLIMITED)
    return ServerFunction("due", (*_DUE_TYPES, "bigint", "integer"), _JOB_TYPES, text)


_UNLIMITED = "AND (SELECT NOT u.paused AND u.throttle_limit < 1 FROM hipq_queue u WHERE u.id = {})"
UNLIMITED = _UNLIMITED.format("%s")


@cache
def claim_due(dialect: Dialect) -> ServerFunction:
    """Plan: for each queue of the arrays in turn as `due`, until there are enough; then `claim`'s.

    The outer LIMIT ends the loop over the queues, so that no row is locked in vain. A job that
    is not claimable in SQL (it has time windows, lost its worker, is of an unknown type, or has an
    early answer) is left, and all of its queue behind it are.
    """
    head = f"""
        SELECT q.turn, j.* FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[])
            WITH ORDINALITY AS q(id, low, high, turn)
        CROSS JOIN LATERAL ({_head("q.id", "q.low", "q.high")}
            {_UNLIMITED.format("q.id")}
            ORDER BY j.rank, j.id LIMIT %s {dialect.lock}) j
        LIMIT %s"""
    takes = ("bigint[]", "bigint[]", "bigint[]", *_HEAD_TYPES, "integer", *_CLAIM_TYPES)
    return ServerFunction("claim_due", takes, _JOB_TYPES, _claim_first(dialect, head, "false"))


@cache
def claim_fitting(dialect: Dialect) -> ServerFunction:
    """Plan: as `claim_due` for one queue; before it, once, what `first_page` asks of the queue.

    The first job that does not fit, by the sum of the factors up to it, is left, and all behind it
    are, as `domain.throttling.admit_by_weight` says. Not claimable in SQL are a job heavier than
    the limit, and critical ones too.
    """
    head = f"""
        SELECT 1 AS turn, j.*, SUM(throttle_factor) OVER (ORDER BY rank, id) AS sum
        FROM ({_head("%s", "%s", "%s")}
            ORDER BY j.rank, j.id LIMIT %s {dialect.lock}) j"""
    room = f"""(
        SELECT COALESCE(q.share, q.throttle_limit) - COALESCE((
            SELECT SUM(j.throttle_factor) FROM hipq_job j
            WHERE j.queue_id = q.id AND j.state IN ('running')), 0)
        FROM hipq_queue q WHERE q.id = %s AND NOT q.paused AND q.throttle_limit >= 1
            AND {_FIRST_CRITICAL} IS NULL)"""
    text = _claim_first(dialect, head, f"COALESCE(sum > {room}, true)")
    place = ("bigint", "bigint", "bigint")
    takes = ("bigint[]", *place, *_HEAD_TYPES[1:], "bigint", *_DUE_TYPES, *_CLAIM_TYPES)
    lock = f"hipq_queue q WHERE q.id = $2 {dialect.lock}"
    return ServerFunction("claim_fitting", takes, _JOB_TYPES, text, lock=lock)


_HEAD_TYPES = ("bigint[]", "timestamptz", "integer")
_CLAIM_TYPES = (*CLAIMED_TYPES, "timestamptz", "bigint", "bigint")


def _head(queue: str, low: str, high: str) -> str:
    due = _DUE.format(queue=queue, low=low, high=high)
    return f"""
        SELECT j.id, j.rank, j.throttle_factor, j.job_type_id, j.job_key,
            j.has_pending_answer OR j.time_windows <> '[]' OR j.job_type_id <> ALL (%s::bigint[])
                OR (j.state = 'retry' AND (starts_with(j.error::text, '"{LOST}')
                    OR starts_with(j.error::text, '"{_PUT_BACK}')))
                AS needs_check
        FROM hipq_job j WHERE {due}"""


def _claim_first(dialect: Dialect, head: str, misfit: str) -> str:
    """Return the claim of the jobs of `head`, up to the first of each queue that may not start.

    Early answers are asked for when the jobs are locked, by a function, which therefore sees what
    was committed before: who stores an answer has locked the job as well. Usually no job is left,
    so those that are left are sought, and the others are neither sorted nor numbered.
    """
    early = f"(SELECT found FROM {IS_EARLY.function}(job_key, job_type_id))"
    first = "SELECT id FROM places ORDER BY turn, rank, id LIMIT %s"
    is_ahead = f"j.id <> ALL (ARRAY({first}))"
    return f"""
        WITH head AS MATERIALIZED ({head}
        ), left_jobs AS MATERIALIZED (
            SELECT DISTINCT ON (turn) turn, rank, id FROM head
            WHERE {misfit} OR needs_check
                OR CASE WHEN job_key <> 'NONE' THEN {early} ELSE false END
            ORDER BY turn, rank, id
        ), places AS MATERIALIZED (
            SELECT id, turn, rank FROM head WHERE NOT EXISTS (SELECT 1 FROM left_jobs l
                WHERE l.turn = head.turn AND (l.rank, l.id) <= (head.rank, head.id))
        )
        {_claim("j.id = ANY (ARRAY(SELECT id FROM places))", _LATER, is_ahead)}
        RETURNING {_columns(dialect)}"""


IS_EARLY = ServerFunction(
    "is_early",
    patience=0,
    is_in_order=True,
    takes=("text", "bigint"),
    gives=("found boolean",),
    text="""
        SELECT (SELECT a.id FROM hipq_answer a WHERE a.status = 'early'
            AND a.job_type BETWEEN t.name AND t.name AND a.job_key BETWEEN $1 AND $1
            AND a.instance = t.instance
            ORDER BY a.job_type, a.job_key LIMIT 1) IS NOT NULL
        FROM hipq_jobtype t WHERE t.id = $2""",
)
"""Whether an answer waits for a job with a key and type. Plan: the index of early answers.

By ranges: rows that equal each other have any order, and any index would do, such as that of all
answers that were not accepted.
"""


def _claim(which: str, deadline: str, prefetched: str, rows: str = "") -> str:
    """Return the UPDATE that claims those of the waiting jobs `which` that still wait."""
    return f"""
        UPDATE hipq_job AS j SET {_CLAIMED}, worker_id = %s, last_worker_id = %s, update_time = %s,
            attempt = j.attempt + 1, deadline = {deadline}, prefetched = {prefetched}{rows}
        WHERE {which} AND j.state || '' IN ('initial', 'retry') AND {IS_LIVE}"""


_CLAIMED = assignments({**CLAIMED, "error": encode_json(NONE)})


@cache
def claim(dialect: Dialect) -> ServerFunction:
    """Plan: one look-up by primary key for each id of an array."""
    update = _claim("j.id = ANY (%s::bigint[])", _LATER, "j.id <> ALL (%s::bigint[])")
    takes = (*CLAIMED_TYPES, "timestamptz", "bigint[]", "bigint[]", "bigint")
    return ServerFunction("claim", takes, ("id bigint",), f"{update} RETURNING j.id")


@cache
def claim_rows(dialect: Dialect) -> str:
    """Plan: a nested loop over the document, one look-up by primary key for each row."""
    columns = {"id": "bigint", "deadline": "timestamptz", "prefetched": "boolean"}
    return _claim("j.id = v.id", "v.deadline", "v.prefetched", f" FROM {_rows(dialect, columns)} v")


def _write_batch(
    dialect: Dialect, rows: str, state: str, changes: str, unless: str = "false"
) -> str:
    """Return the UPDATE of a worker's jobs in one state by `rows`, which are called `v`.

    Plan: one look-up of all ids in the primary key, whatever size the tables seem to have, and a
    hash join of what it finds.
    """
    return f"""
        WITH v AS {rows}
        UPDATE hipq_job SET {changes} FROM v
        WHERE hipq_job.id = v.id {dialect.by_key} AND {IN_STATE_BY_KEY.format(state)}
            AND hipq_job.attempt = v.attempt AND hipq_job.worker_id = %s AND NOT ({unless})
        RETURNING hipq_job.id"""


def _batch_function(
    name: str,
    text: str,
    *more: str,
    takes: tuple[str, ...] = ("jsonb", "integer"),
    is_checked_late: bool = False,
) -> ServerFunction:
    return ServerFunction(
        name,
        takes=(*takes, "timestamptz", "bigint", *more),
        gives=("id bigint",),
        text=text,
        joins_sets=True,
        is_checked_late=is_checked_late,
        patience=PATIENCE,
    )


PATIENCE = 20
"""Milliseconds for a row that somebody has locked: as long as others mostly need it."""

FINISHED = {"id": "bigint", "attempt": "integer", "result": "json", "is_request": "boolean"}
"""The columns of the rows that say which jobs are done."""

_FINISHED_BY_COLUMN = """(SELECT * FROM ROWS FROM (unnest(%s::bigint[]), unnest(%s::integer[]),
        jsonb_array_elements(%s::jsonb), unnest(%s::boolean[]))
        AS v(id, attempt, result, is_request) LIMIT %s)"""
"""The same from an array for each column: PostgreSQL reads numbers there much faster than in JSON.

With the LIMIT as in `Dialect.rows`.
"""

_ANSWERED = "hipq_job.has_pending_answer AND v.is_request"
"""An answer that came while the request was sent goes first."""


@cache
def finish(dialect: Dialect) -> ServerFunction:
    """Plan: as `_write_batch`."""
    rows = _FINISHED_BY_COLUMN if dialect is POSTGRESQL else _rows(dialect, FINISHED)
    text = _write_batch(dialect, rows, "running", FINAL, _ANSWERED)
    takes = ("bigint[]", "integer[]", "jsonb", "boolean[]", "integer")
    return _batch_function("finish", text, takes=takes)


@cache
def park(dialect: Dialect) -> ServerFunction:
    """Plan: as `_write_batch`."""
    changes = f"{UNOWNED}, expects = '[]', update_time = %s"
    columns = {"id": "bigint", "attempt": "integer"}
    rows = _rows(dialect, columns)
    return _batch_function("park", _write_batch(dialect, rows, "running", changes))


TO_ERROR = {
    "id": "bigint",
    "attempt": "integer",
    "is_request": "boolean",
    "state": "text",
    "outcome": "text",
    "is_kept": "boolean",
    "error": "json",
}
"""The columns of the rows that say which attempts failed."""

_FAILING = {
    **TO_ERROR,
    "exception_classes": "json",
    "traceback": "text",
    "start_time": "timestamptz",
    "failures": "integer",
}
"""The same with what only the history has, for a database that writes both at once."""


@cache
def to_error(dialect: Dialect) -> str:
    """Return the UPDATE of jobs whose attempts failed. Plan: as `_write_batch`."""
    return _to_error(dialect, TO_ERROR)


def _to_error(dialect: Dialect, columns: dict[str, str]) -> str:
    changes = """
            state = v.state, outcome = v.outcome, error = v.error,
            worker_id = CASE WHEN v.is_kept THEN hipq_job.worker_id END,
            phase = CASE WHEN v.is_kept THEN 'decision' ELSE 'NONE' END,
            has_pending_answer = hipq_job.has_pending_answer AND v.state = 'error',
            update_time = %s"""
    return _write_batch(dialect, _rows(dialect, columns), "running", changes, _ANSWERED)


TO_KEPT_ERROR = {"id": "bigint", "attempt": "integer", "is_request": "boolean", "error": "json"}
"""The columns of the rows of those that all are tried again, so that their worker keeps them."""


@cache
def to_kept_error(dialect: Dialect) -> str:
    """Return what `to_error` is where all are kept. Plan: as `_write_batch`.

    For SQLite, to which each field of a row costs something, and each index of a column that is
    named. What is not named here stays as it was: the outcome is NONE before and after.
    """
    changes = "state = 'error', error = v.error, phase = 'decision', update_time = %s"
    rows = _rows(dialect, TO_KEPT_ERROR)
    return _write_batch(dialect, rows, "running", changes, _ANSWERED)


_NEW_ATTEMPT = """
        INSERT INTO hipq_attempt (job_id, attempt, kind, error, exception_classes, traceback,
            start_time, end_time, worker, failures, losses, interrupted,
            lost_decisions)"""


def _failures_before(job: str, attempt: str) -> str:
    """Return how many attempts of a job failed before this one, by the last of them."""
    return f"""COALESCE((SELECT a.failures FROM hipq_attempt a
                    WHERE a.job_id = {job} AND a.attempt < {attempt}
                    ORDER BY a.attempt DESC LIMIT 1), 0)"""


_TRACEBACK = "%s::jsonb ->> traceback::integer"
_ATTEMPTS = f"""{_NEW_ATTEMPT}
        SELECT id, attempt, 'raised', error, exception_classes, {_TRACEBACK}, start_time, %s, %s,
            CASE WHEN failures > 0 THEN failures WHEN attempt = 1 THEN 1
                ELSE 1 + {_failures_before("failed.id", "failed.attempt")} END, 0, 0, 0
        FROM failed failed WHERE true
        ON CONFLICT DO NOTHING"""
"""The rows `failed`, as entries of the history of their jobs.

Plan: for each that had an attempt before, and is not counted yet, a look-up of the last one by
index.
"""

ATTEMPT = f"""{_NEW_ATTEMPT}
    VALUES (%s, %s, 'raised', %s, %s, %s, %s, %s, %s,
        COALESCE(%s, 1 + {_failures_before("%s", "%s")}), 0, 0, 0)
    ON CONFLICT DO NOTHING"""
"""One row, executed for each of many: SQLite takes more than twice as long to read a document.

Of values, not of a SELECT: for a SELECT that asks the same table SQLite makes another table, for
each row anew. Plan: where the failures are not counted yet, a look-up as above.
"""


@cache
def fail(dialect: Dialect) -> ServerFunction:
    """Write failures and their history in one statement.

    Jobs that fail together mostly fail at the same place, and its text is most of what is sent: the
    rows have the number of their traceback among those that differ.
    """
    of_history = ("attempt", "error", "exception_classes", "traceback", "start_time", "failures")
    told = ", ".join(f"v.{name}" for name in of_history)
    text = f"""
        WITH failed AS ({_to_error(dialect, _FAILING)}, {told}), noted AS ({_ATTEMPTS})
        SELECT id FROM failed"""
    more = ("jsonb", "timestamptz", "text")
    return _batch_function("fail", text, *more, is_checked_late=True)


CONCLUDED = {
    "id": "bigint",
    "attempt": "integer",
    "state": "text",
    "outcome": "text",
    "scheduled_run_time": "timestamptz",
    "rank": "bigint",
}
"""The columns of the rows that say what follows errors."""


@cache
def failures(dialect: Dialect) -> ServerFunction:
    """Plan: for each id a look-up of its last failed attempt by index."""
    text = f"""
        SELECT v.id, (SELECT a.failures FROM hipq_attempt a WHERE a.job_id = v.id
            ORDER BY a.attempt DESC LIMIT 1)
        FROM {_rows(dialect, {"id": "bigint"})} v"""
    return ServerFunction("failures", ("jsonb", "integer"), ("id bigint", "failures integer"), text)


@cache
def conclude(dialect: Dialect) -> ServerFunction:
    """Plan: as `_write_batch`."""
    changes = f"""
            state = v.state, outcome = v.outcome, {UNOWNED},
            has_pending_answer = hipq_job.has_pending_answer AND v.state = 'retry',
            update_time = %s,
            scheduled_run_time = COALESCE(v.scheduled_run_time, hipq_job.scheduled_run_time),
            rank = COALESCE(v.rank, hipq_job.rank)"""
    rows = _rows(dialect, CONCLUDED)
    return _batch_function("conclude", _write_batch(dialect, rows, "error", changes))


RETRIED = {
    "id": "bigint",
    "attempt": "integer",
    "scheduled_run_time": "timestamptz",
    "rank": "bigint",
}
"""The columns of the rows of those that all are tried again."""


@cache
def retry(dialect: Dialect) -> str:
    """Return what `conclude` is where all are tried again, with as little as `to_kept_error`."""
    changes = f"""
            state = 'retry', {UNOWNED}, update_time = %s,
            scheduled_run_time = v.scheduled_run_time, rank = v.rank"""
    return _write_batch(dialect, _rows(dialect, RETRIED), "error", changes)


def _rows(dialect: Dialect, columns: dict[str, str]) -> str:
    """Return a document of rows with these columns, as a table."""
    fields = [
        dialect.json.format(number) if kind == "json" else dialect.field.format(number, kind)
        for number, kind in enumerate(columns.values())
    ]
    named = ", ".join(f"{field} AS {name}" for field, name in zip(fields, columns, strict=True))
    return f"(SELECT {named} FROM {dialect.rows})"


FREE = ServerFunction(
    "free",
    takes=("bigint[]",),
    gives=("id bigint",),
    text="""
        SELECT j.id FROM hipq_job j WHERE j.id = ANY (%s)
        ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED""",
    patience=PATIENCE,
)
"""Locks the jobs that nobody else has locked. Plan: one look-up by primary key for each."""


_VERSIONS = {"t.xmin": "xid", "t.ctid": "tid", "q.xmin": "xid", "q.ctid": "tid"}


def _new_job(columns: Iterable[str]) -> str:
    return f"INSERT INTO hipq_job ({', '.join([*columns, *CONSTANT_COLUMNS])})"


def _insert(columns: Collection[str]) -> str:
    marks = ", ".join(["%s"] * len(columns))
    return f"{_new_job(columns)} VALUES ({marks}, {CONSTANTS_IN_SQL}) RETURNING id"


_UNLESS_TAKEN = "ON CONFLICT DO NOTHING\n        RETURNING id"
"""No row comes back if another job has the key; a transaction that is taking it is waited for."""

INSERT = _insert(JOB_COLUMNS)
"""The INSERT of the values of a new job without a key."""

INSERT_WITH_EXTRA = _insert(ALL_COLUMNS).replace("RETURNING id", _UNLESS_TAKEN)
"""The same of a job that has a key, or any of the extra columns."""


def _insert_if_unchanged(name: str, columns: dict[str, str]) -> ServerFunction:
    """Return the INSERT that inserts where the rows with given versions are the present ones.

    Else no row comes back. Plan: the two rows by their places. To ask first would be a round trip.
    """
    text = f"""
        {_new_job(columns)} SELECT {", ".join(f"%s::{k}" for k in columns.values())},
            {CONSTANTS_IN_SQL}
        FROM (SELECT 1 FROM hipq_jobtype t, hipq_queue q
        WHERE {" AND ".join(f"{version} = %s" for version in _VERSIONS)}{{}}) unchanged
        {"RETURNING id" if columns is JOB_COLUMNS else _UNLESS_TAKEN}"""
    return ServerFunction(
        name,
        patience=0,
        takes=(*columns.values(), *_VERSIONS.values()),
        gives=("bigint",),
        is_single=True,
        text=text.format(""),
        locking_text=text.format("\n        FOR KEY SHARE OF t, q"),
    )


INSERT_IF_UNCHANGED = _insert_if_unchanged("enqueue", JOB_COLUMNS)
INSERT_WITH_EXTRA_IF_UNCHANGED = _insert_if_unchanged("enqueue_with_extra", ALL_COLUMNS)


@cache
def insert_jobs(dialect: Dialect, *, has_extra: bool) -> str:
    """Return the INSERT of a JSON document of `document_row`s; it returns the ids.

    With `has_extra` each goes on with its `extra_row`.
    """
    return _insert_document(dialect, ALL_COLUMNS if has_extra else JOB_COLUMNS)


def _insert_document(dialect: Dialect, columns: dict[str, str]) -> str:
    fields = [dialect.field.format(index, kind) for index, kind in enumerate(columns.values())]
    return (
        f"{_new_job(columns)} SELECT {', '.join(fields)}, {CONSTANTS_IN_SQL} "
        f"FROM {dialect.rows} RETURNING id"
    )


@cache
def insert_free(dialect: Dialect) -> str:
    """Return the same without the jobs whose key another job has; it returns the keys, too.

    On PostgreSQL it is given the ids of the jobs, which are inserted in the order of their keys.
    """
    columns = ALL_COLUMNS | ({"id": "bigint"} if dialect is POSTGRESQL else {})
    # SQLite would read ON as that of a join.
    end = f"WHERE true {_UNLESS_TAKEN}, job_type_id, job_key, waiting_key, kept_key"
    return _insert_document(dialect, columns).replace("RETURNING id", end)


RUN_COLUMNS = {
    "schedule_id": "bigint",
    "due_time": "timestamptz",
    "kind": "text",
    "until": "timestamptz",
    "count": "integer",
    "reason": "text",
    "job_id": "bigint",
    "create_time": "timestamptz",
}
"""The columns of a new run of a schedule."""


@cache
def insert_runs(dialect: Dialect) -> str:
    """Return the INSERT of a JSON document of the runs of schedules."""
    columns = ", ".join(RUN_COLUMNS)
    return f"INSERT INTO hipq_schedulerun ({columns}) SELECT * FROM {_rows(dialect, RUN_COLUMNS)} r"


@cache
def move_on(dialect: Dialect) -> str:
    """Return the UPDATE of fired schedules. Plan: one look-up by primary key for each."""
    ids = f"SELECT {dialect.field.format(0, 'bigint')} FROM {dialect.rows}"
    return f"""
        UPDATE hipq_schedule SET next_time = %s, problem = '{NONE}', update_time = %s
        WHERE id IN ({ids})"""


# Materialized, or the catalog would be asked for the sequence once for each id.
RESERVE_IDS = """
    WITH s AS MATERIALIZED (SELECT pg_get_serial_sequence('hipq_job', 'id')::regclass AS ids)
    SELECT array_agg(nextval(s.ids)) FROM s, generate_series(1, %s)"""
"""Reserves so many ids for new jobs, as an array."""


def select_due(dialect: Dialect, conditions: str, columns: str = "", *, locks: bool = True) -> str:
    """Plan: the index of waiting jobs in its own order, no sort, stopping at the limit."""
    return f"""
        SELECT {_columns(dialect)} {columns} FROM hipq_job j
        WHERE {_DUE_HERE} {conditions}
        ORDER BY j.rank, j.id LIMIT %s {dialect.lock if locks else ""}"""


@cache
def lock_jobs(dialect: Dialect) -> str:
    """Plan: one look-up by primary key for each id of an array."""
    return f"""
        SELECT {_columns(dialect)} FROM hipq_job j
        WHERE j.id = ANY (%s::bigint[]) AND j.state || '' IN ('initial', 'retry')
        ORDER BY j.id {dialect.lock}"""


@cache
def lock_keys(dialect: Dialect) -> str:
    """Plan: as an answer that settles its job, then a sort of what was found."""
    return f"""
        SELECT 1 FROM {_rows(dialect, {"name": "text", "key": "text"})} v
        JOIN hipq_jobtype t ON t.instance = %s AND t.name = v.name
        JOIN hipq_job j ON j.job_type_id = t.id AND j.job_key = v.key
            AND NOT (j.state = 'final') AND NOT (j.job_key = 'NONE')
        ORDER BY j.id FOR NO KEY UPDATE OF j"""


def _columns(dialect: Dialect) -> str:
    """Return what is read of a waiting job."""
    return ", ".join(
        (dialect.moment if name in MOMENTS else "{0}").format(f"j.{name}") for name in COLUMNS
    )


BY_DIALECT = (
    probe_queues, lock, first_page, due, claim_due, claim_fitting, claim, finish, park, fail,
    conclude, failures
)  # fmt: skip


def server_functions() -> list[ServerFunction]:
    """Return all that are functions on PostgreSQL."""
    made = [make(POSTGRESQL) for make in BY_DIALECT]
    alone = [
        HAS_OVERDUE,
        HAS_EARLY,
        IS_EARLY,
        FREE,
        INSERT_IF_UNCHANGED,
        INSERT_WITH_EXTRA_IF_UNCHANGED,
        SETTLE_BY_KEY,
        SETTLE_BY_ATTEMPT,
    ]
    return [*made, *alone]
