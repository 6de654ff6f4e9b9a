"""Everything that moves jobs, at once and in any order: no deadlock, no error, no rule broken."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.database.errors import DeclaredLostError
from hipq_django.maintenance import early_answers, recovery, reranking
from hipq_django.models import Job, Queue
from tests.concurrency.sessions import errors_of, run_together
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.invariants import RULES, Snapshot
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = [f"key-{number}" for number in range(8)]
THREADS = 4


class Actor:
    """One of those who move jobs, each on its own connection."""

    def __init__(self, seed: int, steps: int) -> None:
        self.count = steps
        self.random = random.Random(seed)
        self.worker: HandWorker

    def run(self) -> None:
        """Take steps at random; an error that a user may expect is none."""
        self.worker = HandWorker(threads=5)
        for _ in range(self.count):
            step: Callable[[], Any] = self.random.choice(self.steps())
            try:
                step()
            except (hipq.DuplicateJobKeyError, hipq.InvalidJobError):
                continue
            except DeclaredLostError:  # on a busy machine three beats are over soon
                self.worker = HandWorker(threads=5)

    def steps(self) -> list[Callable[[], Any]]:
        """Return what may be done, the usual things more often."""
        key, config = self.random.choice(KEYS), get_instance()
        conflict: Any = self.random.choice(["raise", "return", "replace"])
        return [
            *[lambda: hipq.enqueue("charge", job_key=key, on_conflict=conflict)] * 3,
            *[self.worker.work] * 3,
            *[lambda: hipq.complete("charge", key, response=self.random.random())] * 2,
            lambda: hipq.fail("charge", key, error="declined"),
            lambda: hipq.enqueue_many([hipq.NewJob("charge", job_key=k) for k in sorted(KEYS)]),
            lambda: hipq.cancel(self._any_job()),
            lambda: hipq.run_now(self._any_job()),
            lambda: hipq.requeue(self._any_job()),
            lambda: recovery.time_out_overdue(config),
            lambda: recovery.recover_lost(config),
            lambda: early_answers.match_early(config),
            lambda: self._rank_again(config),
        ]

    def _rank_again(self, config: InstanceSettings) -> None:
        Queue.objects.update(ranking={})
        reranking.continue_ranking(config)

    def _any_job(self) -> Job:
        job = Job.objects.filter(job_key=self.random.choice(KEYS)).order_by("-pk").first()
        if job is None:
            raise hipq.InvalidJobError("there is none yet")
        return job


@pytest.mark.parametrize(
    ("seed", "steps"),
    [(1, 40), *(pytest.param(seed, 100, marks=pytest.mark.nightly) for seed in (1, 2, 3))],
)
def test_any_order_of_everything_breaks_no_rule(
    seed: int, steps: int, declare: Declare, configure_queue: ConfigureQueue
) -> None:
    configure_queue(THROTTLE_LIMIT=4)
    retry = hipq.Fixed(seconds=0, max_attempts=3)
    charge = declare("charge", retry=retry)(
        lambda job: hipq.WAIT if job.attempt % 2 else 1 / (job.pk % 3)
    )
    charge.on_response(lambda job, response: response)
    charge.enqueue()

    results = run_together(*[Actor(seed * 10 + number, steps).run for number in range(THREADS)])

    assert errors_of(results) == []
    now = Snapshot.take()
    for rule in RULES:
        rule(now)
    run_due_jobs()
    assert Job.objects.final().exists()
