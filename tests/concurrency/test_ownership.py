"""Each statement and each commit of each kind of pass fails in turn: nothing is forgotten.

A connection breaks before a statement reaches the database, or after it was executed, when only
its reply gets lost. Whatever was in hand is written by a later pass or given back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from django.db import Error, connection, transaction

import hipq_django as hipq
from hipq_django.domain.states import Phase
from hipq_django.models import Answer, Attempt, Job, Queue
from hipq_django.scheduler import admission
from hipq_django.transitions.values import Released
from tests.declaring import Declare
from tests.faults import breaking
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue

pytestmark = pytest.mark.django_db(transaction=True)

MAX_MOMENTS = 400
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


def claim_all(worker: HandWorker) -> None:
    """Claim all that may start; one pass looks at a page."""
    while worker.run_pass():
        pass


KINDS = ("claims", "due_times", "results", "decisions", "responses", "early", "refill", "throttled")


@pytest.fixture
def kinds(declare: Declare, configure_queue: ConfigureQueue) -> Kinds:
    return Kinds(declare, configure_queue)


@pytest.fixture(params=KINDS)
def prepare(request: pytest.FixtureRequest, kinds: Kinds) -> Prepare:
    prepare: Prepare = getattr(kinds, request.param)
    return prepare


def test_each_moment_of_a_pass_may_break_the_connection(prepare: Prepare, kinds: Kinds) -> None:
    prepare().scheduler.run_once()  # the first one of a process also asks what the database has
    expected = None
    for at in count():
        assert at < MAX_MOMENTS, "the pass has no end"
        empty_tables()
        kinds.runs.clear()
        worker = prepare()
        with breaking(at) as faults:
            run_pass(worker)
        nothing_is_forgotten(worker, kinds, faults.place)
        come_to_rest(worker)
        ended = outcome(worker)
        if at == 0:
            expected = ended  # nothing breaks
            continue
        assert ended == expected, faults.place
        assert max(kinds.runs.values(), default=1) == 1, faults.place
        if not faults.place:
            break


def run_pass(worker: HandWorker) -> None:
    try:
        worker.scheduler.run_once()
    except Error:
        connection.close()


def empty_tables() -> None:
    with transaction.atomic():
        for model in (Attempt, Answer, Job):
            model.objects.all().delete()
        Queue.objects.update(throttler_state={}, throttler_problem="NONE")


def nothing_is_forgotten(worker: HandWorker, kinds: Kinds, place: str) -> None:
    """What ran is in hand until it is written."""
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
        moved = worker.scheduler.release_unconfirmed()
        worker.run_pass()
        worker.execute()
        if not (moved or worker.batch) and worker.scheduler.found_nothing:
            break
    assert worker.batch.ids == []
    assert not Job.objects.filter(worker__isnull=False).exists()


def outcome(worker: HandWorker) -> list[Any]:
    """Return what became of the jobs, whatever their ids are."""
    rows = Job.objects.order_by("pk").select_related("job_type")
    return [
        (row.job_type.name, row.state, row.outcome, row.result, row.attempts.count())
        for row in rows
    ]


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "PAGE_SIZE", 4)
