"""`get_job` and `get_result`: a job and its result, for the code that enqueued it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.states import ENDED, NONE, Outcome
from hipq_django.domain.validation import id_from, number_in
from hipq_django.exceptions import (
    InvalidJobError,
    JobFailedError,
    JobNotFinishedError,
    JobNotFoundError,
)
from hipq_django.job_types.current import current_job
from hipq_django.models import Job
from hipq_django.models.masking import shown
from hipq_django.models.naming import pruned
from hipq_django.sharding import routing

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""How many seconds pass between two looks at a job, at first and at most."""

MAX_TIMEOUT = 86_400.0


def get_job(job_id: Any, *, instance: str = DEFAULT) -> Job:
    """Return the job with this id, with its queue and type.

    Raise `JobNotFoundError` if the instance has no such job: it was pruned, or never existed.
    """
    pk = id_from(job_id)
    found = None
    if pk is not None:
        rows = Job.objects.using(routing.of_id(instance, pk)).select_related("queue", "job_type")
        found = rows.filter(queue__instance=instance, pk=pk).first()
    if found is None:
        raise JobNotFoundError(
            f"instance {instance!r} has no job {job_id!r:.100}: it was pruned, or never existed."
        )
    return found


def get_result(job: Job | int, timeout: float = 0, *, instance: str = DEFAULT) -> Any:
    """Return the result of a job, or of the job with an id; wait for it at most `timeout` seconds.

    Raise `JobFailedError` if it ended without success, `JobNotFinishedError` if it has not ended,
    `JobNotFoundError` if it no longer exists, and at once `InvalidJobError` if waiting could only
    hang: inside a transaction, and in a handler whose own job keeps the other from starting.
    """
    found, pauses = _first_look(job, timeout, instance)
    for pause in pauses:
        time.sleep(pause)
        found = get_job(found.pk, instance=found.queue.instance)
        if found.is_final:
            break
    return _result_of(found)


aget_job = sync_to_async(get_job)


async def aget_result(job: Job | int, timeout: float = 0, *, instance: str = DEFAULT) -> Any:
    """Do the same in async code; no thread waits between two looks."""
    found, pauses = await sync_to_async(_first_look)(job, timeout, instance)
    for pause in pauses:
        await asyncio.sleep(pause)
        found = await aget_job(found.pk, instance=found.queue.instance)
        if found.is_final:
            break
    return _result_of(found)


def _first_look(job: Job | int, timeout: float, instance: str) -> tuple[Job, Iterator[float]]:
    """Return the job, and the pauses after which it may be looked at again."""
    seconds = number_in(timeout, 0, MAX_TIMEOUT)
    if seconds is None:
        raise InvalidJobError(
            f"get_result: timeout {timeout!r}: give seconds from 0 to {MAX_TIMEOUT:,.0f}."
        )
    if isinstance(job, Job) and job.pk is None:
        raise JobNotFoundError("get_result: the job was never stored; give one that is enqueued.")
    place = job.queue.instance if isinstance(job, Job) else instance
    found = get_job(job.pk if isinstance(job, Job) else job, instance=place)
    if isinstance(job, Job) and found.create_time != job.create_time:  # see `row_of`
        raise JobNotFoundError(f"get_result: {pruned(job)}")
    if found.is_final or not seconds:
        return found, iter(())
    _check_may_wait(found)
    return found, _pauses(time.monotonic() + seconds)


def _pauses(until: float) -> Iterator[float]:
    pause = FIRST_PAUSE
    while (left := until - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, LONGEST_PAUSE)


def _result_of(job: Job) -> Any:
    if not job.is_final:
        raise JobNotFinishedError(
            f"{job} ({job.job_type.name}) is {job.state} and has no result yet; ask again later, "
            "or with a longer timeout.",
            job,
        )
    if job.outcome != Outcome.SUCCEEDED:
        why = "" if job.error == NONE else f": {shown(job, job.error)}"
        raise JobFailedError(f"{job} ({job.job_type.name}) {ENDED[Outcome(job.outcome)]}{why}", job)
    return job.result


def _check_may_wait(job: Job) -> None:
    """Raise `InvalidJobError` if the job cannot end while the caller waits."""
    if connections[job.using].in_atomic_block:
        raise InvalidJobError(
            f"get_result: {job} cannot be waited for inside a transaction, which hides what "
            "workers do, and may hide the job from them; ask after the commit."
        )
    mine = current_job()
    if mine is not None:
        _check_may_wait_in_handler(mine, job)


def _check_may_wait_in_handler(mine: Job, job: Job) -> None:
    if job.hold_time is not None:
        raise InvalidJobError(
            f"get_result: {job} is held until the jobs before it have ended, and {mine} would keep "
            f"its place while it waits for that; {_FOLLOW}"
        )
    if mine.queue_id == job.queue_id and job.queue.is_limited:
        raise InvalidJobError(
            f"get_result: {mine} waits in queue {job.queue.name!r}, which has a limit, for {job} "
            f"of the same queue, which may never start; {_FOLLOW}"
        )


_FOLLOW = "end here, and go on in a job that follows it (after=…)."
