"""Each statement and each commit of each kind of pass fails in turn: nothing is forgotten.

A connection breaks before a statement reaches the database, or after it was executed, when only
its reply gets lost; or the code around the statement raises. Whatever was in flight is written by a
later pass or given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.domain.states import Phase
from hipq_django.maintenance import early_answers, recovery
from hipq_django.models import Answer, Attempt, Job, Queue, Worker
from hipq_django.scheduler import admission
from hipq_django.transitions.values import Released
from tests.declaring import Declare
from tests.factories import AnswerFactory
from tests.faults import IN_TURN, Faults, InTurn, breaking
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 30

Prepare = Callable[[], HandWorker]


class Kinds:
    """The kinds of passes, each as the worker that is about to do one."""

    def __init__(self, declare: Declare, configure_queue: ConfigureQueue) -> None:
        self._configure_queue = configure_queue
        self.runs: dict[tuple[int, int], int] = {}
        """How often the handler of each attempt ran."""
        declare("plain")(self._noting({"done": True}))
        declare("waits")(self._noting(hipq.WAIT))
        declare("parts")(self._noting(hipq.WAIT_FOR("one", "two")))
        declare("snoozes")(self._snooze)
        declare("gives_up", retry=hipq.Never())(self._raise)
        declare("again", retry=hipq.Fixed(0, max_attempts=3))(self._raise)
        asked = declare("asks")(self._raise)
        asked.on_error(lambda job: hipq.RetryIn(3_600, resend=True))
        handled = declare("handled")(self._noting(hipq.WAIT))
        handled.on_response(lambda job, response: response)

    def _noting(self, result: Any) -> Callable[[Job], Any]:
        def handler(job: Job) -> Any:
            place = (job.pk, job.attempt)
            self.runs[place] = self.runs.get(place, 0) + 1
            return result

        return handler

    def _raise(self, job: Job) -> None:
        self._noting(None)(job)
        raise OSError("down")

    def _snooze(self, job: Job) -> None:
        self._noting(None)(job)
        raise hipq.Snooze(3_600)

    def claims(self) -> HandWorker:
        """Jobs of two queues that need no look."""
        for queue in ("default", "other"):
            hipq.enqueue_many([hipq.NewJob("plain", queue=queue) for _ in range(3)])
        return HandWorker(threads=3, ahead=2)

    def due_times(self) -> HandWorker:
        """Jobs of schedules, whose zones are looked up."""
        hipq.schedule("s", hipq.NewJob("plain"), hipq.Cron("0 1 * * *", overlap="allow"))
        for _ in range(3):
            hipq.run_schedule("s")
        return HandWorker(threads=3)

    def results(self) -> HandWorker:
        """One result of every kind."""
        for name in ("plain", "waits", "parts", "snoozes", "gives_up", "again", "asks"):
            hipq.enqueue(name, job_key=name)
        released = hipq.enqueue("plain")
        worker = HandWorker()
        claim_all(worker)
        [claim] = [claim for claim in worker.claims if claim.id == released.pk]
        worker.claims.remove(claim)
        worker.execute()
        worker.batch.deliver(Released(claim, "Released: a test"))
        return worker

    def decisions(self) -> HandWorker:
        """Jobs in error: about one a retry handler decides, about another a policy."""
        for name in ("asks", "again", "gives_up"):
            hipq.enqueue(name, job_key=name)
            hipq.enqueue("waits", job_key=f"waits {name}")
        first = HandWorker()
        first.work()
        for name in ("asks", "again", "gives_up"):
            hipq.fail("waits", f"waits {name}", "no")
        worker = HandWorker()
        claim_all(worker)
        worker.execute()
        return worker

    def responses(self) -> HandWorker:
        """Responses whose handlers are due, and one that ran."""
        for key in ("one", "two", "three"):
            hipq.enqueue("handled", job_key=key)
        HandWorker().work()
        hipq.complete("handled", "one", 1)
        worker = HandWorker()
        worker.run_pass()
        worker.execute()
        for key in ("two", "three"):
            hipq.complete("handled", key, key)
        return worker

    def early(self) -> HandWorker:
        """Jobs whose answers are there before them."""
        hipq.complete("waits", "early", "yes")
        hipq.complete("handled", "early", "yes")
        for name in ("waits", "handled"):
            hipq.enqueue(name, job_key="early")
        return HandWorker()

    def refill(self) -> HandWorker:
        """A full queue: results of all kinds, and jobs that wait for their room."""
        self._configure_queue(THROTTLE_LIMIT=5)
        for name in ("plain", "plain", "gives_up", "again", "snoozes", "plain", "plain", "plain"):
            hipq.enqueue(name)
        worker = HandWorker()
        claim_all(worker)
        worker.execute()
        assert worker.scheduler.full_queues
        return worker

    def throttled(self) -> HandWorker:
        """Jobs that throttlers hold, let run and reschedule, and one whose window is open."""
        self._configure_queue(hipq.KeyLimit("tenant", 1), hipq.RateLimit(30, per=3_600))
        for tenant in (1, 1, 2, 3, 4):
            hipq.enqueue("plain", {"tenant": tenant}, time_windows=["00:00-24:00"])
        return HandWorker()

    def duties(self) -> HandWorker:
        """What duties look after: what a lost worker had in flight, and what nobody else finds."""
        for name in ("plain", "asks", "handled"):
            hipq.enqueue(name, job_key=name)
        HandWorker().work()
        hipq.complete("handled", "handled", "yes")
        hipq.enqueue_many([hipq.NewJob("plain") for _ in range(2)])
        dead = HandWorker(threads=3, ahead=2)
        claim_all(dead)
        assert len(dead.claims) == 4  # a decision, a response, a job, and one ahead
        dead.die()
        for key in ("overdue", "answered"):
            hipq.enqueue("waits", job_key=key)
        HandWorker().work()
        Job.objects.filter(job_key="overdue").update(deadline=timezone.now() - timedelta(hours=1))
        AnswerFactory.create(job_type="waits", job_key="answered")
        return HandWorker()


def claim_all(worker: HandWorker) -> None:
    """Claim all that may start; one pass looks at a page."""
    while worker.run_pass():
        pass


PASSES = [
    (OperationalError, ("throttled",)),  # alone: the settings of a queue stay
    (OperationalError, ("refill", "claims", "due_times", "early")),
    (OperationalError, ("results", "decisions", "responses")),
    (OperationalError, ("duties",)),
    # Two are enough to see that it need not be an error of the database.
    (ValueError, ("refill", "responses")),
]


@pytest.fixture
def kinds(declare: Declare, configure_queue: ConfigureQueue) -> Kinds:
    return Kinds(declare, configure_queue)


@IN_TURN
@pytest.mark.parametrize(("error", "names"), PASSES)
def test_each_moment_of_a_pass_may_break_the_connection(
    kinds: Kinds, error: type[Exception], names: Sequence[str], in_turn: InTurn
) -> None:
    known: set[str] = set()
    for name in names:
        in_turn(partial(Broken(kinds, name), error), known)


class Broken:
    """Passes of a kind, each of which is broken somewhere."""

    def __init__(self, kinds: Kinds, name: str) -> None:
        self._kinds = kinds
        self._prepare: Prepare = getattr(kinds, name)
        self._act = do_duties if name == "duties" else run_pass
        self._expected: list[Any] = []
        empty_tables()
        self._prepare().scheduler.run_once()  # the first one also asks what the database has

    def __call__(self, error: type[Exception], at: int) -> Faults:
        empty_tables()
        self._kinds.runs.clear()
        worker = self._prepare()
        with breaking(at, error) as faults:
            self._act(worker)
        nothing_is_forgotten(worker, self._kinds, faults.place)
        come_to_rest(worker)
        self._expected = self._expected or outcome()  # at first nothing breaks
        assert outcome() == self._expected, faults.place
        assert max(self._kinds.runs.values(), default=1) == 1, faults.place
        return faults


def run_pass(worker: HandWorker) -> None:
    try:
        worker.scheduler.run_once()
    except Exception:
        connection.close()


def do_duties(worker: HandWorker) -> None:
    """Do the duties that move jobs; one that fails is done another time."""
    config = get_instance()
    for duty in (
        partial(recovery.time_out_overdue, config),
        partial(recovery.recover_lost, config),
        early_answers.EarlyAnswers(config).match,
        worker.scheduler.release_unconfirmed,
    ):
        try:
            duty()
        except Exception:
            connection.close()


def empty_tables() -> None:
    with transaction.atomic():
        for model in (Attempt, Answer, Job, Worker):
            model.objects.all().delete()
        Queue.objects.update(throttler_state={}, throttler_problem="NONE")


def nothing_is_forgotten(worker: HandWorker, kinds: Kinds, place: str) -> None:
    """What ran is in flight until it is written."""
    in_flight = worker.batch.attempts()
    for row in Job.objects.filter(worker=worker.row):
        claimed = (row.pk, row.attempt) in in_flight
        assert claimed or not was_executed(kinds, row), f"{place}: job {row.pk} is forgotten"


def was_executed(kinds: Kinds, row: Job) -> bool:
    """Whether the handler of an attempt that is still running has ended."""
    is_in_handler = row.state == Job.State.RUNNING and row.phase == Phase.REQUEST
    return is_in_handler and (row.pk, row.attempt) in kinds.runs


def come_to_rest(worker: HandWorker) -> None:
    """Let the worker go on, with a sound connection, until there is nothing left to do."""
    for _ in range(ROUNDS):
        do_duties(worker)
        worker.run_pass()
        worker.execute()
        if not worker.batch and worker.scheduler.found_nothing:
            break
    assert worker.batch.ids == []
    assert not Job.objects.filter(worker__isnull=False).exists()


def outcome() -> list[Any]:
    """Return what became of the jobs, whatever their ids are."""
    rows = Job.objects.order_by("pk").select_related("job_type")
    return [
        (row.job_type.name, row.state, row.outcome, row.result, row.attempts.count())
        for row in rows
    ]


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "PAGE_SIZE", 4)
