"""While jobs are in their former shard, whoever names their key finds them there."""

from __future__ import annotations

from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings
from hipq_django.exceptions import DuplicateJobKeyError, InvalidJobError
from hipq_django.job_types.current import CURRENT_JOB
from hipq_django.maintenance import growing
from hipq_django.models import Job
from hipq_django.sharding.map import forget
from tests.declaring import Declare
from tests.factories import WorkerFactory

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

MOVES = "A"
"""A key that leads to the second of two shards."""


@pytest.fixture
def left(sharded: InstanceSettings) -> Job:
    """A job with this key that was there before the second shard."""
    job = hipq.enqueue("ask", job_key=MOVES)
    growing.add(sharded)
    forget()
    return job


def run(job: Job, **values: Any) -> Job:
    """Let a job wait for its answer, or be run by a worker."""
    values = {"state": "running", "attempt": 1, "worker": None, **values}
    Job.objects.using(job.using).filter(pk=job.pk).update(**values)
    job.refresh_from_db()
    return job


def test_a_live_job_with_the_key_counts_as_in_one_shard(left: Job) -> None:
    with pytest.raises(DuplicateJobKeyError) as raised:
        hipq.enqueue("ask", job_key=MOVES)
    assert raised.value.job == left

    returned = hipq.enqueue("ask", job_key=MOVES, on_conflict="return")
    assert (returned, returned.conflict) == (left, True)
    with pytest.raises(DuplicateJobKeyError):
        hipq.chain(hipq.NewJob("ask", job_key=MOVES))
    new = [hipq.NewJob("ask", job_key=key) for key in (MOVES, "order-43", MOVES)]
    with pytest.raises(DuplicateJobKeyError):
        hipq.enqueue_many(new[:1])
    many = hipq.enqueue_many(new, on_conflict="return", per_shard=True)
    assert [many[0], many[2]] == [left, left]

    replacing = hipq.enqueue("ask", job_key=MOVES, on_conflict="replace")
    left.refresh_from_db()
    assert (replacing.using, left.outcome) == ("other", "cancelled")


def test_a_running_job_is_not_replaced(left: Job) -> None:
    run(left)

    with pytest.raises(DuplicateJobKeyError):
        hipq.enqueue("ask", job_key=MOVES, on_conflict="replace")


@pytest.mark.parametrize("scope", ["live", "waiting", "kept"])
def test_a_unique_job_is_the_one_of_before(
    sharded: InstanceSettings, declare: Declare, scope: Any
) -> None:
    declare("sync", unique=scope)(print)
    before = [hipq.enqueue("sync", {"shop": number}) for number in range(6)]
    growing.add(sharded)
    forget()

    after = [hipq.enqueue("sync", {"shop": number}) for number in range(6)]

    assert after == before
    for number in range(6 if scope == "kept" else 0):
        with pytest.raises(InvalidJobError, match="is not for unique='kept'"):
            hipq.enqueue("sync", {"shop": number}, on_conflict="replace")


def test_an_answer_finds_its_job_in_both_places(left: Job) -> None:
    run(left)

    first = hipq.complete("ask", MOVES, 1, message_id="m")
    again = run(hipq.enqueue("ask", job_key=MOVES))
    repeated, second = hipq.receive_many(
        [
            hipq.NewAnswer("ask", MOVES, response=1, message_id="m"),
            hipq.NewAnswer("ask", MOVES, response=2, message_id="m-2"),
        ]
    )

    assert (first.job_id, repeated) == (left.pk, first)
    assert (again.using, second.job_id) == ("other", again.pk)
    assert hipq.complete("ask", MOVES, 3).using == "other"


def test_a_verb_finds_the_live_job_first(left: Job) -> None:
    run(left)
    assert hipq.progress("ask", MOVES, 40)
    assert hipq.cancel("ask", MOVES) == left

    again = hipq.requeue("ask", MOVES)

    assert (again.using, again.origin_id) == ("other", None)
    assert hipq.explain("ask", MOVES) == hipq.explain(again)


def test_a_requeued_job_does_not_take_the_key_of_another(left: Job) -> None:
    hipq.cancel(left)
    Job.objects.using("default").create(
        queue=left.queue, job_type=left.job_type, job_key=MOVES, rank=0
    )

    with pytest.raises(DuplicateJobKeyError):
        hipq.requeue(left)


def test_what_belongs_to_a_job_of_before_is_beside_it(sharded: InstanceSettings) -> None:
    mine = hipq.enqueue("ask", shard_key=MOVES)
    with hipq.batch(shard_key=MOVES) as batch:
        member = batch.enqueue(hipq.NewJob("ask"))
    growing.add(sharded)
    forget()
    worker = WorkerFactory.create()
    for job in (mine, member):
        run(job, worker=worker, phase="request")

    assert hipq.enqueue("ask", after=[mine], shard_key=MOVES).using == "default"
    mine.gather([hipq.NewJob("ask", shard_key=MOVES), hipq.NewJob("ask")])
    token = CURRENT_JOB.set(member)
    added = batch.enqueue(hipq.NewJob("ask", job_key="a"))
    CURRENT_JOB.reset(token)

    assert (added.using, added.shard_key) == ("default", MOVES)
    assert not Job.objects.using("other").exists()
