"""The test kit of flows: runs nodes in the test's own process, by the real scheduler."""

from __future__ import annotations

from asgiref.sync import sync_to_async

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.flow.models import Node
from hipq_django.flow.models.node import deleted
from hipq_django.flow.runs import dispatching
from hipq_django.models import Job
from hipq_django.testing.running import NotDrainedError, Session, run_job

__all__ = ["NotDrainedError", "adrain", "adue", "arun_inline", "drain", "due", "run_inline"]


def due(node: Node) -> int:
    """Return how many runs of a node are due: 0 or 1."""
    if not node.exists():
        raise deleted(node)
    dispatching.dispatch(get_instance(node.instance))
    rows = Job.objects.using(node.using).live().filter(job_type__kind="flow.component")
    own = rows.filter(job_data__node=node.pk, scheduled_run_time__lte=clock.now(node.using))
    return own.count()


def drain(*, timeout: float = 5, errors: bool = True, instance: str = DEFAULT) -> int:
    """Run all nodes that have something to do, and jobs that are due, until none has.

    Return how many runs and jobs there were. What code raised is raised at the end, unless
    `errors` is False. Raise `hipq_django.testing.NotDrainedError` if that takes more seconds than
    `timeout`.
    """
    session = Session(instance=instance, raise_errors=errors, timeout=timeout)
    with session:
        session.run_due()
    return session.runner.ran


def run_inline(node: Node, *, errors: bool = True, queue: bool = True) -> Node:
    """Run a node once; with `queue=False` only if something has woken it. Return it."""
    job = _job_of(node, queue=queue)
    if job is not None:
        run_job(job, raise_errors=errors)
    return node


def _job_of(node: Node, *, queue: bool) -> Job | None:
    if queue:
        node.run(force=True)
    dispatching.dispatch(get_instance(node.instance))
    row = Node.objects.using(node.using).row_of(node).first()
    if row is None:
        raise deleted(node)
    jobs = Job.objects.using(node.using).select_related("queue", "job_type")
    return None if row.job_id is None else jobs.get(pk=row.job_id)


adrain = sync_to_async(drain)
adue = sync_to_async(due)
arun_inline = sync_to_async(run_inline)
