"""Jobs that are enqueued together: many, chains, batches, and those that a job gathers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

import hipq_django as hipq
from hipq_django.conf.instances import on_shard
from hipq_django.exceptions import (
    DuplicateJobKeyError,
    InvalidScheduleError,
    ShardError,
    ShardsError,
)
from hipq_django.job_types.current import CURRENT_JOB
from hipq_django.models import Batch, Job
from tests.factories import WorkerFactory

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]


def new(key: str | None = None, **options: Any) -> hipq.NewJob:
    return hipq.NewJob("echo", shard_key=key, **options)


def places(jobs: Sequence[Job]) -> list[str]:
    return [job.using for job in jobs]


HERE, THERE = "tenant-7", "tenant-1"


def test_many_jobs_without_keys_join_those_with_keys(shards: None) -> None:
    assert places(hipq.enqueue_many([new(), new(THERE), new()])) == ["other"] * 3
    with transaction.atomic(using="other"):
        assert places(hipq.enqueue_many([new(), new()])) == ["other"] * 2
    assert len({*places(hipq.enqueue_many([new() for _ in range(9)]))}) == 1


def test_many_jobs_in_several_shards_are_refused(shards: None) -> None:
    with pytest.raises(ShardError) as raised:
        hipq.enqueue_many([new(THERE), new(HERE)])

    assert str(raised.value) == (
        "enqueue_many: the jobs are in shards default and other; give per_shard=True to enqueue "
        "them in a transaction for each."
    )


def test_per_shard_there_is_a_transaction_for_each(shards: None) -> None:
    jobs = hipq.enqueue_many([new(THERE), new(HERE), new(THERE), *[new()] * 4], per_shard=True)

    assert places(jobs[:3]) == ["other", "default", "other"]
    assert sorted(places(jobs[3:])) == ["default"] * 2 + ["other"] * 2
    assert [job.shard_key for job in jobs[:4]] == [THERE, HERE, THERE, None]


def test_a_shard_that_fails_leaves_the_others_committed(shards: None) -> None:
    taken = hipq.enqueue("echo", job_key="a")
    wanted = [new(job_key="a"), new(job_key="A"), new(HERE)]

    with pytest.raises(ShardsError) as raised:
        hipq.enqueue_many(wanted, per_shard=True)

    assert [job.job_key for job in raised.value.enqueued["other"]] == ["A"]
    assert isinstance(raised.value.failed["default"], DuplicateJobKeyError)
    assert ([*raised.value.enqueued], [*raised.value.failed]) == (["other"], ["default"])
    assert [*Job.objects.using("default").all()] == [taken]


def test_a_chain_is_in_one_shard(shards: None) -> None:
    jobs = hipq.chain(new(), new(job_key="a"), shard_key=THERE)

    assert [(job.using, job.shard_key) for job in jobs] == [("other", THERE)] * 2
    assert places(hipq.chain(new(), new(job_key="A"))) == ["other"] * 2
    with pytest.raises(ShardError) as raised:
        hipq.chain(new(HERE), new(THERE))
    assert str(raised.value) == (
        "chain: the jobs are in shards default and other; jobs that wait for each other need the "
        "same shard_key."
    )


def test_a_batch_says_where_its_jobs_are(shards: None) -> None:
    with hipq.batch(shard_key=THERE, then=new(job_key="a")) as batch:
        jobs = [
            batch.enqueue(new(job_key="a-1")),
            *batch.enqueue_many([new(), new(job_key="tenant-7")]),
            hipq.enqueue("echo", batch=batch),
            hipq.enqueue("echo", batch=batch.pk, job_key="order-42"),
        ]
        with pytest.raises(ShardError) as raised:
            batch.enqueue(new(HERE))

    assert batch.using == "other"
    assert str(raised.value) == (
        "enqueue 'echo': its shard is default, that of its batch other; give the batch its "
        "shard_key."
    )
    members = Job.objects.using("other").order_by("pk")
    assert [(job.shard_key, job.batch_id) for job in members] == [
        *[(THERE, batch.pk)] * 5,
        (THERE, None),
    ]
    assert [*members[:5]] == jobs
    assert hipq.cancel_batch(batch.pk) == 6


def test_a_batch_without_a_key_takes_jobs_whose_keys_agree(shards: None) -> None:
    with transaction.atomic(using="other"), hipq.batch() as batch:
        assert places([batch.enqueue(new()), batch.enqueue(new(job_key="A"))]) == ["other"] * 2
        with pytest.raises(ShardError):
            batch.enqueue(new(job_key="a"))


def test_a_running_member_adds_to_its_batch_by_the_key_of_that(shards: None) -> None:
    with hipq.batch(shard_key=THERE) as batch:
        member = batch.enqueue(new())
    worker = WorkerFactory.create()
    values = {"state": "running", "attempt": 1, "worker": worker.pk, "phase": "request"}
    Job.objects.using("other").filter(pk=member.pk).update(**values)
    token = CURRENT_JOB.set(Job.objects.using("other").only("pk", "attempt").get(pk=member.pk))

    added = Batch.objects.using("other").get(pk=batch.pk).enqueue(new(job_key="a"))
    CURRENT_JOB.reset(token)

    assert (added.using, added.shard_key, added.batch_id) == ("other", THERE, batch.pk)


def test_gathered_jobs_are_beside_the_job_that_waits(shards: None) -> None:
    mine = hipq.enqueue("ask", shard_key=THERE)
    values = {"state": "running", "attempt": 1, "worker": WorkerFactory.create().pk}
    Job.objects.using("other").filter(pk=mine.pk).update(phase="request", **values)
    mine.refresh_from_db()

    mine.gather([new(), new(job_key="A")])

    assert Job.objects.using("other").exclude(pk=mine.pk).count() == 2
    with pytest.raises(ShardError) as raised:
        mine.gather([new(HERE)], names=["third"])
    assert str(raised.value) == (
        f"enqueue 'echo': its shard is default, that of job {mine.pk} other; jobs that wait for "
        "each other need the same shard_key."
    )


def test_schedules_and_their_jobs_are_in_shard_0(shards: None) -> None:
    with transaction.atomic(using="other"), on_shard("default", "other"):
        made = hipq.schedule("nightly", new(job_key="A"), hipq.Every(hours=1))
        hipq.pause_schedule("nightly")
        job = hipq.run_schedule("nightly")
    assert (made.using, job.using) == ("default", "default")
    now = timezone.now()
    jobs = hipq.backfill("nightly", now - timedelta(hours=3), now - timedelta(hours=2))
    assert {*places(jobs)} <= {"default"}
    with pytest.raises(InvalidScheduleError) as raised:
        hipq.schedule("hourly", new(THERE), hipq.Every(hours=1))
    assert str(raised.value) == (
        "schedule 'hourly': shard_key= is not for jobs of schedules, which are in shard 0."
    )


@pytest.mark.parametrize("way", ["many", "chain", "batch"])
def test_without_shards_all_of_it_can_be_written(way: str) -> None:
    if way == "many":
        jobs = hipq.enqueue_many([new("A")], per_shard=True)
    elif way == "chain":
        jobs = hipq.chain(new(), shard_key="A")
    else:
        with hipq.batch(shard_key="A") as batch:
            jobs = [batch.enqueue(new()), hipq.enqueue("echo", batch=batch)]
            jobs += batch.enqueue_many([new()])

    assert {(job.using, job.shard_key) for job in jobs} == {("default", "A")}
