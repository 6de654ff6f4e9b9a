"""A connection that breaks before, in and after each statement and commit of what a worker does.

Passes and their duties are broken in `test_ownership`, firings in `test_schedules`; here are the
release of jobs that follow others, new ranks, and the results that are written beside a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import Error, OperationalError, connection, transaction

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import isolation
from hipq_django.dependencies.unholding import Sweep
from hipq_django.models import Attempt, Batch, Job, Link
from hipq_django.processes.connections import bound_waits, unbound_waits
from hipq_django.processes.own_threads import ResultWriter
from hipq_django.scheduler import current_batch
from hipq_django.scheduler.batch import BatchScheduler
from hipq_django.signals import job_failed, job_finished
from tests.declaring import Declare
from tests.faults import IN_TURN, Faults, InTurn, breaking
from tests.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)

Act = Callable[[], Any]

BREAKS = pytest.mark.parametrize("error", [OperationalError, ValueError])


def empty_tables() -> None:
    with transaction.atomic():
        for model in (Link, Attempt, Job, Batch):
            model.objects.all().delete()


class Breaks:
    """Breaks what `prepare` returns somewhere; its other function then does and checks."""

    def __init__(self, error: type[Exception], prepare: Callable[[], tuple[Act, Act]]) -> None:
        self._error = error
        self._prepare = prepare

    def __call__(self, at: int) -> Faults:
        empty_tables()
        act, check = self._prepare()
        with breaking(at, self._error) as faults, suppress(Error, ValueError):
            act()
        if faults.place:
            connection.close()  # a transaction that was open ends with its connection
        try:
            check()
        except AssertionError as failed:
            raise AssertionError(f"broken {faults.place}") from failed
        return faults


def come_to_rest(worker: HandWorker) -> None:
    """Let a worker do what is left, in some rounds: what fails once is done in the next."""
    for _ in range(4):
        worker.save()
        Sweep(get_instance()).run_all()
        worker.run_until_idle()


@pytest.fixture
def runs(declare: Declare) -> Counter[str]:
    """How often each job has run, by its data."""
    runs = Counter[str]()

    def run(job: Job) -> None:
        runs[job.job_data] += 1
        if job.job_data == "fails" and job.attempt == 1:
            raise ValueError("not yet")
        if job.job_data == "gives up":
            raise KeyError("never")

    declare("follows", retry=hipq.Fixed(0, only=(ValueError,)))(run)
    return runs


class Told(Counter[tuple[str, str]]):
    """How often a signal was sent, and an error or warning logged, of each job."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        super().__init__()
        self._caplog = caplog

    def fail(self, job: Job, **_: Any) -> None:
        self["failed", job.job_data] += 1

    def finish(self, job: Job, **_: Any) -> None:
        self["finished", job.job_data] += 1

    def begin(self) -> None:
        self.clear()
        self._caplog.clear()

    def lines(self) -> list[int]:
        said = Counter(getattr(record, "event", "") for record in self._caplog.records)
        return [said[name] for name in ("job_failed", "attempt_failed", "result_dropped")]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    caplog.set_level("INFO", "hipq_django")
    told = Told(caplog)
    job_failed.connect(told.fail)
    job_finished.connect(told.finish)
    yield told
    job_failed.disconnect(told.fail)
    job_finished.disconnect(told.finish)


@IN_TURN
@pytest.mark.parametrize("phase", ["request", "decision"])
def test_what_is_said_and_sent_of_results(
    runs: Counter[str], declare: Declare, told: Told, phase: str, in_turn: InTurn
) -> None:
    """Once, or not at all where the reply to the commit that wrote them gets lost."""
    declare("decides")(lambda job: 1 / 0).on_error(
        lambda job: hipq.RetryIn(0) if job.attempt == 1 else hipq.GiveUp()
    )
    names = ["plain", "fails", "gives up", "decided"]

    def prepare() -> tuple[Act, Act]:
        runs.clear()
        told.begin()
        for name in names:
            hipq.enqueue("decides" if name == "decided" else "follows", name)
        worker = HandWorker()
        if phase == "decision":
            worker.work()
        worker.run_pass()
        worker.execute()

        def check() -> None:
            come_to_rest(worker)
            failed = {("failed", name) for name in names if name != "plain"}
            expected = failed | {("finished", name) for name in names}
            assert told.keys() <= expected
            *lines, dropped = told.lines()
            assert dropped or (set(told), lines) == (expected, [2, 2])

        return worker.save, check

    in_turn(Breaks(OperationalError, prepare))


@IN_TURN
@BREAKS
def test_unholding(runs: Counter[str], error: type[Exception], in_turn: InTurn) -> None:
    def prepare() -> tuple[Act, Act]:
        runs.clear()
        first = hipq.enqueue("follows", "first")
        hipq.enqueue("follows", "second", after=[first])
        with hipq.batch("batch", then=hipq.NewJob("follows", "then")) as batch:
            batch.enqueue(hipq.NewJob("follows", "member"))
        worker = HandWorker()
        worker.run_pass()
        worker.execute()

        def check() -> None:
            come_to_rest(worker)
            assert runs == dict.fromkeys(["first", "second", "member", "then"], 1)
            assert set(Job.objects.values_list("outcome", flat=True)) == {"succeeded"}

        return worker.save, check

    in_turn(Breaks(error, prepare))


@IN_TURN
@BREAKS
def test_the_sweep_for_what_a_crash_has_left(
    runs: Counter[str], error: type[Exception], in_turn: InTurn
) -> None:
    def prepare() -> tuple[Act, Act]:
        runs.clear()
        first = hipq.enqueue("follows", "first")
        hipq.enqueue("follows", "second", after=[first])
        Job.objects.filter(pk=first.pk).update(state="running")
        Job.objects.filter(pk=first.pk).update(state="final", outcome="succeeded")

        def check() -> None:
            Sweep(get_instance()).run_all()
            HandWorker().run_until_idle()
            assert runs == {"second": 1}

        return Sweep(get_instance()).run_all, check

    in_turn(Breaks(error, prepare))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few results are left to the writer, and tried again at once."""
    monkeypatch.setattr(current_batch, "FLUSH_RESULTS", 2)
    monkeypatch.setattr(isolation, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(isolation, "MOST_PAUSE", 0.0)
    monkeypatch.setattr(isolation, "FAULT_PAUSE", 0.0)
    bound_waits("default")
    yield
    unbound_waits()


class OneRound(ResultWriter):
    """A writer that ends when it has written, or has failed to."""

    def __init__(self, scheduler: BatchScheduler) -> None:
        super().__init__(scheduler, self._end)

    def _end(self) -> None:
        self._stop.set()
        self._asked.set()


def all_is_written(worker: HandWorker, runs: Counter[str]) -> None:
    """What the writer has left, the scheduler writes; each job has run as often as it should."""
    worker.batch.take_from_writer()
    come_to_rest(worker)
    ends = dict(Job.objects.values_list("job_data", "outcome"))
    assert runs == {"a": 1, "b": 1, "fails": 2, "gives up": 1, "next": 1}
    assert ends.pop("gives up") == "failed"
    assert set(ends.values()) == {"succeeded"}
    assert Attempt.objects.count() == 2
    assert not worker.batch


@IN_TURN
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    # SQLite has no connection to lose, and needs no writer.
    "error",
    [pytest.param(OperationalError, marks=pytest.mark.postgres), ValueError],
)
def test_what_the_writer_writes(
    runs: Counter[str], error: type[Exception], in_turn: InTurn
) -> None:
    """Successes by one statement; failures, and those of a job that another follows, by others."""

    def prepare() -> tuple[Act, Act]:
        runs.clear()
        names = ["a", "b", "fails", "gives up"]
        jobs = hipq.enqueue_many([hipq.NewJob("follows", name) for name in names])
        hipq.enqueue("follows", "next", after=[jobs[0]])
        worker = HandWorker()
        worker.run_pass()
        worker.execute()
        writer = OneRound(worker.scheduler)
        writer.ask()

        return writer._run, lambda: all_is_written(worker, runs)

    in_turn(Breaks(error, prepare))
