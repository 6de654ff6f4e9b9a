"""Signals, sent after the commit. `sender` is the class `Job`, `job` is the job.

If a receiver raises, or has to be interrupted because it does not return, that is logged and harms
neither the job nor the worker. Without a receiver nothing is done.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.dispatch import Signal

from hipq_django import events
from hipq_django.domain.bounded_calls import DidNotReturnError, bounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hipq_django.models import Job


job_enqueued = Signal()
"""A job was created."""

job_started = Signal()
"""A worker claimed the job; its handler starts next, or the claim is released before it has."""

job_failed = Signal()
"""An attempt ended in an error; `job.state` is error, retry or final.

`exception` is what the handler raised; None if no handler raised (a timeout, a lost worker, an
error answer). If the job type has sensitive fields it is a stand-in with the masked text.
"""

job_finished = Signal()
"""The job is final; `job.outcome` says how it ended."""

finished_of_kind: dict[str, Signal] = {}
"""`job_finished` for the jobs of one kind of job type: it costs nothing for all other jobs."""


def send_after_commit(
    signal: Signal,
    jobs: Iterable[Job],
    using: str,
    raised: Mapping[int, BaseException | None] = MappingProxyType({}),
) -> None:
    """Send `signal` for each job once the current transaction is committed.

    `raised` is what handlers raised, by the ids of their jobs, for `job_failed`.
    """
    is_heard = signal.has_listeners()
    kinds = finished_of_kind if signal is job_finished else {}
    for job in jobs if is_heard or kinds else ():
        if is_heard or job.job_type.kind in kinds:
            more = {"exception": raised.get(job.pk)} if signal is job_failed else {}
            transaction.on_commit(partial(_send, signal, job, **more), using=using)


def _send(signal: Signal, job: Job, **more: Any) -> None:
    results = _called(signal, job, more)
    of_kind = finished_of_kind.get(job.job_type.kind)
    if of_kind is not None and signal is job_finished:
        results += _called(of_kind, job, {})
    for receiver, result in results:
        if isinstance(result, Exception):
            raised = job.masked(repr(result))
            events.error(
                "receiver_raised", raised, **events.fields_of(job), receiver=repr(receiver)
            )


def _called(signal: Signal, job: Job, more: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Call the receivers; if one of them does not return, the others are not called."""
    try:
        return bounded(partial(signal.send_robust, type(job), job=job, **more))
    except DidNotReturnError as error:
        sentence = f"a receiver {error}; those behind it were not called"
        events.error("receiver_hangs", sentence, **events.fields_of(job), traceback=error.traceback)
        return []
