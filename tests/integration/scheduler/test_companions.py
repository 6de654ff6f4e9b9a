"""What else is read and written with the jobs of some types, by a toy that knows nothing of flows.

Its rows are groups of Django's users: any rows of the same database would do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django import extensions
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.states import Phase
from hipq_django.extensions import Extension
from hipq_django.maintenance import recovery
from hipq_django.models import Job, Worker
from hipq_django.scheduler import companions
from hipq_django.scheduler.companions import Persist
from hipq_django.transitions.values import Claim, Persisted, Result, Succeeded, all_of, refused
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)

KIND = "toy"


class Toy(Extension):
    """Doubles numbers, and notes each result in a row of its own."""

    kind = KIND

    def __init__(self) -> None:
        self.companion = self
        self.prepared: list[int] = []
        """How many claims each batch had."""
        self.called: list[Phase] = []
        self.fails_to: set[str] = set()
        self.asked = 0
        """How often it was asked what is due."""

    def _may_fail(self, verb: str) -> None:
        if verb in self.fails_to:
            raise OperationalError(f"as asked: {verb}")

    def prepare(self, claims: Sequence[Claim]) -> None:
        self._may_fail("prepare")
        self.prepared.append(len(claims))
        for claim in claims:
            claim.extra = {"number": claim.job.job_data}

    def call(self, claim: Claim) -> Any:
        self.called.append(claim.phase)
        claim.extra = claim.extra or {"number": claim.job.job_data}
        if claim.phase is Phase.RESPONSE:
            return claim.response
        number = claim.extra["number"]
        return hipq.WAIT if number == "ask" else 2 * number

    def write(
        self, results: Sequence[Result], worker: Worker, now: datetime, persist: Persist
    ) -> Iterator[Persisted]:
        with worker_transaction(worker.using):
            persisted = all_of(persist(results, worker, now))
            for result in persisted.written:
                if isinstance(result, Succeeded):
                    Group.objects.create(name=f"{result.claim.id} gave {result.value}")
            self._may_fail("write")
        yield persisted

    def instead_of(self, result: Result, error: Exception) -> Result:
        return refused(result, error)

    def jobs_given_up(self, ids: Collection[int], using: str) -> None:
        own = Job.objects.using(using).filter(pk__in=ids, job_type__kind=KIND)
        for pk in own.values_list("pk", flat=True):
            Group.objects.create(name=f"{pk} was ended")

    def stir(self, config: InstanceSettings) -> int:
        self.asked += 1
        wishes = Group.objects.filter(name__startswith="wish ")
        for wish in wishes:
            hipq.enqueue("toy", int(wish.name.removeprefix("wish ")), instance=config.name)
            wish.delete()
            companions.put_first(["default"])
        return len(wishes)

    def sweep(self, config: InstanceSettings) -> int:
        lost = Group.objects.filter(name=f"lost in {config.name}")
        return lost.delete()[0]


def noted() -> list[str]:
    return list(Group.objects.order_by("pk").values_list("name", flat=True))


@pytest.fixture
def toy(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The only companion that there is, as in a project without flows."""
    toy = Toy()
    monkeypatch.setattr(extensions, "registered", [toy])

    def handler(job: Job) -> Any:
        raise AssertionError("the companion of its kind calls the code")

    declared = declare("toy")(handler)
    declared.kind = KIND
    declared.set_response_handler(handler)
    declare("plain")(lambda job: job.job_data)
    return toy


def test_jobs_are_read_together_and_written_with_what_is_beside_them(toy: Toy) -> None:
    jobs = [hipq.enqueue("toy", number) for number in (1, 2, 3)]
    hipq.enqueue("plain", 4)
    HandWorker().work()

    assert toy.prepared == [3]
    assert noted() == [f"{job.pk} gave {2 * n}" for n, job in enumerate(jobs, 1)]
    results = Job.objects.order_by("pk").values_list("result", flat=True)
    assert list(results) == [2, 4, 6, 4]


def test_a_queue_in_which_a_companion_has_enqueued_is_served_without_a_probe(toy: Toy) -> None:
    hipq.enqueue("toy", 4)
    worker = HandWorker()
    worker.run_until_idle()
    Group.objects.create(name="wish 3")
    with CaptureQueriesContext(connection) as queries:
        worker.run_pass()
    worker.execute()
    worker.save()

    assert [group.partition(" gave ")[2] for group in noted()] == ["8", "6"]
    texts = [query["sql"] for query in queries]
    assert not [text for text in texts if "probe_queues" in text or "first_rank" in text]


def test_code_is_called_although_nothing_could_be_read_before(toy: Toy) -> None:
    toy.fails_to.add("prepare")
    job = hipq.enqueue("toy", 1)
    HandWorker().work()

    assert noted() == [f"{job.pk} gave 2"]


@pytest.mark.conformance
def test_a_job_and_what_is_beside_it_end_in_one_transaction(toy: Toy) -> None:
    job, worker = hipq.enqueue("toy", 1), HandWorker()
    worker.run_pass()
    worker.execute()
    toy.fails_to.add("write")
    with pytest.raises(OperationalError):
        worker.save()
    job.refresh_from_db()
    assert (job.state, noted()) == ("running", [])

    toy.fails_to.clear()
    worker.save()
    job.refresh_from_db()
    assert (job.outcome, noted()) == ("succeeded", [f"{job.pk} gave 2"])


class Clock:
    """A steady clock that stands still, unless the toy is asked: that takes a millisecond."""

    def __init__(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self._toy = toy
        self._stir = toy.stir
        monkeypatch.setattr(companions, "steady", lambda: self.now)
        monkeypatch.setattr(companions, "_stirs", companions._Stirs())
        monkeypatch.setattr(toy, "stir", self._stir_slowly)

    def _stir_slowly(self, config: InstanceSettings) -> int:
        self.now += 0.001
        return self._stir(config)

    def asks(self, *, is_busy: bool = True) -> bool:
        """Whether the worker asks the toy what is due."""
        before = self._toy.asked
        companions.stir(get_instance(), companions.steps_left_alone(), is_busy=is_busy)
        return self._toy.asked > before


@pytest.fixture
def clock(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(toy, monkeypatch)


def test_who_lost_a_job_writes_nothing_beside_it(toy: Toy) -> None:
    job, worker, other = hipq.enqueue("toy", 1), HandWorker(), HandWorker()
    worker.run_pass()
    worker.execute()
    worker.die()
    recovery.recover_lost(get_instance("default"))
    other.run_until_idle()
    worker.save()

    assert noted() == [f"{job.pk} gave 2"]


def test_an_answer_goes_to_the_companion(toy: Toy) -> None:
    job = hipq.enqueue("toy", "ask", job_key="one")
    worker = HandWorker()
    worker.work()
    assert noted() == []
    hipq.complete("toy", "one", "said")
    worker.run_until_idle()

    assert toy.called == [Phase.REQUEST, Phase.RESPONSE]
    assert noted() == [f"{job.pk} gave said"]


def cancel(job: Job) -> None:
    hipq.cancel(job)


def time_out(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(deadline=job.update_time)
    recovery.time_out_overdue(get_instance("default"))
    HandWorker().run_until_idle()


@pytest.mark.conformance
@pytest.mark.parametrize("end", [cancel, time_out])
def test_an_end_by_others_is_told_in_its_transaction(toy: Toy, end: Callable[[Job], None]) -> None:
    job = hipq.enqueue("toy", "ask", timeout=60)
    HandWorker().work()
    job.refresh_from_db()
    with transaction.atomic():
        end(job)
        assert noted() == [f"{job.pk} was ended"]
        transaction.set_rollback(True)
    assert noted() == []

    end(job)
    assert noted() == [f"{job.pk} was ended"]


def test_the_test_kit_stirs_and_sweeps(toy: Toy) -> None:
    for name in ("wish 1", "lost in default"):
        Group.objects.create(name=name)
    run_due_jobs()

    assert noted() == [f"{Job.objects.get().pk} gave 2"]
