"""Many answers at once: the same as one by one, all or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings, strategies as st

import hipq_django as hipq
from hipq_django.models import Answer, Attempt, Job
from hipq_django.signals import job_failed, job_finished
from tests.hand_worker import HandWorker
from tests.listening import connected
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

JOBS = 5


def asked(number: int = JOBS, name: str = "ask") -> list[Job]:
    jobs = hipq.enqueue_many([hipq.NewJob(name, job_key=f"k-{n}") for n in range(number)])
    run_due_jobs()
    return jobs


def states() -> list[tuple[str, str, Any]]:
    return list(Job.objects.order_by("pk").values_list("state", "outcome", "result"))


def test_each_response_settles_its_job() -> None:
    jobs = asked()

    answers = hipq.receive_many(
        hipq.NewAnswer("ask", f"k-{n}", response={"n": n}) for n in reversed(range(JOBS))
    )

    assert [(a.job_key, a.status, a.attempt) for a in answers] == [
        (f"k-{n}", "accepted", 1) for n in reversed(range(JOBS))
    ]
    assert [a.job_id for a in answers] == [job.pk for job in reversed(jobs)]
    assert states() == [("final", "succeeded", {"n": n}) for n in range(JOBS)]


def test_an_id_that_is_known_changes_nothing() -> None:
    asked(2)
    first = hipq.complete("ask", "k-0", response=1, message_id="m-1")

    answers = hipq.receive_many(
        [
            hipq.NewAnswer("ask", "k-0", response=2, message_id="m-1"),
            hipq.NewAnswer("ask", "k-1", response=3, message_id="m-2"),
            hipq.NewAnswer("ask", "k-1", response=4, message_id="m-2"),
        ]
    )

    assert answers[0] == first
    assert answers[1] == answers[2]
    assert Answer.objects.count() == 2
    assert [result for _, _, result in states()] == [1, 3]


BAD_ANSWERS = [
    ({"job_key": "x" * 10_000_000}, "too long to be shown"),
    ({"job_key": 5}, "a key is text"),
    ({"job_type": ""}, "printable characters"),
    ({"response": float("nan")}, "not JSON"),
    ({"error": ""}, "say what went wrong"),
    ({"response": 1, "error": "both"}, "a response and an error"),
    ({"message_id": 7}, "printable"),
]


@pytest.mark.parametrize(
    ("values", "message"), BAD_ANSWERS, ids=[str(v)[:24] for v, _ in BAD_ANSWERS]
)
def test_with_one_that_cannot_be_stored_none_is(values: dict[str, Any], message: str) -> None:
    asked(1)
    bad = {"job_type": "ask", "job_key": "k-9"} | values

    with pytest.raises(hipq.InvalidAnswerError, match=message) as caught:
        hipq.receive_many([hipq.NewAnswer("ask", "k-0", response=1), hipq.NewAnswer(**bad)])

    assert len(str(caught.value)) < 1_000
    assert Answer.objects.count() == 0
    assert states() == [("running", "NONE", None)]


def test_no_answers_are_no_answers() -> None:
    assert hipq.receive_many([]) == []


def test_signals_are_sent_for_each_job(
    django_capture_on_commit_callbacks: Any,
) -> None:
    seen: list[tuple[Any, ...]] = []

    def note(job: Job, **_: Any) -> None:
        seen.append((job.job_key, job.outcome, job.result, job.error))

    asked(2)
    answers = [hipq.NewAnswer("ask", "k-0", response=1), hipq.NewAnswer("ask", "k-1", error="no")]
    with (
        connected(note, job_finished, job_failed),
        django_capture_on_commit_callbacks(execute=True),
    ):
        hipq.receive_many(answers)

    assert sorted(seen) == [("k-0", "succeeded", 1, "NONE"), ("k-1", "NONE", None, "no")]


@pytest.mark.fast
def test_the_number_of_statements_does_not_grow_with_the_batch() -> None:
    counts = []
    for number in (10, 60):
        Answer.objects.all().delete()
        Job.objects.all().delete()
        asked(number)
        answers = [hipq.NewAnswer("ask", f"k-{n}", message_id=f"m-{n}") for n in range(number)]
        with CaptureQueriesContext(connection) as queries:
            hipq.receive_many(answers)
        counts.append(len(queries))

    assert counts[0] == counts[1]


ANSWERS = st.lists(
    st.builds(
        hipq.NewAnswer,
        st.sampled_from(["ask", "unknown"]),
        st.sampled_from(["k-0", "k-1", "k-2", "initial", "final", "failed", "nobody"]),
        response=st.integers(0, 1),
        message_id=st.sampled_from([None, "m-1", "m-2"]),
    )
    | st.builds(
        hipq.NewAnswer,
        st.just("ask"),
        st.sampled_from(["k-0", "k-1", "k-2", "initial", "final", "failed"]),
        error=st.sampled_from(["no", "never"]),
    ),
    max_size=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANSWERS)
def test_a_batch_ends_as_its_answers_one_by_one(answers: list[hipq.NewAnswer]) -> None:
    """The order between different jobs is the only freedom of a batch."""

    def one_by_one() -> None:
        for answer in answers:
            receive_one(answer)

    assert play(lambda: hipq.receive_many(answers)) == play(one_by_one)


def receive_one(answer: hipq.NewAnswer) -> None:
    if answer.error is not None:
        hipq.fail(answer.job_type, answer.job_key, answer.error)
    else:
        message_id = answer.message_id
        hipq.complete(answer.job_type, answer.job_key, answer.response, message_id=message_id)


def play(receive: Callable[[], Any]) -> Any:
    """Return what becomes of jobs in several states and of the answers they receive."""
    for model in (Answer, Attempt, Job):
        model.objects.all().delete()
    for key in ("k-0", "k-1", "k-2", "final", "failed"):
        hipq.enqueue("ask", job_key=key)
    HandWorker().work()
    hipq.complete("ask", "final", response=0)
    hipq.fail("ask", "failed", error="no")
    hipq.enqueue("ask", job_key="initial")
    receive()
    jobs = Job.objects.order_by("job_key").values_list(
        "job_key", "state", "outcome", "result", "error", "has_pending_answer"
    )
    rows = Answer.objects.order_by("job_type", "job_key", "pk").values_list(
        "job_type", "job_key", "status", "kind", "payload", "job__job_key", "attempt"
    )
    return list(jobs), list(rows)


def test_a_database_error_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked(1)

    def refuse(*_: Any, **__: Any) -> None:
        raise IntegrityError("refused")

    monkeypatch.setattr("hipq_django.answers.fast_path.settle", refuse)
    monkeypatch.setattr("hipq_django.answers.effects.apply", refuse)

    with pytest.raises(IntegrityError):
        hipq.receive_many([hipq.NewAnswer("ask", "k-0", response=1)])

    assert Answer.objects.count() == 0
    assert states() == [("running", "NONE", None)]
