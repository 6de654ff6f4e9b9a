"""Signals, sent after the commit. `sender` is the class `Job`, `job` is the job.

If a receiver raises anything, that is logged and harms neither the job nor the worker. Without a
receiver nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.dispatch import Signal

from hipq_django import events
from hipq_django.domain.redaction import as_shown
from hipq_django.domain.serialization import error_of, repr_of
from hipq_django.domain.tracebacks import places_of
from hipq_django.extensions import hearers_of_ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hipq_django.models import Job


job_enqueued = Signal()
"""A job was created."""

job_started = Signal()
"""A worker claimed the job; its handler starts next, or the claim is released before it has."""

job_failed = Signal()
"""An attempt ended in an error; `job.state` is error, retry or final.

`exception` is what the handler raised; None if no handler raised (a timeout, a lost worker, an
error answer). If the job type has sensitive fields it is one of that name with the masked text, and
`job.error` is masked, here and in `job_finished`.
"""

job_finished = Signal()
"""The job is final; `job.outcome` says how it ended."""


def send_after_commit(
    signal: Signal,
    jobs: Iterable[Job],
    using: str,
    raised: Mapping[int, BaseException | None] = MappingProxyType({}),
) -> None:
    """Send `signal` for each job once the current transaction is committed.

    `raised` is what handlers raised, by the ids of their jobs, for `job_failed`.
    """
    if signal is job_finished and hearers_of_ends():
        jobs = list(jobs)
        tell_after_commit(jobs, using)
    for job in jobs if signal.receivers else ():
        more = {"exception": raised.get(job.pk)} if signal is job_failed else {}
        transaction.on_commit(partial(send, signal, job, **more), using=using)


def tell_after_commit(jobs: Sequence[Job], using: str) -> None:
    """Tell of the ends of jobs, once the current transaction is committed, by their kinds."""
    types = {job.job_type_id: job for job in jobs}
    for kind, tell in hearers_of_ends().items():
        own = {pk for pk, job in types.items() if job.job_type.kind == kind}
        if own:
            ended = [job for job in jobs if job.job_type_id in own]
            transaction.on_commit(partial(tell, ended, using), using=using)


_around: Callable[[str], AbstractContextManager[object]] = nullcontext


def call_receivers_in(around: Callable[[str], AbstractContextManager[object]]) -> None:
    """Let receivers be called inside of `around(using)`; it must not raise."""
    global _around  # noqa: PLW0603 - a process has one kind of connections
    _around = around


def send(signal: Signal, job: Job, **more: Any) -> None:
    """Call the receivers of a signal; what they do harms nobody else."""
    with _around(job.using):
        called = _called(signal, *_shown(job, more))
    for receiver, result in called:
        if isinstance(result, Exception):
            by = repr_of(receiver)
            events.error("receiver_raised", error_of(result), row=job, receiver=by)


def _shown(job: Job, more: Mapping[str, Any]) -> tuple[Job, Mapping[str, Any]]:
    """Return what receivers are given: they may send errors on, to a tracker or by mail."""
    if not job.job_type.sensitive_fields:
        return job, more
    job = copy(job)
    job.error = as_shown(job, job.error)
    return job, {name: as_shown(job, raised) for name, raised in more.items()}


def _called(signal: Signal, job: Job, more: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Call the receivers; if one of them exits, the others are not called."""
    try:
        return signal.send_robust(type(job), job=job, **more)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in a receiver ends no worker
        sentence = f"a receiver raised {error_of(error)}; those behind it were not called"
        events.error("receiver_raised", sentence, row=job, traceback=places_of(error))
    return []
