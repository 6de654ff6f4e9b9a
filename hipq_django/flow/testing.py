"""The test kit of flows: runs nodes in the test's own process, by the real scheduler."""

from __future__ import annotations

import time

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.models import Node
from hipq_django.flow.runs import dispatching
from hipq_django.models import Job
from hipq_django.testing.running import Session, run_job

__all__ = ["drain", "due", "run_inline"]


class NotDrainedError(FlowError, TimeoutError):
    """Nodes were still running each other when the time was over."""


def due(node: Node) -> int:
    """Return how many runs of a node are due: 0 or 1."""
    dispatching.dispatch(get_instance(node.instance))
    rows = Job.objects.using(node.using).live().filter(job_type__kind="flow.component")
    own = rows.filter(job_data__node=node.pk, scheduled_run_time__lte=clock.now(node.using))
    return own.count()


def drain(*, timeout: float = 5, errors: bool = True, instance: str = DEFAULT) -> int:
    """Run all nodes that have something to do, and jobs that are due, until none has.

    Return how many runs and jobs there were. What code raised is raised at the end, unless
    `errors` is False. Raise `NotDrainedError` if that takes more seconds than `timeout`.
    """
    ends = time.monotonic() + timeout
    with Session(instance=instance, raise_errors=errors) as session:
        session.until = ends
        session.run_due()
    if time.monotonic() >= ends:
        raise NotDrainedError(
            f"drain: nodes still had something to do after {timeout:g} seconds; does a ring of "
            "them never end?"
        )
    return session.runner.ran


def run_inline(node: Node, *, errors: bool = True, queue: bool = True) -> Node:
    """Run a node once; with `queue=False` only if something has woken it. Return it."""
    config = get_instance(node.instance)
    if queue:
        node.run(force=True)
    dispatching.dispatch(config)
    row = Node.objects.using(node.using).get(pk=node.pk)
    if row.job_id is None:
        return node
    job = Job.objects.using(node.using).select_related("queue", "job_type").get(pk=row.job_id)
    run_job(job, raise_errors=errors)
    return node
