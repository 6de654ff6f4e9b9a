"""Steps: what a handler does once, however often its job is tried."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from hipq_django.api.attempts import lock_attempt
from hipq_django.database import clock
from hipq_django.database.transactions import bound_silence, bounded_transaction
from hipq_django.domain.validation import checked_result
from hipq_django.exceptions import InvalidJobError
from hipq_django.models import Job, Step
from hipq_django.models.step import MAX_STEP_CHARS

Call = Callable[[], Any]


def step(job: Job, name: str, call: Call, *, atomic: bool) -> Any:
    """Do what `Job.step` says."""
    found = _stored(job, _checked_name(name))
    if found is not None:
        return found.result
    if not atomic:
        return _store(job, name, call())
    is_outermost = not connections[job.using].in_atomic_block
    with transaction.atomic(using=job.using):
        result = call()
        if is_outermost:  # not before: the function may take its time
            bound_silence(job.using)
        return _store(job, name, result, is_first=True)


async def astep(job: Job, name: str, call: Call, *, atomic: bool) -> Any:
    """Do what `Job.astep` says."""
    if atomic:
        return await sync_to_async(step)(job, name, call, atomic=True)
    found = await sync_to_async(_stored)(job, _checked_name(name))
    if found is not None:
        return found.result
    function = getattr(call, "func", call)
    is_async = inspect.iscoroutinefunction(function)
    value = call() if is_async else await sync_to_async(call)()
    if inspect.isawaitable(value):  # a task of hipq, or a lambda, may call an `async def`, too
        value = await value
    return await sync_to_async(_store)(job, name, value)


def _checked_name(name: object) -> str:
    usable = isinstance(name, str) and 0 < len(name) <= MAX_STEP_CHARS
    if usable and name.isprintable():  # type: ignore[attr-defined]  # it is text
        return str.__str__(name)
    raise InvalidJobError(
        f"step {name!r:.250}: give a name of 1 to {MAX_STEP_CHARS} printable characters."
    )


def _stored(job: Job, name: str) -> Step | None:
    return Step.objects.using(job.using).filter(job=job.pk, name=name).first()


def _store(job: Job, name: str, value: Any, *, is_first: bool = False) -> Any:
    """Store the result of a step, for a running attempt; return it as later attempts will get it.

    If another thread of the attempt has stored the step meanwhile, that counts; where this one
    has to be the first, raise `InvalidJobError`.
    """
    result, _ = checked_result(f"step {name!r}", value)
    with bounded_transaction(job.using):
        row = lock_attempt(job, f"step {name!r}")
        found = _stored(row, name)
        if found is not None and is_first:
            raise InvalidJobError(
                f"step {name!r} of {row} was called twice at the same time; what this call has "
                "written is undone."
            )
        if found is not None:
            return found.result
        now = clock.now(job.using)
        Step(job=row, name=name, result=result, attempt=row.attempt, create_time=now).save(
            using=job.using, force_insert=True
        )
    return result
