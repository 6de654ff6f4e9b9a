"""What a handler does once, and how it ends its job together with its own writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, transaction
from psycopg.errors import LockNotAvailable

import hipq_django as hipq
from hipq_django.exceptions import ResultError, StaleAttemptError
from hipq_django.models import Attempt, Batch, Job, Step
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

called: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_was_called() -> None:
    called.clear()


def charge(amount: int, *, fails: bool = False) -> dict[str, int]:
    called.append(amount)
    if fails:
        raise ConnectionError("no bank")
    return {"charged": amount}


def row(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def fails_after_the_commit() -> None:
    raise ConnectionError("no mail server")


def waits_after_the_commit() -> None:
    raise OperationalError("lock timeout") from LockNotAvailable()


@pytest.mark.conformance
def test_a_step_is_called_once_however_often_the_job_is_tried(declare: Declare) -> None:
    @declare("order", retry=hipq.Fixed(0, max_attempts=3))
    def order(job: Job) -> Any:
        charged = job.step("charge", charge, 70)
        if job.attempt < 3:
            raise ValueError("the parcel service is down")
        return charged

    job = hipq.enqueue("order")
    run_due_jobs()

    assert called == [70]
    assert (row(job).result, row(job).attempt) == ({"charged": 70}, 3)
    step = Step.objects.get()
    assert (step.job_id, step.name, step.result, step.attempt) == (
        job.pk,
        "charge",
        {"charged": 70},
        1,
    )


@pytest.mark.conformance
def test_an_atomic_step_and_its_writes_are_one(declare: Declare) -> None:
    @declare("order", retry=hipq.Fixed(0, max_attempts=3))
    def order(job: Job) -> None:
        def book() -> str:
            Batch.objects.create(name=f"by attempt {job.attempt}")
            if job.attempt == 1:
                raise ValueError("after the write")
            return "booked"

        job.step("book", book, atomic=True)
        if job.attempt == 2:
            raise ValueError("after the step")

    hipq.enqueue("order")
    run_due_jobs()

    assert list(Batch.objects.values_list("name", flat=True)) == ["by attempt 2"]


@pytest.mark.conformance
def test_an_attempt_that_was_taken_over_stores_no_step(declare: Declare) -> None:
    raised: list[BaseException] = []

    @declare("order")
    def order(job: Job) -> None:
        if job.attempt == 1:
            hipq.cancel(job)
        with pytest.raises(StaleAttemptError) as error:
            job.step("charge", charge, 70)
        with pytest.raises(StaleAttemptError):
            job.step("book", lambda: Batch.objects.create(name="too late").pk, atomic=True)
        raised.append(error.value)

    job = hipq.enqueue("order")
    run_due_jobs()

    assert not Step.objects.exists()
    assert not Batch.objects.exists()
    assert str(raised[0]) == (
        f"step 'charge': job {job.pk} is final (cancelled) in attempt 1, and this is attempt 1, "
        "which is over. What the handler does counts no more; end it."
    )


@pytest.mark.parametrize("name", ["", 7])
def test_what_can_be_no_step_is_refused(declare: Declare, name: Any) -> None:
    @declare("order")
    def order(job: Job) -> None:
        with pytest.raises(hipq.InvalidJobError, match="give a name of 1 to 200"):
            job.step(name, charge, 70)
        with pytest.raises(ResultError, match="the result of step 'set' is not JSON"):
            job.step("set", lambda: {1, 2})

    job = hipq.enqueue("order")
    run_due_jobs()

    assert (called, row(job).outcome) == ([], "succeeded")


def test_steps_in_async_code(declare: Declare) -> None:
    @declare("order", retry=hipq.Fixed(0, max_attempts=2))
    async def order(job: Job) -> list[Any]:
        async def ask() -> str:
            called.append("asked")
            return "yes"

        found = [await job.astep("ask", ask), await job.astep("charge", charge, 7)]
        found.append(await job.astep("book", charge, 8, atomic=True))
        if job.attempt == 1:
            raise ValueError
        return found

    job = hipq.enqueue("order")
    run_due_jobs()

    assert called == ["asked", 7, 8]
    assert row(job).result == ["yes", {"charged": 7}, {"charged": 8}]


# Finishing


@pytest.mark.conformance
def test_a_job_ends_together_with_the_writes_of_its_handler(declare: Declare) -> None:
    @declare("order")
    def order(job: Job) -> None:
        with hipq.finishing(job, {"total": 70}):
            Batch.objects.create(name="order")
        assert row(job).is_final

    job = hipq.enqueue("order")
    worker = HandWorker()
    worker.work()

    ended = row(job)
    assert (ended.state, ended.outcome, ended.result, ended.progress) == (
        "final", "succeeded", {"total": 70}, 100,
    )  # fmt: skip
    assert ended.worker_id is None
    assert Batch.objects.count() == 1
    assert len(worker.batch) == 0


@pytest.mark.conformance
def test_a_block_that_raises_ends_nothing(declare: Declare) -> None:
    @declare("order", retry=hipq.Fixed(0, max_attempts=2))
    def order(job: Job) -> None:
        with hipq.finishing(job):
            Batch.objects.create(name="order")
            if job.attempt == 1:
                raise ValueError("out of stock")

    job = hipq.enqueue("order")
    run_due_jobs()

    assert (row(job).outcome, row(job).attempt) == ("succeeded", 2)
    assert Batch.objects.count() == 1


@pytest.mark.conformance
def test_an_attempt_that_is_over_cannot_finish(declare: Declare) -> None:
    @declare("order")
    def order(job: Job) -> None:
        hipq.cancel(job)
        with hipq.finishing(job):
            Batch.objects.create(name="order")

    job = hipq.enqueue("order")
    run_due_jobs()

    assert row(job).outcome == "cancelled"
    assert not Batch.objects.exists()


@pytest.mark.conformance
def test_the_answer_that_came_first_counts(declare: Declare) -> None:
    @declare("order")
    def order(job: Job) -> None:
        hipq.complete(job, "answered")
        with hipq.finishing(job, "finished"):
            Batch.objects.create(name="order")

    @order.on_response
    def take(job: Job, response: str) -> str:
        return response

    job = hipq.enqueue("order")
    run_due_jobs()

    assert row(job).result == "answered"
    assert not Batch.objects.exists()


@pytest.mark.parametrize("how", ["raises", "returns"])
def test_what_comes_after_finishing_does_not_count(
    declare: Declare, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    @declare("order", retry=hipq.Fixed(0, max_attempts=2))
    def order(job: Job) -> Any:
        with hipq.finishing(job, 7):
            pass
        called.append(job.attempt)
        if how == "raises":
            raise ValueError("too late")
        return 8

    job = hipq.enqueue("order")
    run_due_jobs()

    assert called == [1]
    assert (row(job).outcome, row(job).result) == ("succeeded", 7)
    assert not Attempt.objects.exists()
    said = {"raises": "raised_after_finishing", "returns": "result_ignored"}[how]
    assert said in caplog.text


@pytest.mark.conformance
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("raises", [fails_after_the_commit, waits_after_the_commit])
def test_what_raises_on_the_commit_of_finishing_comes_after_the_end(
    declare: Declare, raises: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    @declare("order")
    def order(job: Job) -> None:
        with hipq.finishing(job, 7):
            transaction.on_commit(raises)

    job = hipq.enqueue("order")
    run_due_jobs()

    assert (row(job).outcome, row(job).result) == ("succeeded", 7)
    assert "event=raised_after_finishing" in caplog.text
    assert f"in {raises.__name__}" in caplog.text
    assert "event=result_dropped" not in caplog.text


def test_finishing_is_refused_where_it_would_mean_something_else(declare: Declare) -> None:
    @declare("twice")
    def twice(job: Job) -> None:
        with hipq.finishing(job):
            pass
        with pytest.raises(hipq.InvalidJobError, match="was ended so already"), hipq.finishing(job):
            pass

    @declare("inside")
    def inside(job: Job) -> None:
        with transaction.atomic(), hipq.finishing(job):
            pass

    @declare("no_json")
    def no_json(job: Job) -> None:
        with hipq.finishing(job, object()):
            called.append("never")

    jobs = [hipq.enqueue(name) for name in ("twice", "inside", "no_json")]
    run_due_jobs()

    assert [row(job).outcome for job in jobs] == ["succeeded", "failed", "failed"]
    assert "a transaction is open" in row(jobs[1]).error
    assert called == []


# Gathering


@pytest.fixture
def resize(declare: Declare) -> Any:
    @declare("resize")
    def resize(job: Job) -> Any:
        called.append(job.job_data["size"])
        if job.job_data["size"] < 0:
            raise ValueError("too small")
        return {"size": job.job_data["size"]}

    return resize


def new(*sizes: int) -> list[hipq.NewJob]:
    return [hipq.NewJob("resize", {"size": size}) for size in sizes]


@pytest.fixture
def gatherer(declare: Declare, resize: Any) -> Any:
    """Return what declares a job type that gathers jobs of these sizes."""

    def make(*sizes: int, names: list[str] | None = None, **options: Any) -> Any:
        @declare("film", **options)
        def film(job: Job) -> Any:
            return job.gather(new(*sizes), names=names)

        @film.on_response
        def publish(job: Job, results: Any) -> Any:
            return results

        return film

    return make


@pytest.mark.conformance
def test_the_ends_of_gathered_jobs_are_the_answer(gatherer: Any) -> None:
    gatherer(1, 2, -3, names=["small", "large", "odd"])
    job = hipq.enqueue("film")
    run_due_jobs()

    assert row(job).result == {
        "small": {"result": {"size": 1}},
        "large": {"result": {"size": 2}},
        "odd": {"error": "ValueError: too small"},
    }
    assert sorted(called) == [-3, 1, 2]


@pytest.mark.conformance
def test_a_later_attempt_finds_the_jobs_of_an_earlier_one(declare: Declare, resize: Any) -> None:
    @declare("film", retry=hipq.Fixed(0, max_attempts=2))
    def film(job: Job) -> Any:
        waits = job.gather(new(1, 2))
        if job.attempt == 1:
            run_due_jobs()  # both have ended before the first attempt fails
            raise ConnectionError
        return waits

    @film.on_response
    def publish(job: Job, results: Any) -> Any:
        return results

    job = hipq.enqueue("film")
    run_due_jobs()

    assert sorted(called) == [1, 2]
    assert row(job).result == {"1": {"result": {"size": 1}}, "2": {"result": {"size": 2}}}


@pytest.mark.conformance
def test_what_a_crash_has_left_is_told_by_the_sweep(
    gatherer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gatherer(1, 2)
    job = hipq.enqueue("film")
    with monkeypatch.context() as patched:
        patched.setattr("hipq_django.extensions.registered", [])
        worker = HandWorker()
        worker.work()
        worker.work()
    assert row(job).state == "running"
    run_due_jobs()

    assert row(job).result == {"1": {"result": {"size": 1}}, "2": {"result": {"size": 2}}}


@pytest.mark.parametrize(
    ("sizes", "names", "said"),
    [
        ([], None, "0 jobs and 0 names"),
        ([1, 2], ["one"], "2 jobs and 1 names"),
        ([1, 2], ["one", "one"], "named twice"),
        ([1] * 1001, None, "at most 1,000"),
    ],
)
def test_what_cannot_be_gathered(
    declare: Declare, resize: Any, sizes: list[int], names: Any, said: str
) -> None:
    @declare("film")
    def film(job: Job) -> Any:
        return job.gather(new(*sizes), names=names)

    job = hipq.enqueue("film")
    run_due_jobs()

    assert said in row(job).error
    assert not Job.objects.filter(job_type__name="resize").exists()
