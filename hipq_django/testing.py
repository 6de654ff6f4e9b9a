"""For the tests of projects: run the real scheduler in the test's own process and transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.domain.states import Phase
from hipq_django.maintenance import early_answers, recovery, reranking
from hipq_django.models import Job, Worker, catalog
from hipq_django.scheduler.batch import BatchScheduler
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.scheduler.executor import execute
from hipq_django.transitions.values import Claim

__all__ = ["assert_enqueued", "run_due_jobs"]


HEARTBEAT_SECONDS = 86_400
"""There is no heartbeat, and a debugger may hold the test, and its transaction, for long."""

# A test may freeze the time, and the database's goes on. What happens in the test happens here.
clock.follow_process()


class _InlineExecutor:
    """Runs each claim at once, in the caller's thread and on its connection."""

    backlog = 0

    def __init__(self) -> None:
        self.ran = 0
        self.batch = CurrentBatch()

    def free_slots(self) -> int:
        return 1

    def prefetch_slots(self) -> int:
        return 0

    def start(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.ran += claim.phase is not Phase.DECISION
            self.batch.deliver(execute(claim))

    def executing(self) -> list[Claim]:
        return []

    def release_stale(self) -> None:
        """Nothing waits for a thread."""


def run_due_jobs(*queues: str, instance: str = DEFAULT) -> int:
    """Run all due jobs, and what becomes due by that, until idle; return how many handlers ran.

    The real scheduler runs in this process, one job at a time, with its order, limits, throttlers
    and windows; jobs past their timeout time out. It works inside `TestCase`. Jobs in the future,
    held back, or waiting for an answer stay as they are.
    """
    catalog.sync(instance)
    config = get_instance(instance)
    worker = Worker.objects.using(config.database).create(
        instance=instance,
        name="run_due_jobs",
        heartbeat_seconds=HEARTBEAT_SECONDS,
        queues=list(queues),
        heartbeat_time=clock.now(config.database),
    )
    executor = _InlineExecutor()
    scheduler = BatchScheduler(worker, executor)
    try:
        while not _is_idle(scheduler, config):
            pass
    finally:
        _deregister(worker)
    return executor.ran


def _deregister(worker: Worker) -> None:
    """Delete the worker's row; an error may have left jobs to it, then it stays."""
    worker.state = Worker.State.STOPPED
    worker.save(using=worker.using, update_fields=["state"])
    if not worker.jobs.exists():
        worker.delete(using=worker.using)


def _is_idle(scheduler: BatchScheduler, config: InstanceSettings) -> bool:
    """Do one pass; return whether it found nothing to do."""
    kept_up = recovery.time_out_overdue(config) + early_answers.match_early(config)
    kept_up += reranking.continue_ranking(config)
    scheduler.run_once()
    return not kept_up and scheduler.found_nothing


def assert_enqueued(job_type: str, *, instance: str = DEFAULT, **values: Any) -> Job:
    """Return the one live job of this type with these field values; fail unless there is one.

    `assert_enqueued("charge_card", job_key="order-42", priority=10)`
    """
    jobs = Job.objects.using(get_instance(instance).database).live()
    jobs = jobs.filter(job_type__name=job_type, job_type__instance=instance)
    found = list(jobs.filter(**values)[:2])
    if len(found) == 1:
        return found[0]
    wanted = ", ".join([repr(job_type), *(f"{k}={v!r}" for k, v in values.items())])
    there = [f"{job} {job.masked(job.job_data)}" for job in jobs[:10]] or ["none"]
    count = "more than one job" if found else "no job"
    raise AssertionError(
        f"{count} enqueued with {wanted}; live jobs of the type: {'; '.join(there)}"
    )
