"""A claim that no thread has taken up is a reservation: it is given back, and known to hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

import hipq_django as hipq
from hipq_django import transitions
from hipq_django.conf.instances import get_instance
from hipq_django.database.clock import steady
from hipq_django.maintenance import recovery
from hipq_django.models import Job, Queue, Worker, catalog
from hipq_django.processes.own_threads import ResultWriter
from hipq_django.processes.pool import ThreadPool
from hipq_django.scheduler import admission, batch, context, current_batch
from hipq_django.transitions import values
from hipq_django.transitions.values import RESERVATION_SECONDS, Claim
from tests.concurrency.sessions import PATIENCE_SECONDS, Session
from tests.concurrency.test_duties import Process
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.threads import Crew, reservations_last, working

pytestmark = pytest.mark.django_db(transaction=True)


class Slow:
    """A job type whose jobs hold their threads until the test lets them end."""

    def __init__(self, declare: Declare) -> None:
        self._gate = threading.Event()
        self.started: list[int] = []

        @declare("slow")
        def slow(job: Job) -> None:
            self.started.append(job.pk)
            self._gate.wait(PATIENCE_SECONDS)

    def wait_for(self, number: int) -> None:
        """Wait until so many have started."""
        wait_until(lambda: len(self.started) >= number)

    def end(self) -> None:
        """Let all of them end."""
        self._gate.set()


@pytest.fixture
def slow(declare: Declare) -> Iterator[Slow]:
    slow = Slow(declare)
    yield slow
    slow.end()


@pytest.fixture
def ran(declare: Declare) -> list[int]:
    """The ids of the quick jobs whose handlers ran."""
    ran: list[int] = []

    @declare("swift")
    def quick(job: Job) -> None:
        ran.append(job.pk)

    declare("decided", retry=hipq.Fixed(0))(lambda job: None)
    return ran


@pytest.fixture
def stuck(slow: Slow, ran: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    """A worker with one thread that has claimed a quick job ahead, and is at a slow one."""
    monkeypatch.setattr(ThreadPool, "prefetch_slots", lambda self: 1)
    hipq.enqueue("slow")
    hipq.enqueue("swift", job_key="swift")
    with working(Crew(1)) as crew:
        crew.scheduler.run_once()
        slow.wait_for(1)
        monkeypatch.setattr(ThreadPool, "prefetch_slots", lambda self: 0)
        yield crew
        slow.end()


def wait_until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


def quick_job() -> Job:
    return Job.objects.get(job_key="swift")


def wait_for_stale_claims(crew: Crew) -> None:
    newest = max(claim.known_at for claim in crew.batch)
    wait_until(lambda: steady() > newest + RESERVATION_SECONDS)


def test_what_no_thread_takes_is_given_back_to_everybody(stuck: Crew, ran: list[int]) -> None:
    before = quick_job()
    wait_for_stale_claims(stuck)
    stuck.scheduler.run_once()
    given_back = quick_job()
    other = HandWorker()
    other.work()

    assert (given_back.state, given_back.worker, given_back.rank) == ("retry", None, before.rank)
    assert given_back.attempts.count() == 0
    assert ran == [before.pk]
    assert quick_job().outcome == Job.Outcome.SUCCEEDED


def pause(job: Job) -> None:
    Queue.objects.update(paused=True)


def cancel(job: Job) -> None:
    hipq.cancel(job)


def answer(job: Job) -> None:
    hipq.complete("swift", "swift", {"paid": True})


def take_over(job: Job) -> None:
    """Somebody thought that the worker is lost; the job is another's now."""
    Job.objects.filter(pk=job.pk).update(worker=HandWorker().row)


@pytest.mark.parametrize("change", [pause, cancel, answer, take_over])
def test_a_reservation_that_does_not_hold_any_more_does_not_start(
    stuck: Crew, slow: Slow, ran: list[int], change: Callable[[Job], None]
) -> None:
    change(quick_job())
    wait_for_stale_claims(stuck)
    slow.end()
    stuck.pool.await_done(PATIENCE_SECONDS)
    before = quick_job()
    stuck.scheduler.persist_batch()
    after = quick_job()

    assert ran == []
    assert stuck.batch.ids == []
    if change is pause:
        assert (after.state, after.worker) == ("retry", None)
    else:
        assert (after.state, after.worker) == (before.state, before.worker)


def test_a_reservation_that_holds_is_confirmed_and_starts(
    stuck: Crew, slow: Slow, ran: list[int]
) -> None:
    """Its deadline counts from there."""
    claimed = quick_job()
    wait_for_stale_claims(stuck)
    slow.end()
    stuck.pool.await_done(PATIENCE_SECONDS)
    started = quick_job()

    assert ran == [started.pk]
    assert not started.prefetched
    assert started.deadline >= claimed.deadline + timedelta(seconds=RESERVATION_SECONDS)


Reserve = Callable[[HandWorker], Job]


@pytest.fixture(params=["request", "response", "decision"])
def reserve(request: pytest.FixtureRequest, declare: Declare) -> Reserve:
    """Make the job ready of which a worker is to reserve this phase, and return it."""
    asked = declare("asked", queue="other", retry=hipq.Never())(_ask)
    asked.on_response(lambda job, response: response)
    asked.on_error(lambda job: hipq.RetryIn(0))
    catalog.sync("default")  # a worker reads at intervals which types there are

    def prepare(other: HandWorker) -> Job:
        job = asked.enqueue(request.param, job_key=request.param)
        if request.param != "request":
            other.work()
        if request.param == "response":
            hipq.complete("asked", request.param, "yes")
        return job

    return prepare


def _ask(job: Job) -> Any:
    if job.job_data == "decision" and job.attempt == 1:
        raise OSError("down")
    return hipq.WAIT if job.job_data == "response" else "yes"


def run_claimed(worker: Crew | Process, slow: Slow) -> None:
    """Claim, and wait until a slow job has started, without a look whether its claim holds."""
    with reservations_last():
        worker.scheduler.run_once()
        slow.wait_for(1)


def reserve_behind(
    slow: Slow, crew: Crew, reserve: Reserve, monkeypatch: pytest.MonkeyPatch
) -> Job:
    """Let a crew of one thread, which is at a slow job, claim something ahead."""
    hipq.enqueue("slow")
    run_claimed(crew, slow)
    job = reserve(HandWorker("other"))
    with monkeypatch.context() as patch:
        patch.setattr(ThreadPool, "prefetch_slots", lambda self: 1)
        crew.scheduler.run_once()
    assert crew.pool.backlog == 1
    return job


@pytest.mark.parametrize("at", [1, *(pytest.param(at, marks=pytest.mark.nightly) for at in (2, 3))])
def test_a_reservation_about_which_nobody_can_be_asked_goes_back(
    slow: Slow, reserve: Reserve, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """As in an outage: it has not started, so it has not failed."""
    with working(Crew(1)) as crew:
        job = reserve_behind(slow, crew, reserve, monkeypatch)
        crew.breaks_at = at
        wait_for_stale_claims(crew)
        slow.end()
        crew.pool.await_done(PATIENCE_SECONDS)
        crew.scheduler.persist_batch()
    job.refresh_from_db()
    before = (job.is_final, job.worker, job.attempts.count())
    HandWorker().run_until_idle()
    job.refresh_from_db()

    assert crew.broke
    assert before == (False, None, 1 if job.job_data == "decision" else 0)
    assert (job.outcome, job.result) == ("succeeded", "yes")


@pytest.mark.postgres
def test_a_row_that_somebody_has_locked_does_not_keep_a_thread_waiting(
    stuck: Crew, slow: Slow, ran: list[int], session: Session
) -> None:
    wait_for_stale_claims(stuck)
    session.begin()
    session(lambda: Job.objects.filter(job_key="swift").update(priority=7))
    slow.end()
    stuck.pool.await_done(PATIENCE_SECONDS)
    session.roll_back()
    wait_until(lambda: stuck.scheduler.persist_batch() and not stuck.batch.ids)

    assert ran == []


def test_a_job_that_was_claimed_ahead_is_marked_once_it_has_started(
    slow: Slow, monkeypatch: pytest.MonkeyPatch, declare: Declare
) -> None:
    """A worker that dies then has lost it, and its deadline counts from about there."""
    declare("first")(lambda job: None)
    monkeypatch.setattr(ThreadPool, "prefetch_slots", lambda self: 1)
    hipq.enqueue("first")
    job = hipq.enqueue("slow")
    with working(Crew(1)) as crew:
        run_claimed(crew, slow)
        job.refresh_from_db()
        claimed = (job.prefetched, job.deadline)
        wait_for_stale_claims(crew)
        wait_until(lambda: crew.scheduler.run_once() or not prefetched(job))
        job.refresh_from_db()
        slow.end()

    assert claimed[0]
    assert job.deadline == claimed[1] + timedelta(seconds=RESERVATION_SECONDS)


def test_so_are_responses_and_decisions(reserve: Reserve) -> None:
    """A decision has no deadline."""
    job = reserve(HandWorker("other"))
    worker = HandWorker(threads=0, ahead=1)
    worker.run_pass()
    [claim] = worker.claims
    claimed = Job.objects.get(pk=job.pk)
    assert not claim.is_known_as_started

    transitions.mark_started([claim], worker.row)
    started = Job.objects.get(pk=job.pk)

    waited = 0 if job.job_data == "decision" else RESERVATION_SECONDS
    assert (claimed.prefetched, started.prefetched) == (True, False)
    assert claim.is_known_as_started
    assert started.deadline == claimed.deadline + timedelta(seconds=waited)


def prefetched(job: Job) -> bool:
    return Job.objects.get(pk=job.pk).prefetched


def test_with_too_many_results_unwritten_nothing_is_claimed(
    ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current_batch, "MAX_UNWRITTEN", 3)
    hipq.enqueue_many([hipq.NewJob("swift")] * 3)
    with working(Crew(3)) as crew:
        crew.scheduler.run_once()
        crew.pool.await_done(PATIENCE_SECONDS)
        held = crew.pool.free_slots() + crew.pool.prefetch_slots()
        crew.scheduler.persist_batch()

        assert (held, crew.pool.free_slots()) == (0, 3)


# Starts that are counted


@pytest.fixture
def counted(configure_queue: ConfigureQueue, ran: list[int]) -> list[int]:
    """The ids of the jobs that ran in a queue whose starts are counted; three are due."""
    configure_queue(hipq.RateLimit(9, per=60))
    hipq.enqueue_many([hipq.NewJob("swift")] * 3)
    return ran


def test_jobs_whose_starts_are_counted_are_not_reserved(counted: list[int]) -> None:
    """While they wait for a thread, the moments pass until which they were counted."""
    worker = HandWorker(threads=2, ahead=9)

    claimed = worker.run_pass()

    assert [job.prefetched for job in claimed] == [False, False]


def test_a_job_whose_counted_moment_is_over_does_not_start(counted: list[int]) -> None:
    crew = Crew(1)
    crew.scheduler.run_once()
    [claim] = crew.batch
    delay = crew.scheduler.start_delay.seconds
    wait_until(lambda: steady() > claim.start_by)

    is_released(claim, crew)

    assert counted == []
    assert crew.scheduler.start_delay.seconds > delay


def is_released(claim: Claim, crew: Crew) -> None:
    """Let the threads take it up, and see it go back."""
    with working(crew):
        crew.pool.await_done(PATIENCE_SECONDS)
    crew.scheduler.persist_batch()
    job = Job.objects.get(pk=claim.id)
    assert (job.state, job.worker, job.attempts.count()) == ("retry", None, 0)


# Claims that took long


class Clock:
    """A steady clock that a test moves."""

    def __init__(self) -> None:
        self.moment = steady()

    def __call__(self) -> float:
        return self.moment


@pytest.fixture
def moved_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    for module in (batch, admission, context, values):
        monkeypatch.setattr(module, "steady", moved)
    return moved


def is_fresh(claim: Claim, moment: float) -> bool:
    """Whether its handler would start at that moment without another look."""
    claim.started_at = moment
    return claim.is_fresh


SlowClaim = Callable[[str, float, Callable[[], Any]], list[int]]

FAST = pytest.mark.postgres  # the other engine leaves all of it

ROADS = pytest.mark.parametrize(
    ("road", "throttlers", "queue"),
    [
        pytest.param("claim_due", [], {}, marks=FAST),
        pytest.param("finish_and_claim", [], {"THROTTLE_LIMIT": 9}, marks=FAST),
        ("claim", [hipq.KeyLimit("tenant", 9)], {}),
    ],
    ids=["without a limit", "with a limit", "with a throttler"],
)


@pytest.fixture
def slow_claim(monkeypatch: pytest.MonkeyPatch, moved_clock: Clock) -> SlowClaim:
    """Let the statement of a claim take long, and something happen before it is replied to.

    Return a list that grows with each look whether claims hold.
    """
    looks: list[int] = []
    holding = transitions.holding

    def look(claims: Any, *arguments: Any) -> Any:
        looks.append(len(claims))
        return holding(claims, *arguments)

    monkeypatch.setattr(transitions, "holding", look)

    def slow(road: str, seconds: float, meanwhile: Callable[[], Any]) -> list[int]:
        claim = getattr(transitions, road)

        def take_long(*arguments: Any, **options: Any) -> Any:
            claimed = claim(*arguments, **options)
            moved_clock.moment += seconds
            meanwhile()
            return claimed

        monkeypatch.setattr(transitions, road, take_long)
        return looks

    return slow


@ROADS
@pytest.mark.usefixtures("ran")
def test_a_claim_that_took_long_is_as_old_as_one_look_for_all(
    road: str, throttlers: list[Any], queue: dict[str, Any], slow_claim: SlowClaim,
    configure_queue: ConfigureQueue, moved_clock: Clock,
) -> None:  # fmt: skip
    configure_queue(*throttlers, **queue)
    hipq.enqueue_many([hipq.NewJob("swift", {"tenant": 1})] * 3)
    looks = slow_claim(road, 0.9, lambda: None)
    worker = HandWorker()

    worker.run_pass()

    end = moved_clock.moment + RESERVATION_SECONDS
    assert [is_fresh(claim, end) for claim in worker.claims] == [True] * 3
    assert [is_fresh(claim, end + 0.001) for claim in worker.claims] == [False] * 3
    # Where they are checked one by one, the rows are locked until the commit.
    assert looks == ([] if road == "claim" else [3])


@pytest.mark.postgres
@pytest.mark.parametrize("road", ["claim_due", "finish_and_claim"])
@pytest.mark.parametrize(
    "change",
    [
        lambda: Queue.objects.update(paused=True),
        lambda: Job.objects.update(has_pending_answer=True),
        lambda: Job.objects.update(attempt=F("attempt") + 1),
    ],
    ids=["paused", "answered", "another attempt"],
)
def test_what_a_claim_that_took_long_does_not_know_is_seen(
    road: str, change: Callable[[], Any], slow_claim: SlowClaim,
    configure_queue: ConfigureQueue, moved_clock: Clock, ran: list[int],
) -> None:  # fmt: skip
    configure_queue(THROTTLE_LIMIT=9 if road == "finish_and_claim" else 0)
    hipq.enqueue("swift")
    slow_claim(road, 0.11, change)
    worker = HandWorker()

    worker.run_pass()

    [claim] = worker.claims
    assert not is_fresh(claim, moved_clock.moment)


@pytest.fixture
def draining(
    slow: Slow, monkeypatch: pytest.MonkeyPatch, declare: Declare, session: Session
) -> Iterator[Process]:
    """A process that drains, with one thread that is at a job which it had claimed ahead."""
    declare("first")(lambda job: None)
    monkeypatch.setattr(ThreadPool, "prefetch_slots", lambda self: 1)
    hipq.enqueue("first")
    hipq.enqueue("slow", job_key="slow")
    process = Process()
    process.writer = ResultWriter(process.scheduler, lambda: None)
    process.pool.open()
    process.writer.open()
    run_claimed(process, slow)
    assert prefetched(Job.objects.get(job_key="slow"))
    process.stop()
    drained = session.start(process._drain)
    yield process
    slow.end()
    drained.result(PATIENCE_SECONDS)
    process.pool.close()


def test_what_had_started_when_a_worker_that_drains_is_killed_is_lost(draining: Process) -> None:
    """Else it would run again, though `Never()` promises that a lost job does not."""
    job = Job.objects.get(job_key="slow")
    wait_until(lambda: not prefetched(job))

    Worker.objects.filter(pk=draining.worker.pk).update(state="lost")
    recovery.recover_lost(get_instance())

    assert list(job.attempts.values_list("kind", flat=True)) == ["worker_lost"]
