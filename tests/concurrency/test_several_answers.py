"""Several answers to one job that come at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import early_answers
from hipq_django.models import Answer, Job
from tests.concurrency.sessions import Session, errors_of, run_together, wait_until_blocked
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)

PARTS = ("front", "back", "side")


class Scan:
    """A type that waits for three parts, and notes what its response handler got."""

    def __init__(self, declare: Declare) -> None:
        self.handled: list[Any] = []
        self.type = declare("scan")(lambda job: hipq.WAIT_FOR(*PARTS))
        self.type.on_response(self.handle)

    def handle(self, job: Job, response: Any) -> Any:
        self.handled.append(response)
        return response


@pytest.fixture
def scan(declare: Declare) -> Scan:
    return Scan(declare)


def complete(part: str) -> Callable[[], Answer]:
    return lambda: hipq.complete("scan", "k", part.upper(), part=part)


ALL = {part: part.upper() for part in PARTS}


def check(scan: Scan, job: Job) -> None:
    """Fail unless the response handler ran exactly once, with all parts."""
    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", ALL)
    assert scan.handled == [ALL]
    assert set(job.answers.values_list("status", flat=True)) == {"accepted"}
    scan.handled.clear()


@pytest.mark.parametrize("beside", ["its claim", "the return of its handler", "nothing"])
def test_all_parts_at_one_moment_are_handled_once(scan: Scan, beside: str, rounds: int) -> None:
    for _ in range(rounds):
        job, worker = scan.type.enqueue(job_key="k"), HandWorker()
        others: list[Callable[[], Any]] = [worker.run_pass]
        if beside != "its claim":
            worker.run_pass()
            worker.execute()
            others = [worker.save]
        if beside == "nothing":
            worker.save()
            others = []

        results = run_together(*others, *[complete(part) for part in PARTS])
        worker.work()  # it waits for no answer that has the row
        early_answers.match_early(get_instance())
        run_due_jobs()

        assert errors_of(results) == []
        check(scan, job)


@pytest.mark.postgres
def test_a_part_waits_for_the_return_of_the_handler(scan: Scan, session: Session) -> None:
    """Whoever is second sees what the first one wrote."""
    job, worker = all_but_one_came(scan)

    session.begin()
    session(worker.save)
    other = Session()
    waiting = other.start(complete(PARTS[0]))
    wait_until_blocked()
    session.commit()
    waiting.result()
    other.close()
    run_due_jobs()

    check(scan, job)


@pytest.mark.postgres
def test_the_return_of_the_handler_is_written_when_the_part_is(
    scan: Scan, session: Session
) -> None:
    """The worker does not wait, and tries again."""
    job, worker = all_but_one_came(scan)

    session.begin()
    session(complete(PARTS[0]))
    worker.save()
    kept = worker.batch.ids
    session.commit()
    worker.save()
    run_due_jobs()

    assert kept == [job.pk]
    check(scan, job)


def all_but_one_came(scan: Scan) -> tuple[Job, HandWorker]:
    """Return a job whose handler has returned, and the worker that has not written it yet."""
    job = scan.type.enqueue(job_key="k")
    for part in PARTS[1:]:
        complete(part)()
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    return job, worker
