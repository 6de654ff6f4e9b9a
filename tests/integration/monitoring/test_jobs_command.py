"""`hipq_jobs`: the verbs of operators, under the same names as in Python."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils.translation import override

import hipq_django as hipq
from hipq_django.management.commands.hipq_jobs import Command
from hipq_django.models import Job
from tests.declaring import Declare
from tests.factories import WorkerFactory
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


def said(*arguments: Any) -> str:
    """Return what the command prints."""
    out = StringIO()
    call_command("hipq_jobs", *map(str, arguments), stdout=out)
    return out.getvalue()


def row(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def test_each_verb_is_a_function_of_the_same_name() -> None:
    assert all(callable(getattr(hipq, name)) for name in Command.takes)


def test_jobs_are_cancelled_with_a_reason() -> None:
    a, b = hipq.enqueue("ask", delay=60), hipq.enqueue("ask", job_key="b", delay=60)

    assert said("cancel", a.pk, b.pk, "--reason", "by hand").splitlines() == [
        f"job {a.pk}: cancelled",
        f"job {b.pk} (b): cancelled",
    ]
    assert row(a).error == row(b).error == "by hand"


def test_jobs_are_found_by_type_and_key() -> None:
    job = hipq.enqueue("ask", job_key="order-7", delay=60)

    assert said("cancel", "order-7", "--type", "ask") == f"{job}: cancelled\n"


def test_a_job_is_explained_in_english_whatever_the_language() -> None:
    """What commands print can be searched for in the documents."""
    WorkerFactory.create()
    job = hipq.enqueue("ask", delay=3_600)

    with override("de"):
        assert "It is scheduled for" in said("explain", job.pk)


def test_a_waiting_job_is_moved() -> None:
    job = hipq.enqueue("ask", delay=3_600)

    said("reprioritize", job.pk, "--priority", 7)
    said("reschedule", job.pk, "--at", "2040-01-01T06:00Z")
    assert (row(job).priority, row(job).scheduled_run_time.year) == (7, 2040)
    assert "scheduled for 2040-01-01" in said("explain", job.pk)

    assert said("run_now", job.pk) == f"{job}: initial\n"
    assert row(job).scheduled_run_time.year < 2040


def test_a_failed_job_is_requeued_with_what_it_took_down(declare: Declare) -> None:
    step = declare.task("step")(lambda: 1 / 0)
    a, b = hipq.chain(step.new(), step.new())
    run_due_jobs()

    printed = said("requeue", a.pk, "--dependents")

    assert printed == f"job {a.pk}: requeued as {row(a).successors.get()}\n"
    assert row(b).successors.count() == 1


def test_a_batch_is_cancelled() -> None:
    new = hipq.NewJob("ask", delay=60)
    with hipq.batch("import", then=hipq.NewJob("ask")) as batch:
        batch.enqueue_many([new, new])

    assert said("cancel_batch", batch.pk) == f"batch {batch.pk}: 3 jobs cancelled\n"
    assert not Job.objects.live().exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("cancel", 7), "has no job '7'"),
        (
            ("cancel", "seven"),
            "has no job 'seven'; give the id of a job, or --type where it is the",
        ),
        (("explain", "9" * 5_000), "^explain: instance 'default' has no job '999"),
        (("cancel_batch", 7), "has no batch 7"),
        (("cancel_batch", "import"), "'import': give the id of a batch"),
        (("cancel_batch", "9" * 5_000), "give the id of a batch"),
        (("reschedule", 7), "^reschedule: give --at, a moment with its zone, such as "),
        (("reschedule", 7, "--at", "2026-11-22"), "--at '2026-11-22': give a moment"),
        (("reprioritize", 7), "say which priority"),
        (("delete", 7), "invalid choice: 'delete'"),
        (("cancel",), "required: ID"),
        (
            ("explain", 7, "--reason", "x"),
            "^explain does not take --reason 'x'; it takes --type, --shard-key",
        ),
        (("cancel", 7, "--dependents"), "--dependents; it takes --type, --reason, --descendants"),
        (("run_now", 7, "--at", "2040-01-01T06:00Z"), "run_now does not take --at '2040"),
        (("requeue", 7, "--descendants"), "requeue does not take --descendants; it takes --type"),
        (("cancel_batch", 7, "--type", "ask"), "cancel_batch does not take --type 'ask'; it takes"),
        (("reschedule", 7, "--priority", 0), "reschedule does not take --priority 0"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: Any, problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        said(*arguments)


def test_it_stops_at_the_first_job_where_it_is_refused() -> None:
    a, b, c = (hipq.enqueue("ask", delay=60) for _ in range(3))
    hipq.cancel(b)

    with pytest.raises(CommandError, match=f"job {b.pk} is final"):
        said("cancel", a.pk, b.pk, c.pk)

    assert [row(job).outcome for job in (a, c)] == ["cancelled", "NONE"]
