"""Values of subclasses, such as members of an enum with text, are stored as what they are."""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.models import Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)


class Name(str, enum.Enum):  # noqa: UP042 - as projects have written them before StrEnum
    """Text, whose `str()` is another text."""

    A = "a"
    FRONT = "front"


class Level(int, enum.Enum):
    """Numbers, whose `str()` is no number."""

    HIGH = 1
    TWO = 2


class Share(float, enum.Enum):
    """Numbers with decimals."""

    HALF = 0.5


class Moment(datetime):
    """A moment whose `str()` is its ISO form, as in libraries for dates."""

    def __str__(self) -> str:
        return self.isoformat()


VALUES: dict[str, tuple[Any, Any]] = {
    "job_key": (Name.A, "a"),
    "priority": (Level.HIGH, 1),
    "throttle_factor": (Share.HALF, Decimal("0.5")),
    "timeout": (Level.TWO, 2.0),
    "queue": (Name.FRONT, "front"),
}


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("option", VALUES)
def test_an_option_is_stored_as_its_plain_value(option: str, others: int) -> None:
    """One job is inserted, many are copied into the table."""
    given, stored = VALUES[option]
    new = hipq.NewJob("echo", **{option: given})

    hipq.enqueue_many([new, *[hipq.NewJob("echo")] * others])

    job = Job.objects.select_related("queue").earliest("pk")
    assert (job.queue.name if option == "queue" else getattr(job, option)) == stored


@pytest.mark.parametrize("number", [1, 3])
def test_a_unique_key_is_the_plain_text(declare: Declare, number: int) -> None:
    declare("uni", unique="waiting")(lambda job: None)
    others = [hipq.NewJob("uni", unique_key=f"k{n}") for n in range(number - 1)]
    hipq.enqueue_many([hipq.NewJob("uni", unique_key=Name.A), *others])

    again = hipq.enqueue("uni", unique_key="a", on_conflict="return")

    assert again.conflict
    assert Job.objects.count() == number


def test_job_types_and_queues_are_known_by_their_plain_names(declare: Declare) -> None:
    spec = declare(Name.A, queue=Name.FRONT)(lambda job: "done")

    job = hipq.enqueue(Name.A)
    run_due_jobs()

    job.refresh_from_db()
    assert (job.result, f"{job.job_type.name} {job.queue.name}") == ("done", "a front")
    assert f"{spec.name} {spec.queue}" == "a front"


def moment_after(now: datetime, seconds: float) -> Moment:
    return Moment.fromtimestamp(now.timestamp() + seconds, UTC)


def test_moments_of_other_classes_come_in_their_order(
    declare: Declare, frozen_time: Any, configure_queue: ConfigureQueue
) -> None:
    """SQLite compares the texts of moments."""

    def put_off(queue: Any, now: datetime, running: Any, candidates: Any) -> list[Any]:
        return [hipq.Reschedule(moment_after(now, 3_600)) for _ in candidates]

    now = datetime.now(UTC)
    configure_queue(put_off)
    spec = declare("fails", queue="other")(lambda job: 1 / 0)
    spec.on_error(lambda job: hipq.RetryAt(moment_after(now, 3_600)))
    made = hipq.enqueue("echo", queue="made", scheduled_run_time=moment_after(now, 3_600))
    retried, rescheduled = hipq.enqueue("fails"), hipq.enqueue("echo")

    for _ in range(3):
        HandWorker().work()

    due = Job.objects.filter(scheduled_run_time__gte=now + timedelta(seconds=3_599))
    early = due.filter(scheduled_run_time__lte=now + timedelta(seconds=3_601))
    assert {*early} == {made, retried, rescheduled}
