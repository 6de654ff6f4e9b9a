"""One bad row stops only itself: each kind of move, with each kind of cause.

A move is what a worker writes about many rows at once. A trigger of the project's ends the
statement for one of them: it refuses the row, waits in vain for somebody's lock, or takes so long
that the server cancels the statement. The others move. Once the cause is gone, so does that row,
or what was decided about it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

import hipq_django as hipq
from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.isolation import Isolation
from hipq_django.flow.models import NodePort
from hipq_django.maintenance import recovery
from hipq_django.maintenance.early_answers import EarlyAnswers
from hipq_django.models import Job, Schedule
from hipq_django.schedules.firing import Firing
from tests.concurrency.conftest import RAISES, Refuse
from tests.declaring import Declare
from tests.factories import AnswerFactory
from tests.flow.races.conftest import FlowWorker
from tests.passing import Passing
from tests.testapp.flows import Sum

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = ["a", "bad", "b", "c", "d"]
OTHERS = {"a", "b", "c", "d"}
ROUNDS = 12
PATIENCE_SECONDS = 120
"""After how long a row that was left alone is tried again, at the latest."""

CAUSES = {
    "refused": RAISES,
    "locked": "RAISE EXCEPTION 'locked' USING ERRCODE = 'lock_not_available'",
    "cancelled": "RAISE EXCEPTION 'cancelled' USING ERRCODE = 'query_canceled'",
}
if connection.vendor == "sqlite":  # no locks of rows there, and nobody who cancels
    CAUSES = {"refused": RAISES}


class Move:
    """What is written about jobs with these keys, of which one is bad."""

    bad = "NEW.job_key = 'bad'"
    table = "hipq_job"
    when = "UPDATE"

    def __init__(self, declare: Declare) -> None:
        self.worker = FlowWorker()
        self.prepare(declare)

    def prepare(self, declare: Declare) -> None:
        """Bring the rows to where the move is the next thing."""
        for key in KEYS:
            hipq.enqueue("echo", job_key=key)

    def ask(self, declare: Declare) -> None:
        """Let the jobs wait for their answers."""
        declare("asks")(lambda job: hipq.WAIT)
        for key in KEYS:
            hipq.enqueue("asks", job_key=key)
        self.worker.work()

    def step(self) -> None:
        """Try the move."""
        self.worker.run_pass()

    def wait(self) -> None:
        """Let the time pass for which a row is left alone, by the clock that no test moves."""

    def moved(self) -> set[str]:
        """Return the keys of the rows that have moved."""
        return set(Job.objects.final().values_list("job_key", flat=True))

    def settled(self) -> set[str]:
        """Return the keys of the rows that have moved, or about which something is decided."""
        return self.moved()


class Claim(Move):
    bad = f"{Move.bad} AND NEW.state = 'running'"

    def moved(self) -> set[str]:
        return set(Job.objects.running().values_list("job_key", flat=True))


class Start(Move):
    """That jobs have started which were claimed ahead."""

    bad = f"{Move.bad} AND OLD.prefetched AND NOT NEW.prefetched"

    def prepare(self, declare: Declare) -> None:
        super().prepare(declare)
        self.worker = FlowWorker(threads=0, ahead=len(KEYS))
        self.worker.run_pass()
        ahead = list(self.worker.claims)
        for claim in ahead:
            claim.started_at = clock.steady() - 5
        self.worker.executing = lambda: ahead  # type: ignore[method-assign]  # they take long

    def moved(self) -> set[str]:
        started = Job.objects.running().filter(prefetched=False)
        return set(started.values_list("job_key", flat=True))


class HandOut(Move):
    """That responses are given to their handlers."""

    bad = f"{Move.bad} AND NEW.phase = 'response'"

    def prepare(self, declare: Declare) -> None:
        declare("asks")(lambda job: hipq.WAIT).on_response(lambda job, response: response)
        for key in KEYS:
            hipq.enqueue("asks", job_key=key)
        self.worker.work()
        for key in KEYS:
            hipq.complete("asks", key, "yes")

    def step(self) -> None:
        self.worker.work()


class PutOff(Move):
    """That jobs whose windows have closed wait for the next opening."""

    bad = f"{Move.bad} AND NEW.scheduled_run_time <> OLD.scheduled_run_time"

    def prepare(self, declare: Declare) -> None:
        super().prepare(declare)
        self.began = timezone.now()
        opening = self.began + timedelta(hours=12)
        window = f"{opening:%H:%M}-{opening + timedelta(minutes=1):%H:%M}"
        Job.objects.update(time_windows=[window])

    def moved(self) -> set[str]:
        later = Job.objects.filter(scheduled_run_time__gt=self.began)
        return set(later.values_list("job_key", flat=True))


class Result(Move):
    bad = f"{Move.bad} AND NEW.outcome = 'succeeded'"

    def prepare(self, declare: Declare) -> None:
        super().prepare(declare)
        self.worker.run_pass()
        self.worker.execute()

    def step(self) -> None:
        self.worker.save()

    def moved(self) -> set[str]:
        succeeded = Job.objects.filter(outcome="succeeded")
        return set(succeeded.values_list("job_key", flat=True))

    def settled(self) -> set[str]:
        return super().moved()  # a result that is refused fails its attempt


class Decision(Move):
    bad = f"{Move.bad} AND NEW.state = 'retry'"

    def prepare(self, declare: Declare) -> None:
        declare("fails", retry=hipq.Fixed(60))(lambda job: 1 / 0)
        for key in KEYS:
            hipq.enqueue("fails", job_key=key)

    def step(self) -> None:
        self.worker.work()

    def moved(self) -> set[str]:
        return set(Job.objects.filter(state="retry").values_list("job_key", flat=True))


class EarlyAnswer(Move):
    """That answers are given to the jobs they had come before."""

    bad = f"{Move.bad} AND NEW.outcome = 'succeeded'"

    def prepare(self, declare: Declare) -> None:
        self.ask(declare)
        for key in KEYS:
            AnswerFactory.create(job_type="asks", job_key=key, payload=key)
        self.early = EarlyAnswers(get_instance())

    def step(self) -> None:
        self.early.match()


class Fired(Move):
    """That schedules make their jobs."""

    when = "INSERT"

    def prepare(self, declare: Declare) -> None:
        for key in KEYS:
            hipq.schedule(key, hipq.NewJob("echo", job_key=key), hipq.Every(hours=1))
        Schedule.objects.update(next_time=clock.now("default") - timedelta(seconds=1))
        self.firing = Firing(get_instance())

    def step(self) -> None:
        self.firing.run()

    def moved(self) -> set[str]:
        return set(Job.objects.values_list("job_key", flat=True))

    def wait(self) -> None:
        self.firing = Firing(get_instance())  # by another worker, which knows of none

    def settled(self) -> set[str]:
        noted = Schedule.objects.exclude(problem="NONE").values_list("name", flat=True)
        return self.moved() | set(noted)


class TimedOut(Move):
    """A duty, for all of them: attempts that take too long."""

    bad = f"{Move.bad} AND NEW.state = 'error'"

    def prepare(self, declare: Declare) -> None:
        self.ask(declare)
        Job.objects.update(deadline=clock.now("default") - timedelta(seconds=1))
        self.left = Isolation[int]("time_out_overdue")

    def step(self) -> None:
        recovery.time_out_overdue(get_instance(), self.left)

    def moved(self) -> set[str]:
        return set(Job.objects.in_error().values_list("job_key", flat=True))


class RunOfANode(Move):
    """The end of a run, with all that it did."""

    table = "hipq_flow_message"
    when = "INSERT"

    def prepare(self, declare: Declare) -> None:
        self.nodes = {key: flow.start(Sum, data={"number": [1, 2]}) for key in KEYS}
        self.worker.run_pass()
        self.worker.run_pass()
        self.worker.execute()
        port = NodePort.objects.get(node=self.nodes["bad"], name="out")
        self.bad = f"NEW.port_id = {port.pk}"

    def step(self) -> None:
        self.worker.save()

    def moved(self) -> set[str]:
        return {key for key, node in self.nodes.items() if node.status == "completed"}

    def settled(self) -> set[str]:
        return {key for key, node in self.nodes.items() if node.status in ("completed", "failed")}


MOVES = [Claim, Start, HandOut, PutOff, Result, Decision, EarlyAnswer, Fired, TimedOut, RunOfANode]


@pytest.fixture(params=CAUSES)
def cause(request: pytest.FixtureRequest) -> Iterator[Refuse]:
    """What ends the statements that write the bad row."""
    refuse = Refuse(CAUSES[request.param])
    yield refuse
    refuse.end()


@pytest.mark.parametrize("kind", MOVES, ids=lambda kind: kind.__name__)
def test_one_bad_row_stops_only_itself(
    kind: type[Move],
    cause: Refuse,
    declare: Declare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    move, time = kind(declare), Passing(monkeypatch)
    cause(move.bad, move.table, move.when)

    for _ in range(ROUNDS):
        move.step()
        time.seconds += 1
    assert move.moved() == OTHERS

    cause.end()
    time.seconds += PATIENCE_SECONDS
    move.wait()
    for _ in range(ROUNDS):
        move.step()
    assert move.settled() == set(KEYS)
