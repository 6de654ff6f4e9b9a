"""Jobs that were executing when workers died: one may have killed them, the others not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.domain.retries import RetryPolicy
from hipq_django.domain.suspects import is_suspect
from hipq_django.exceptions import WorkerLost
from hipq_django.maintenance import recovery
from hipq_django.models import Job, Queue, Worker
from hipq_django.transitions.values import Released
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue

pytestmark = pytest.mark.django_db

POLICIES = [None, hipq.Fixed(seconds=0, max_attempts=9)]


def suspects(*data: Any) -> list[Job]:
    """Enqueue jobs that were executing when a worker died, and again when the next one did."""
    jobs = hipq.enqueue_many([hipq.NewJob("echo", one) for one in data])
    lose_twice()
    return jobs


def lose_twice() -> None:
    for _ in range(2):
        recover_all(HandWorker.crashed())


def recover_all(worker: HandWorker) -> None:
    """Let the worker be dead, and others decide about what it had in flight; nothing is claimed."""
    worker.die()
    recovery.recover_lost(get_instance())
    decide()


def decide() -> None:
    """Decide about all errors, and claim nothing."""
    Queue.objects.update(paused=True)
    HandWorker().work()
    Queue.objects.update(paused=False)


def names(jobs: Sequence[Job]) -> list[Any]:
    return [job.job_data for job in jobs]


def kinds(job: Job) -> list[str]:
    return list(job.attempts.order_by("attempt").values_list("kind", flat=True))


# What is claimed


def claim_and_release_one() -> None:
    """Let a worker claim a job, and stop before it has started."""
    worker = HandWorker()
    worker.run_pass()
    worker.batch.deliver(Released(worker.claims.pop(), "Released: the worker stopped"))
    worker.save()


def claim_and_release_without_knowing() -> None:
    """Let a worker claim a job, and lose the reply to that commit."""
    worker = HandWorker()
    worker.run_pass()
    worker.batch.discard(list(worker.batch))
    assert worker.scheduler.release_unconfirmed() == 1


@pytest.mark.conformance
@pytest.mark.parametrize("release_one", [claim_and_release_one, claim_and_release_without_knowing])
def test_a_suspect_that_was_released_is_to_blame_for_the_next_loss(
    release_one: Callable[[], None],
) -> None:
    [suspect] = suspects("a")
    release_one()
    other = hipq.enqueue("echo", "b")

    recover_all(HandWorker.crashed())

    assert (kinds(suspect), kinds(other)) == (["worker_lost"] * 3, ["bystander"])


def test_a_worker_executes_one_suspect_at_a_time() -> None:
    suspects("a", "b", "c")
    worker = HandWorker()

    first = worker.run_pass()
    while_it_runs = worker.run_pass()
    worker.execute()
    second = worker.run_pass()

    assert (names(first), names(while_it_runs), names(second)) == (["a"], [], ["b"])


def test_a_first_loss_makes_no_suspects() -> None:
    """A machine that goes away takes all that it executes with it."""
    hipq.enqueue_many([hipq.NewJob("echo", n) for n in range(24)])
    recover_all(HandWorker.crashed())

    assert len(HandWorker(threads=24).run_pass()) == 24


def test_another_worker_executes_the_next_suspect() -> None:
    suspects("a", "b")
    workers = HandWorker(), HandWorker()

    assert [names(worker.run_pass()) for worker in workers] == [["a"], ["b"]]


@pytest.mark.parametrize("limit", [0, 3])
def test_suspects_that_wait_for_their_turn_hold_back_nobody(
    configure_queue: ConfigureQueue, limit: int
) -> None:
    """However few jobs a worker looks at, and however many suspects stand before them."""
    configure_queue(THROTTLE_LIMIT=limit)
    suspects(*range(3))
    hipq.enqueue_many([hipq.NewJob("echo", name) for name in ("x", "y")])
    worker = HandWorker(threads=3)

    claimed = worker.run_pass() + worker.run_pass()

    assert sorted(map(str, names(claimed))) == ["0", "x", "y"]


def test_a_suspect_that_waits_says_why() -> None:
    _, waiting = suspects("a", "b")
    Worker.objects.update(state=Worker.State.STOPPED)
    worker = HandWorker()
    before = hipq.explain(waiting)

    worker.run_pass()

    assert "suspect" not in [reason.code for reason in before]
    assert hipq.explain(waiting)[0].code == "suspect"
    HandWorker()
    assert hipq.explain(waiting) == []


def test_a_job_that_ran_to_another_end_is_no_suspect(declare: Declare) -> None:
    declare("flaky", retry=hipq.Fixed(seconds=0))(lambda job: 1 / 0)
    for _ in range(2):
        hipq.enqueue("flaky")
    lose_twice()
    workers = HandWorker(), HandWorker()
    assert [len(worker.run_pass()) for worker in workers] == [1, 1]
    for worker in workers:
        worker.execute()
        worker.save()
    decide()

    assert len(HandWorker().run_pass()) == 2


# What counts


def test_to_be_beside_a_suspect_is_to_be_on_a_lost_worker_too() -> None:
    """So that two killers never hide behind each other again."""
    suspects("killer")
    other = hipq.enqueue("echo", "other")
    lose_twice()

    other.refresh_from_db()
    assert kinds(other) == ["bystander", "worker_lost"]
    assert is_suspect(other.error)


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [(hipq.Fixed(seconds=0, max_attempts=1), "succeeded"), (hipq.Never(), "failed")],
)
def test_a_bystander_has_not_used_up_an_attempt(
    declare: Declare, policy: RetryPolicy, outcome: str
) -> None:
    """Never means never also for a bystander: its request may have been sent."""
    suspects("a")
    declare("careful", retry=policy)(lambda job: "done")
    careful = hipq.enqueue("careful")
    worker = HandWorker()
    worker.run_pass()
    worker.run_pass()
    recover_all(worker)

    HandWorker().run_until_idle()

    careful.refresh_from_db()
    assert (careful.outcome, kinds(careful)) == (outcome, ["bystander"])


def test_the_response_of_a_bystander_is_not_thrown_away(declare: Declare) -> None:
    suspects("a")
    ask = declare("careful_ask", retry=hipq.Never())(lambda job: hipq.WAIT)
    ask.on_response(lambda job, response: response)
    asked = hipq.enqueue("careful_ask", job_key="k")
    other = HandWorker()
    while not Job.objects.filter(pk=asked.pk, state="running", worker=None).exists():
        other.run_pass()
        other.claims, rest = [c for c in other.claims if c.id == asked.pk], other.claims
        other.execute()
        other.save()
        other.claims = rest
    hipq.complete("careful_ask", "k", response="yes")
    other.run_pass()
    recover_all(other)

    HandWorker().run_until_idle()

    asked.refresh_from_db()
    assert (asked.outcome, asked.result) == ("succeeded", "yes")
    assert "bystander" in kinds(asked)


@pytest.mark.conformance
@pytest.mark.parametrize("policy", POLICIES)
def test_a_killer_ends_after_its_third_loss_and_no_innocent_does(
    declare: Declare, policy: RetryPolicy | None
) -> None:
    """Each worker dies whose batch the killer is in."""
    declare("victim", retry=policy)(lambda job: "done")
    innocent = [hipq.enqueue("victim") for _ in range(3)]
    killer = hipq.enqueue("victim")
    innocent += [hipq.enqueue("victim") for _ in range(4)]

    for _ in range(40):
        worker = HandWorker(threads=8)
        worker.run_pass()
        worker.run_pass()
        if any(claim.id == killer.pk and claim.phase == "request" for claim in worker.claims):
            recover_all(worker)
        else:
            worker.execute()
            worker.save()
        if not Job.objects.live().exists():
            break

    killer.refresh_from_db()
    assert (killer.outcome, kinds(killer)) == ("failed", ["worker_lost"] * 3)
    for job in innocent:
        job.refresh_from_db()
        assert job.outcome == "succeeded"
        assert kinds(job).count("worker_lost") <= 2


# What was snoozed in between


def lose_and_poll(job: Job, times: int) -> None:
    """Let a job lose its worker, and snooze at the next attempt, so many times."""
    for _ in range(times):
        recover_all(HandWorker.crashed())
        assert [each.pk for each in HandWorker().work()] == [job.pk]


@pytest.mark.parametrize("policy", POLICIES)
def test_losses_between_which_a_job_was_snoozed_are_not_in_a_row(
    declare: Declare, policy: RetryPolicy | None
) -> None:
    """A job may poll for months, and each deployment may kill its worker."""

    @declare("polls", retry=policy)
    def polls(job: Job) -> None:
        raise hipq.Snooze(0)

    job = hipq.enqueue("polls")

    lose_and_poll(job, 4)

    job.refresh_from_db()
    assert (job.state, kinds(job)) == ("retry", ["worker_lost"] * 4)


# What a retry handler does


def deciding(job: Job) -> HandWorker:
    """Return a worker that has taken up the decision about a job in error, beside other jobs."""
    worker = HandWorker()
    worker.run_pass()
    assert [claim.id for claim in worker.claims if claim.phase == Job.Phase.DECISION] == [job.pk]
    return worker


def lose(worker: HandWorker) -> None:
    worker.die()
    recovery.recover_lost(get_instance())


@pytest.fixture
def failed(declare: Declare) -> Job:
    """A job in error, about which a retry handler is to decide."""
    declare("deadly")(lambda job: 1 / 0).on_error(lambda job: hipq.RetryIn(0))
    job = hipq.enqueue("deadly")
    HandWorker().work()
    return job


def test_a_retry_handler_that_kills_three_workers_ends_its_job(
    failed: Job, caplog: pytest.LogCaptureFixture, django_capture_on_commit_callbacks: Any
) -> None:
    for _ in range(2):
        lose(deciding(failed))
        failed.refresh_from_db()
        assert (failed.state, failed.worker) == ("error", None)

    with django_capture_on_commit_callbacks(execute=True):
        lose(deciding(failed))

    failed.refresh_from_db()
    assert (failed.state, failed.outcome) == ("final", "failed")
    assert "ZeroDivisionError" in str(failed.error)
    [said] = [r for r in caplog.records if getattr(r, "event", "") == "job_failed"]
    assert 'error="ZeroDivisionError: division by zero"' in said.getMessage()
    assert said.exc_info is not None
    assert isinstance(said.exc_info[1], WorkerLost)
    assert type(said.exc_info[1].__cause__).__name__ == "ZeroDivisionError"


def test_beside_a_suspect_decision_nobody_is_to_blame(failed: Job) -> None:
    lose(deciding(failed))
    innocent = hipq.enqueue("echo")
    lose(deciding(failed))

    assert kinds(innocent) == ["bystander"]


def test_a_worker_takes_up_one_suspect_decision_at_a_time(declare: Declare) -> None:
    declare("deadly")(lambda job: 1 / 0).on_error(lambda job: hipq.RetryIn(0))
    hipq.enqueue_many([hipq.NewJob("deadly") for _ in range(3)])
    HandWorker().work()
    worker = HandWorker()
    worker.run_pass()
    lose(worker)

    worker = HandWorker()
    taken = [len(worker.run_pass()) for _ in range(3)]

    assert taken == [1, 0, 0]


@pytest.mark.parametrize("ahead", [0, 2])
def test_suspect_decisions_that_wait_for_their_turn_hold_back_no_other(
    declare: Declare, ahead: int
) -> None:
    """However long the first one takes, and however few jobs a worker looks at."""
    declare("deadly")(lambda job: 1 / 0).on_error(lambda job: hipq.RetryIn(0))
    jobs = hipq.enqueue_many([hipq.NewJob("deadly") for _ in range(4)])
    HandWorker().work()
    dying = HandWorker(threads=3)
    dying.run_pass()
    lose(dying)
    worker = HandWorker(threads=1 if ahead else 3, ahead=ahead)

    taken = [[job.pk for job in worker.run_pass()] for _ in range(3)]

    assert taken == [[jobs[0].pk], [jobs[3].pk], []]
