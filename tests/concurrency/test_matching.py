"""An operator matches an answer by hand while others want it, or its job, too."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.answers import api
from hipq_django.conf.instances import get_instance
from hipq_django.exceptions import InvalidAnswerError
from hipq_django.maintenance import retention
from hipq_django.models import Answer, Job
from tests.concurrency.sessions import Session, errors_of, run_together
from tests.factories import AnswerFactory
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)


def asked(key: str) -> Job:
    job = hipq.enqueue("ask", job_key=key)
    run_due_jobs()
    return job


def settled() -> list[tuple[str, str]]:
    """Return the keys and results of the jobs that succeeded."""
    return list(Job.objects.filter(outcome="succeeded").values_list("job_key", "result"))


def test_one_answer_that_two_operators_match_settles_one_job(rounds: int) -> None:
    for _ in range(rounds):
        Job.objects.all().delete()
        jobs = [asked("a"), asked("b")]
        answer = AnswerFactory.create(status="unmatched")

        results: list[Any] = run_together(*[partial(api.assign, answer, j.pk) for j in jobs])

        [error] = errors_of(results)
        assert isinstance(error, InvalidAnswerError)
        assert len(settled()) == 1
        assert Answer.objects.get().job == Job.objects.get(outcome="succeeded")


def test_an_answer_that_comes_while_another_one_is_matched_is_accounted_for(rounds: int) -> None:
    for _ in range(rounds):
        Job.objects.all().delete()
        Answer.objects.all().delete()
        job = asked("a")
        lost = AnswerFactory.create(status="unmatched", payload="by hand")

        run_together(partial(api.assign, lost, job.pk), lambda: hipq.complete("ask", "a", "own"))

        [(_, result)] = settled()
        statuses = dict(Answer.objects.values_list("payload", "status"))
        assert statuses[result] == "accepted"
        assert statuses in (
            {"by hand": "accepted", "own": "late"},
            {"by hand": "unmatched", "own": "accepted"},
        )


def test_an_early_answer_goes_to_the_job_of_its_key_or_to_that_of_the_operator(rounds: int) -> None:
    for _ in range(rounds):
        Job.objects.all().delete()
        Answer.objects.all().delete()
        chosen = asked("by hand")
        early = hipq.complete("ask", "own", "paid")
        hipq.enqueue("ask", job_key="own")
        worker = HandWorker()

        run_together(partial(api.assign, early, chosen.pk), worker.run_pass)
        worker.execute()
        worker.save()

        early.refresh_from_db()
        [(key, result)] = settled()
        assert (early.status, result) == ("accepted", "paid")
        assert early.job is not None
        assert early.job.job_key == key


@pytest.mark.postgres
def test_a_claim_leaves_a_job_whose_early_answer_an_operator_is_matching(
    session: Session,
) -> None:
    chosen = asked("by hand")
    early = hipq.complete("ask", "own", "paid")
    own = hipq.enqueue("ask", job_key="own")
    session.begin()
    session(partial(api.assign, early, chosen.pk))
    behind = hipq.enqueue("echo", job_key="behind")
    worker = HandWorker()

    meanwhile = worker.run_pass()
    session.commit()

    assert (meanwhile, worker.run_pass()) == ([behind], [own])
    assert settled() == [("by hand", "paid")]
    own.refresh_from_db()
    assert (own.state, own.has_pending_answer) == ("running", False)


@pytest.mark.postgres
def test_an_answer_that_is_being_matched_is_not_pruned(session: Session) -> None:
    job = asked("a")
    old = AnswerFactory.create(status="unmatched", receive_time="2001-01-01T00:00:00Z")
    session.begin()
    session(partial(api.assign, old, job.pk))

    counts = retention.prune(get_instance())
    session.commit()

    assert counts["answers"] == 0
    assert Answer.objects.get().status == "accepted"
