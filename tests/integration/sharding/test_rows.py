"""The rows of shards: what is stored, and what the database refuses."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.engines import engine_for
from hipq_django.engines.rows import job_template, unsaved_job
from hipq_django.models import Job, Queue, ShardMap, Transfer
from hipq_django.models.catalog import get_job_type
from tests.factories import JobFactory, QueueFactory

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

KEYS = ["tenant-7", "a\tb\\c\nd\re \\N", "🙂"]


def new_jobs() -> list[Job]:
    job_type = get_job_type("default", "echo")
    now = clock.now("default")
    names = ("scheduled_run_time", "deadline", "create_time", "update_time")
    template = job_template(job_type.queue, job_type, dict.fromkeys(names, now))
    return [unsaved_job(template, {"shard_key": key, "job_data": {}}) for key in [*KEYS, None]]


@pytest.mark.parametrize("way", ["one", "all", "free"])
def test_a_shard_key_is_stored_as_it_is_by_each_way_to_insert(way: str) -> None:
    engine, jobs = engine_for("default"), new_jobs()

    if way == "one":
        assert all(engine.insert_one(job) for job in jobs)
    elif way == "all":
        engine.insert(jobs, len(jobs), by_key=False, extra=True)
    else:
        engine.insert_free(jobs)

    stored = Job.objects.order_by("pk").values_list("shard_key", flat=True)
    assert [*stored] == [*KEYS, None]


def test_a_requeued_job_has_the_shard_key_of_its_origin() -> None:
    origin = JobFactory.create(state="final", outcome="failed", error="no", shard_key="tenant-7")

    assert hipq.requeue(origin).shard_key == "tenant-7"


MAP = {"number": 1, "count": 2, "count_before": 1, "first_id": 0}


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": 2}, {"number": -1}, {"count": 65}, {"count_before": 0}, {"count_before": 3},
        {"first_id": -1}, {"instance": "known"},
    ],
    ids=str,
)  # fmt: skip
def test_a_map_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    ShardMap.objects.create(**MAP, instance="known")

    with pytest.raises(IntegrityError), transaction.atomic():
        ShardMap.objects.create(**MAP | {"instance": "pay"} | wrong)


@pytest.mark.parametrize("wrong", [{"share": -1}, {"owed": -1}])
def test_a_negative_share_is_refused(wrong: dict[str, int]) -> None:
    queue = QueueFactory.create(share=0)

    with pytest.raises(IntegrityError), transaction.atomic():
        Queue.objects.filter(pk=queue.pk).update(**wrong)


@pytest.mark.parametrize("wrong", [{"peer": 1}, {"peer": 64}, {"sent": -1}, {"received": -1}])
def test_a_second_or_impossible_transfer_is_refused(wrong: dict[str, int]) -> None:
    queue = QueueFactory.create()
    Transfer.objects.create(queue=queue, peer=1)

    with pytest.raises(IntegrityError), transaction.atomic():
        Transfer.objects.create(**{"queue": queue, "peer": 2} | wrong)


def test_the_release_before_writes_queues_without_the_new_columns() -> None:
    QueueFactory.create(name="bank")
    new = {"id", "name", "share", "owed", "owed_to", "owed_time"}
    fields = {str(field.column) for field in Queue._meta.concrete_fields} - new
    columns = ", ".join(f'"{name}"' for name in sorted(fields))

    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO hipq_queue (name, {columns}) SELECT 'mail', {columns} FROM hipq_queue"
        )

    mail = Queue.objects.get(name="mail")
    assert [mail.share, mail.owed, mail.owed_to, mail.owed_time] == [None, 0, None, None]
