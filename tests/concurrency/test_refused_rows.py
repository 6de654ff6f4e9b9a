"""A row whose move the database refuses stops only itself, in whatever duty."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock, refused_rows
from hipq_django.database.refused_rows import RefusedRows
from hipq_django.dependencies.unholding import Sweep
from hipq_django.maintenance import early_answers, recovery, reranking, retention
from hipq_django.maintenance.duties import Duties, Duty
from hipq_django.models import Answer, Attempt, Job, JobType, Queue, Worker
from hipq_django.processes.troubles import Troubles
from tests.concurrency.conftest import Refuse
from tests.declaring import Declare
from tests.factories import AnswerFactory
from tests.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def refuse(refuse_or_skip: Refuse) -> Refuse:
    """Let the database refuse rows, or pass over them."""
    return refuse_or_skip


KEYS = ["a", "refused", "b", "c", "d"]
OTHERS = [key for key in KEYS if key != "refused"]


def of_keys(job_type: str = "echo", **options: Any) -> list[Job]:
    """Enqueue a job for each of the keys, one of which will be refused."""
    return [hipq.enqueue(job_type, job_key=key, **options) for key in KEYS]


def keys(**values: Any) -> list[str]:
    """Return the keys of the jobs with these values."""
    return list(Job.objects.filter(**values).order_by("pk").values_list("job_key", flat=True))


def decide() -> None:
    """Decide about all errors, and claim nothing."""
    Queue.objects.update(paused=True)
    HandWorker().work()
    Queue.objects.update(paused=False)


def lose_twice() -> None:
    """Make suspects of all jobs: two workers in a row die that execute them."""
    for _ in range(2):
        HandWorker.crashed()
        recovery.recover_lost(get_instance())
        decide()


def refused_in(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """Return of which rows the log says that they are refused, and to which duties."""
    said = [r for r in caplog.records if getattr(r, "event", "") == "row_refused"]
    fields = [r.__dict__ for r in said]
    # Of the error only the first line: behind it PostgreSQL may quote the values of the row.
    assert all(one["error"] and "\n" not in one["error"] and not one["exc_info"] for one in fields)
    return [(one["duty"], one.get("job_id") or one["answer_id"]) for one in fields]


def test_a_job_that_may_not_fail_stops_no_takeover(
    refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = of_keys()
    HandWorker.crashed()
    refuse("NEW.state = 'error' AND NEW.job_key = 'refused'")
    left = RefusedRows("recover_lost")

    taken = [recovery.recover_lost(get_instance(), refused=left) for _ in range(2)]

    assert (taken, keys(state="error")) == ([4, 0], OTHERS)
    assert refused_in(caplog) == [("recover_lost", jobs[1].pk)]
    assert str(left.error).startswith(f"job_id={jobs[1].pk} left alone: ")


def test_who_is_to_blame_does_not_depend_on_the_parts_of_a_takeover(refuse: Refuse) -> None:
    suspect = hipq.enqueue("echo", job_key="suspect")
    lose_twice()
    of_keys()
    HandWorker.crashed()
    refuse("NEW.state = 'error' AND NEW.job_key = 'refused'")

    recovery.recover_lost(get_instance())

    kinds = dict(Attempt.objects.exclude(job=suspect).values_list("job__job_key", "kind"))
    assert kinds == dict.fromkeys(OTHERS, "bystander")
    assert [one.kind for one in suspect.attempts.order_by("attempt")] == ["worker_lost"] * 3


def test_who_is_to_blame_does_not_depend_on_how_many_are_refused(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very many not all are looked for at once."""
    monkeypatch.setattr(refused_rows, "MAX_FOUND", 2)
    suspect = hipq.enqueue("echo")
    lose_twice()
    for number in range(3):
        hipq.enqueue("echo", job_key=f"refused {number}")
    innocent = hipq.enqueue("echo", job_key="innocent")
    HandWorker.crashed()
    refuse("NEW.state = 'error' AND NEW.job_key LIKE 'refused%'")
    left = RefusedRows("recover_lost")

    moved = [recovery.recover_lost(get_instance(), refused=left) for _ in range(2)]

    assert moved == [0, 2]
    assert [one.kind for one in innocent.attempts.all()] == ["bystander"]
    assert [one.kind for one in suspect.attempts.order_by("attempt")] == ["worker_lost"] * 3


def test_a_job_that_may_not_be_put_back_keeps_no_other_unconfirmed_claim(
    refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = of_keys()
    worker = HandWorker()
    worker.run_pass()
    worker.batch.discard(list(worker.batch))
    refuse("NEW.state = 'retry' AND NEW.job_key = 'refused'")

    released = [worker.scheduler.release_unconfirmed() for _ in range(2)]

    assert (released, keys(state="retry")) == ([4, 0], OTHERS)
    assert refused_in(caplog) == [("release_unconfirmed", jobs[1].pk)]


def test_an_answer_that_may_not_expire_keeps_no_other(
    refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    old = clock.now("default") - timedelta(days=400)
    answers = [AnswerFactory.create(job_type="x", job_key=key, receive_time=old) for key in KEYS]
    refuse("NEW.status = 'unmatched' AND NEW.job_key = 'refused'", "hipq_answer")
    left = RefusedRows("expire_early", "answer_id")

    expired = [early_answers.expire_early(get_instance(), left) for _ in range(2)]

    assert expired == [4, 0]
    assert Answer.objects.filter(status="unmatched").count() == 4
    assert refused_in(caplog) == [("expire_early", answers[1].pk)]


def test_a_job_that_may_not_go_on_holds_no_other(
    refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    before = hipq.enqueue("echo")
    jobs = of_keys(after=[before])
    refuse("NEW.hold_time IS NULL AND NEW.job_key = 'refused'")
    HandWorker().work()
    held = [job.job_key for job in Job.objects.held()]
    sweep = Sweep(get_instance())

    moved = [sweep.run() for _ in range(2)]

    assert (held, moved) == (["refused"], [0, 0])
    assert refused_in(caplog) == [("unhold_jobs", jobs[1].pk)] * 2  # after the commit, and once
    assert str(sweep.refused.error).startswith(f"job_id={jobs[1].pk} left alone: ")


def test_a_job_that_may_not_be_cancelled_keeps_no_other(
    declare: Declare, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    declare("fails")(lambda job: 1 / 0)
    before = hipq.enqueue("fails")
    jobs = of_keys(after=[before])
    refuse("NEW.state = 'final' AND NEW.job_key = 'refused'")
    worker = HandWorker()
    worker.work()
    worker.work()

    moved = Sweep(get_instance()).run()

    assert (moved, keys(outcome="cancelled")) == (0, OTHERS)
    assert refused_in(caplog) == [("unhold_jobs", jobs[1].pk)] * 2


def test_an_end_that_its_gatherer_may_not_get_is_told_to_the_others(
    declare: Declare, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    declare("gathers")(lambda job: job.gather([hipq.NewJob("echo")])).on_response(
        lambda job, response: response
    )
    jobs = of_keys("gathers")
    HandWorker().work()
    refuse("NEW.has_pending_answer <> OLD.has_pending_answer AND NEW.job_key = 'refused'")
    HandWorker().work()

    told = Sweep(get_instance()).run()

    assert (told, keys(has_pending_answer=True)) == (0, OTHERS)
    assert refused_in(caplog) == [("unhold_jobs", jobs[1].pk)] * 2


def test_a_job_that_may_not_get_its_new_rank_keeps_no_other(
    refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [hipq.enqueue("echo", job_key=key, priority=n) for n, key in enumerate(KEYS)]
    refuse("NEW.rank <> OLD.rank AND NEW.job_key = 'refused'")
    Queue.objects.update(order="priority")

    ranked = reranking.continue_ranking(get_instance())

    assert ranked == 4
    assert {job[1] for job in refused_in(caplog)} == {jobs[1].pk}


def test_a_job_that_may_not_be_deleted_keeps_no_other(
    refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = of_keys()
    HandWorker().work()
    refuse("OLD.job_key = 'refused'", when="DELETE")

    pruned = [retention.prune(get_instance(), days=0)["default"] for _ in range(2)]

    assert (pruned, Job.objects.get().job_key) == ([4, 0], "refused")
    assert refused_in(caplog) == [("prune", jobs[1].pk)] * 2  # by each command


def test_pruning_ends_however_long_it_looks_for_refused_rows(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that it found first are not tried again, or it would go on for ever."""
    monkeypatch.setattr(refused_rows, "LEFT_SECONDS", 0.0)
    monkeypatch.setattr(refused_rows, "MAX_FOUND", 1)
    hipq.enqueue_many([hipq.NewJob("echo", job_key=f"refused {n}") for n in range(4)])
    hipq.enqueue("echo")
    HandWorker().work()
    refuse("OLD.job_key LIKE 'refused%'", when="DELETE")

    assert retention.prune(get_instance(), days=0)["default"] == 1
    assert Job.objects.count() == 4


def test_many_refused_rows_are_found_in_several_calls(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_rows, "MAX_FOUND", 3)
    hipq.enqueue_many([hipq.NewJob("echo", job_key=f"refused {n}") for n in range(10)])
    behind = hipq.enqueue("echo")
    HandWorker.crashed()
    refuse("NEW.state = 'error' AND NEW.job_key LIKE 'refused%'")
    left = RefusedRows("recover_lost")

    taken = [recovery.recover_lost(get_instance(), refused=left) for _ in range(4)]

    behind.refresh_from_db()
    assert (sum(taken), behind.state, len(left.ids)) == (1, "error", 10)
    with CaptureQueriesContext(connection) as statements:
        recovery.recover_lost(get_instance(), refused=left)
    assert len(statements) < 10


# A value that this machine cannot read


@pytest.fixture
def windowed() -> Job:
    """A job in a time window that is open, of a zone that this machine does not know."""
    return hipq.enqueue("echo", time_windows=["00:00-24:00"])


def lose_the_zone() -> None:
    JobType.objects.update(time_zone="Mars/Olympus")


def test_a_job_in_an_unknown_zone_is_put_back_and_the_claim_says_what_is_wrong(
    windowed: Job,
) -> None:
    other = hipq.enqueue("echo")
    worker = HandWorker()
    worker.run_pass()
    worker.batch.discard(list(worker.batch))
    lose_the_zone()

    assert worker.scheduler.release_unconfirmed() == 2

    next_worker = HandWorker()
    next_worker.work()
    windowed.refresh_from_db()
    other.refresh_from_db()
    assert (windowed.state, other.outcome) == ("retry", "succeeded")
    windowed.queue.refresh_from_db()
    assert "'Mars/Olympus', which this machine does not know" in windowed.queue.throttler_problem


# What is shown


def test_the_worker_shows_what_it_leaves_alone(refuse: Refuse) -> None:
    jobs = of_keys()
    HandWorker.crashed()
    refuse("NEW.state = 'error' AND NEW.job_key = 'refused'")
    left, troubles = RefusedRows("recover_lost"), Troubles("default", "default")
    duty = Duty(
        "recover_lost", 1, lambda: recovery.recover_lost(get_instance(), refused=left), refused=left
    )
    duties = Duties("default", [duty], troubles.tell)

    duties.run(all_of_it=True, waits=False)

    reason = troubles.shown["recover_lost"]["reason"]
    assert reason.startswith(f"job_id={jobs[1].pk} left alone: ")
    assert reason.endswith("Error, see the worker's log")
    assert Worker.objects.get().state == "lost"
