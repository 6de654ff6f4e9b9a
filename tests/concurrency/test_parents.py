"""The queue and the type of a job are there for as long as the job is, whoever is quicker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from django.db import IntegrityError, connection

import hipq_django as hipq
from hipq_django.models import Job, JobType, Queue
from tests.concurrency.sessions import Session, wait_until_blocked

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def other() -> Iterator[Session]:
    with closing(Session()) as session:
        yield session


def _delete(table: str, pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table} WHERE id = %s", [pk])


def test_a_type_and_a_queue_that_go_while_a_job_is_enqueued_are_made_again(other: Session) -> None:
    gone = hipq.enqueue("echo")
    Job.objects.all().delete()
    other.begin()
    other(lambda: _delete("hipq_jobtype", gone.job_type_id))
    other(lambda: _delete("hipq_queue", gone.queue_id))

    with closing(Session()) as second:
        made = second.start(lambda: hipq.enqueue("echo"))
        wait_until_blocked()
        other.commit()
        job = made.result(timeout=30)

    assert job.job_type_id != gone.job_type_id
    assert Queue.objects.get() == Job.objects.get().queue
    assert JobType.objects.get() == Job.objects.get().job_type


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("table", ["hipq_queue", "hipq_jobtype"])
def test_what_a_job_that_is_being_enqueued_belongs_to_cannot_go(
    table: str, many: bool, other: Session
) -> None:
    first = hipq.enqueue("echo")
    pk = first.queue_id if table == "hipq_queue" else first.job_type_id
    Job.objects.all().delete()
    other.begin()
    other(lambda: hipq.enqueue_many([hipq.NewJob("echo")] * 3) if many else [hipq.enqueue("echo")])

    with closing(Session()) as second:
        deleted = second.start(lambda: _delete(table, pk))
        wait_until_blocked()
        other.commit()
        with pytest.raises(IntegrityError, match="is still needed by jobs"):
            deleted.result(timeout=30)
