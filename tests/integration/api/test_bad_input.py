"""Bad values: the right error, and nothing changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
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


def rows() -> list[int]:
    return [model.objects.count() for model in (Answer, Job, JobType, Queue)]


BAD_VALUES = [
    ({"job_data": NAN}, "job_data is not JSON"),
    ({"job_data": {"order": object()}}, "job_data is not JSON"),
    ({"job_data": "a\0b"}, "NUL"),
    ({"job_key": "x" * 256}, "256 characters"),
    ({"job_key": ""}, "not empty"),
    ({"job_key": 42}, "a key is text"),
    ({"timeout": -1}, "timeout -1"),
    ({"timeout": 0}, "timeout 0"),
    ({"timeout": NAN}, "timeout nan"),
    ({"priority": 1.5}, "priority 1.5"),
    ({"throttle_factor": -1}, "throttle_factor -1"),
    ({"throttle_factor": NAN}, "throttle_factor nan"),
    ({"scheduled_run_time": datetime(2030, 1, 1)}, "is naive"),  # noqa: DTZ001 - what is refused
    ({"scheduled_run_time": "tomorrow"}, "give an aware datetime"),
    ({"time_windows": "05:00-07:00"}, "give a list"),
    ({"time_windows": ["05:00-05:00"]}, "start and end are the same"),
    ({"time_windows": ["7 o'clock"]}, "time window"),
    ({"queue": "Bank"}, "queue 'Bank'"),
    ({"queue": ["bank"]}, "queue"),
    ({"queue": ""}, "queue ''"),
]


@pytest.mark.parametrize("job_type", ["echo", "nobody_knows"])
def test_a_job_with_a_bad_value_is_refused_and_nothing_is_written(job_type: str) -> None:
    before, taken = rows(), []

    for values, message in BAD_VALUES:
        with pytest.raises(hipq.InvalidJobError, match=message):
            taken.append((values, hipq.enqueue(job_type, **values)))  # type: ignore[arg-type]  # of any type

    assert (rows(), taken) == (before, [])


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, None, 5, ["echo"], {"echo": 1}])
def test_a_type_without_a_usable_name_is_refused(name: Any) -> None:
    with pytest.raises(hipq.InvalidJobError, match="1 to 200 printable characters"):
        hipq.enqueue(name)

    assert rows() == [0, 0, 0, 0]


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownOptionError, match="'priorty', did you mean 'priority'"):
        hipq.enqueue("echo", priorty=5)  # type: ignore[call-arg]  # what is refused


@pytest.mark.parametrize(
    ("option", "meant"), [("countdown", "delay"), ("eta", "scheduled_run_time")]
)
def test_options_of_other_queues_are_told_by_their_name_here(option: str, meant: str) -> None:
    given: Any = {option: 60}
    with pytest.raises(
        UnknownOptionError, match=f"unknown option '{option}'; here it is '{meant}'"
    ):
        hipq.enqueue("echo", **given)


@pytest.mark.parametrize("error", [hipq.InvalidJobError, hipq.HipqError, TypeError, ValueError])
def test_an_unknown_option_is_also_the_error_that_python_would_raise(
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        hipq.enqueue("echo", prio=5)  # type: ignore[call-arg]  # what is refused


@pytest.mark.parametrize("instance", ["Default", "nowhere", "", None, ["default"]])
def test_an_unknown_instance_is_refused(instance: Any) -> None:
    with pytest.raises(ConfigurationError, match="HIPQ has no instance"):
        hipq.enqueue("echo", instance=instance)


# Answers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ask", "k", NAN), "the response is not JSON"),
        (("ask", "k", object()), "the response is not JSON"),
        (("ask", "k", "\ud800"), "lone surrogate"),
        (("ask", "", 1), "text that is not empty"),
        (("ask", None, 1), "names no job"),
        (("ask", "NONE", 1), "names no job"),
        (("ask", "x" * 256, 1), "256 characters"),
        (("ask", 42, 1), "a key is text"),
        (("", "k", 1), "printable characters"),
    ],
)
def test_a_bad_response_is_refused_and_nothing_is_stored(
    arguments: tuple[Any, ...], message: str
) -> None:
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()

    with pytest.raises(InvalidAnswerError, match=message):
        hipq.complete(*arguments)

    job.refresh_from_db()
    assert (job.state, Answer.objects.count()) == ("running", 0)


LARGE = "x" * 16_000_000


TOO_LARGE: dict[str, tuple[Callable[[Job], Any], str]] = {
    "by its key": (lambda job: hipq.complete("ask", "k", LARGE), "response"),
    "by its job": (lambda job: hipq.complete(job, LARGE), "response"),
    "an error": (lambda job: hipq.fail("ask", "k", LARGE), "error"),
}


@pytest.mark.parametrize("name", list(TOO_LARGE))
def test_an_answer_that_is_too_large_is_refused(name: str) -> None:
    answer, kind = TOO_LARGE[name]
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()

    with pytest.raises(InvalidAnswerError) as raised:
        answer(job)

    assert str(raised.value).endswith(
        f"the {kind} has 16,000,002 bytes as JSON, and at most 16,000,000 are stored; keep it "
        "elsewhere and give a reference to it."
    )
    job.refresh_from_db()
    assert (job.state, Answer.objects.count()) == ("running", 0)


def test_an_answer_of_just_the_largest_size_is_stored() -> None:
    hipq.enqueue("ask", job_key="k")
    run_due_jobs()

    assert hipq.complete("ask", "k", LARGE[2:]).status == "accepted"


@pytest.mark.parametrize("error", [None, "", "NONE"])
def test_an_error_that_says_nothing_is_refused(error: Any) -> None:
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()

    with pytest.raises(InvalidAnswerError, match="say what went wrong"):
        hipq.fail("ask", "k", error=error)

    job.refresh_from_db()
    assert (job.state, Answer.objects.count()) == ("running", 0)


@pytest.mark.parametrize("message_id", ["", "x" * 256, 5, "a\0b", ["m"]])
def test_a_bad_message_id_is_refused(message_id: Any) -> None:
    with pytest.raises(InvalidAnswerError, match=r"message_id .*: give text of 1 to 255"):
        hipq.complete("ask", "k", message_id=message_id)

    assert Answer.objects.count() == 0


# Results


@pytest.mark.parametrize("value", [object(), NAN, {1, 2}, b"bytes", "a\0b", hipq.WAIT.__class__])
def test_a_result_that_is_not_json_is_an_error_of_the_job(value: Any, declare: Declare) -> None:
    declare("odd")(lambda job: value)
    job = hipq.enqueue("odd")

    run_due_jobs()

    job.refresh_from_db()
    assert (job.state, job.outcome, job.result) == ("final", "failed", None)
    assert job.error.startswith("ResultError: the result of 'odd' is not JSON: ")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (hipq.RetryIn(5), r"RetryIn is for retry handlers \(on_error\)\. Raise an exception"),
        (hipq.Snooze(5), r"Snooze is raised, not returned: raise Snooze\(seconds\)"),
        (hipq.Snooze, r"Snooze is raised, not returned"),
        (hipq.Never(), r"Never is a policy: declare the job type with retry=Never\(…\), and raise"),
    ],
)
def test_a_decision_that_is_returned_by_a_handler_says_what_to_do_instead(
    value: Any, said: str, declare: Declare
) -> None:
    declare("odd")(lambda job: value)
    job = hipq.enqueue("odd")

    run_due_jobs()

    job.refresh_from_db()
    assert job.outcome == "failed"
    assert re.search(said, job.error)
    # The reason says it all, without the lines of the encoder that found it.
    assert job.attempts.get().traceback.count("Traceback") == 1


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
        hipq.NewJob("echo", priority=2_000_000),
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
