"""Bad values: the right error, and nothing changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

import hipq_django as hipq
from hipq_django.exceptions import ConfigurationError, InvalidAnswerError, UnknownOptionError
from hipq_django.models import Answer, Job, JobType, Queue
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

NAN = float("nan")
NOON = datetime(2030, 5, 1, 12, tzinfo=UTC)


def rows() -> list[int]:
    return [model.objects.count() for model in (Answer, Job, JobType, Queue)]


BAD_VALUES = [
    ({"job_data": NAN}, "job_data is not JSON"),
    ({"job_data": "a\0b"}, "NUL"),
    ({"job_key": "NONE"}, "a key is text of"),
    ({"delay": timedelta(seconds=-1)}, "delay"),
    ({"delay": 5, "scheduled_run_time": NOON}, "delay 5 and scheduled_run_time .* not both"),
    ({"timeout": 0}, "timeout 0"),
    ({"priority": 1.5}, "priority 1.5"),
    ({"throttle_factor": NAN}, "throttle_factor nan"),
    ({"scheduled_run_time": "tomorrow"}, "give an aware datetime"),
    ({"time_windows": ["05:00-05:00"]}, "start and end are the same"),
    ({"queue": "Bank"}, "queue 'Bank'"),
]


@pytest.mark.parametrize("job_type", ["echo", "nobody_knows"])
def test_a_job_with_a_bad_value_is_refused_and_nothing_is_written(job_type: str) -> None:
    before, taken = rows(), []

    for values, message in BAD_VALUES:
        with pytest.raises(hipq.InvalidJobError, match=message):
            taken.append((values, hipq.enqueue(job_type, **values)))  # type: ignore[arg-type]  # of any type

    assert (rows(), taken) == (before, [])


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownOptionError, match="'priorty', did you mean 'priority'"):
        hipq.enqueue("echo", priorty=5)  # type: ignore[call-arg]  # what is refused
    assert {hipq.InvalidJobError, TypeError} <= set(UnknownOptionError.__mro__)


@pytest.mark.parametrize(
    ("option", "meant"), [("countdown", "delay"), ("eta", "scheduled_run_time")]
)
def test_options_of_other_queues_are_told_by_their_name_here(option: str, meant: str) -> None:
    given: Any = {option: 60}
    with pytest.raises(
        UnknownOptionError, match=f"unknown option '{option}'; here it is '{meant}'"
    ):
        hipq.enqueue("echo", **given)


@pytest.mark.parametrize("instance", ["nowhere", ["default"]])
def test_an_unknown_instance_is_refused(instance: Any) -> None:
    with pytest.raises(ConfigurationError, match="HIPQ has no instance"):
        hipq.enqueue("echo", instance=instance)


# Answers


LARGE = "x" * 16_000_000
SIZE = "has 16,000,002 bytes as JSON, and at most 16,000,000 are stored; keep it elsewhere and give"


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        (hipq.complete, ("ask", "k", NAN), "the response is not JSON"),
        (hipq.complete, ("ask", "", 1), "a key is text of"),
        (hipq.complete, ("", "k", 1), "printable characters"),
        (hipq.complete, ("ask", "k", LARGE), f"the response {SIZE}"),
        (hipq.fail, ("ask", "k", "NONE"), "say what went wrong"),
    ],
    ids=range(5),
)
def test_a_bad_answer_is_refused_and_nothing_is_stored(
    verb: Any, arguments: tuple[Any, ...], message: str
) -> None:
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()

    with pytest.raises(InvalidAnswerError, match=message):
        verb(*arguments)

    job.refresh_from_db()
    assert (job.state, Answer.objects.count()) == ("running", 0)


# Results


@pytest.mark.parametrize("value", [object(), NAN])
def test_a_result_that_is_not_json_is_an_error_of_the_job(value: Any, declare: Declare) -> None:
    declare("odd")(lambda job: value)
    job = hipq.enqueue("odd")

    run_due_jobs()

    job.refresh_from_db()
    assert (job.state, job.outcome, job.result) == ("final", "failed", None)
    assert job.error.startswith("ResultError: the result of 'odd' is not JSON: ")


@pytest.mark.parametrize(
    "value", [{"price": 1e23}, [1e308, 5e-324, -0.0], 2**70, "💳", {"ä": {"": [None]}}]
)
def test_a_value_is_read_back_as_it_was_given(value: Any) -> None:
    job = hipq.enqueue("echo", value)

    run_due_jobs()

    job.refresh_from_db()
    assert job.job_data == value
    assert job.result == value


@pytest.mark.parametrize(
    "bad",
    [
        hipq.NewJob("echo", {"broken": object()}),
        hipq.NewJob("echo", {"broken": object()}, job_key="k"),
    ],
)
def test_a_bad_job_among_many_undoes_them_all_and_leaves_the_transaction_usable(
    bad: hipq.NewJob,
) -> None:
    """The jobs before it are on their way to the database already."""
    with transaction.atomic():
        before = hipq.enqueue("echo", "before")
        with pytest.raises(hipq.InvalidJobError):
            hipq.enqueue_many([*(hipq.NewJob("echo", n) for n in range(2_000)), bad])
        after = hipq.enqueue("echo", "after")

    assert list(Job.objects.order_by("pk")) == [before, after]
