"""Settles waiting jobs by their responses: on PostgreSQL the usual answer is one statement."""

from __future__ import annotations

from functools import cache

from hipq_django.domain.states import State
from hipq_django.engines.dialects import Dialect, literal
from hipq_django.engines.functions import ServerFunction
from hipq_django.engines.values import SUCCEEDED


def _changes() -> str:
    """Return what a response writes: its job waits for its response handler, or has succeeded."""
    waits = {"has_pending_answer": "true"}
    done = {name: literal(value) for name, value in {"state": State.FINAL, **SUCCEEDED}.items()}
    cases = [
        f"{name} = CASE WHEN v.handled THEN {waits.get(name, f'j.{name}')} ELSE {value} END"
        for name, value in {**done, "result": "v.result"}.items()
    ]
    return ", ".join([*cases, "update_time = %s"])


_LIVE = (
    "{0}.job_type_id = (SELECT t.id FROM hipq_jobtype t WHERE t.instance = %s AND t.name = %s) "
    "AND {0}.job_key = v.job_key AND NOT ({0}.state = 'final') AND NOT ({0}.job_key = 'NONE')"
)
BY_KEY = _LIVE.format("j")
"""The live job of the instance and job type with the response's key."""
# Each key is looked up by itself: without statistics the planner would rather read all live jobs
# of the type once. The key is compared again, because a handler may replace it meanwhile.
BY_KEYS = (
    f"j.id = (SELECT k.id FROM hipq_job k WHERE {_LIVE.format('k')}) "
    "AND j.job_key || '' = v.job_key"
)
"""The same for many responses."""
BY_ATTEMPT = "j.id = %s AND j.attempt = %s"
"""The attempt of the job with this id."""

# The condition on answers is not NOT EXISTS: the planner would make a join of it, which takes
# longer to plan than to run. No answer that counts can be added while the row fulfils the first
# four. The handler of the last one is of a newer release than this process: the response is for it.
_WAITS = (
    "j.state || '' = 'running' AND j.phase = 'NONE' AND NOT j.has_pending_answer "
    "AND j.expects = '[]' AND (SELECT 1 FROM hipq_answer a WHERE a.job_id = j.id LIMIT 1) IS NULL "
    "AND (v.handled OR NOT (SELECT t.has_response_handler FROM hipq_jobtype t "
    "WHERE t.id = j.job_type_id))"
)

_COLUMNS = (
    "instance, job_type, part, kind, problem, status, receive_time, "
    "job_id, job_key, attempt, message_id, payload"
)
_SAME = "%s, %s, '', 'response', 'NONE', 'accepted', %s"


@cache
def update_statement(dialect: Dialect, place: str) -> str:
    """Return the UPDATE of the jobs that wait for one of many responses, at their `place`."""
    responses = (
        f"(SELECT {dialect.field.format(0, 'text')} AS job_key, "
        f"{dialect.field.format(1, 'text')} AS message_id, {dialect.json.format(2)} AS result, "
        f"CAST(%s AS boolean) AS handled FROM {dialect.rows})"
    )
    return _update(responses, place)


def _update(responses: str, place: str) -> str:
    return f"UPDATE hipq_job AS j SET {_changes()} FROM {responses} v WHERE {place} AND {_WAITS}"


_GIVEN = "id, job_id, job_key, attempt, (SELECT queue_id FROM hipq_job WHERE id = job_id)"


def with_answers(update: str, given: str = _GIVEN) -> str:
    """Return the UPDATE together with the INSERT of the answers.

    It returns the id of each answer, and of its job the id, key, attempt and queue.
    """
    return (
        f"WITH done AS ({update} RETURNING j.id, j.job_key, j.attempt, v.message_id, v.result) "
        f"INSERT INTO hipq_answer ({_COLUMNS}) "
        f"SELECT {_SAME}, done.* FROM done RETURNING {given}"
    )


_RESPONSE = (
    "(SELECT %s::text AS job_key, %s::text AS message_id, %s::jsonb AS result, "
    "%s::boolean AS handled)"
)


def _settle_one(name: str, place: str, *place_takes: str) -> ServerFunction:
    return ServerFunction(
        name,
        takes=(
            *("timestamptz", "text", "text", "jsonb", "boolean"),
            *place_takes,
            *("text", "text", "timestamptz"),
        ),
        gives=("jsonb",),
        text=with_answers(_update(_RESPONSE, place), f"jsonb_build_array({_GIVEN})"),
        is_single=True,
        patience=0,
    )


SETTLE_BY_KEY = _settle_one("settle_by_key", BY_KEY, "text", "text")
"""For one response. Plan: a look-up by the index of live keys."""
SETTLE_BY_ATTEMPT = _settle_one("settle_by_attempt", BY_ATTEMPT, "bigint", "integer")
"""For one response. Plan: a look-up by primary key."""


@cache
def answers_statement(dialect: Dialect) -> str:
    """Return the INSERT of the answers alone; it returns their ids and their jobs'."""
    kinds = ("bigint", "text", "integer", "text")
    fields = [dialect.field.format(index, kind) for index, kind in enumerate(kinds)]
    return (
        f"INSERT INTO hipq_answer ({_COLUMNS}) SELECT {_SAME}, {', '.join(fields)}, "
        f"{dialect.json.format(4)} FROM {dialect.rows} RETURNING id, job_id"
    )
