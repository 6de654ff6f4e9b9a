"""The rule by which an answer settles its job stands in SQL and in Python: both say the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

import hipq_django as hipq
from hipq_django.answers import arrival, bulk, fast_path
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.models import Answer, Attempt, Job, JobType
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory, JobTypeFactory, WorkerFactory

pytestmark = pytest.mark.django_db

STANDINGS: dict[str, dict[str, Any]] = {
    "initial": {"state": "initial"},
    "waiting for its answer": {"state": "running", "attempt": 1},
    "sending its request": {"state": "running", "attempt": 1, "phase": "request"},
    "in its response handler": {"state": "running", "attempt": 1, "phase": "response"},
    "in error": {"state": "error", "attempt": 1, "error": "broken"},
    "in retry": {"state": "retry", "attempt": 1, "error": "broken"},
    "final": {"state": "final", "attempt": 1, "outcome": "succeeded"},
}
EARLIER: list[list[tuple[str, str]]] = [
    [], [("accepted", "error")], [("discarded", "response")],
]  # fmt: skip
MESSAGES = [
    IncomingAnswer("default", "asks", "k", kind, {"n": 1}, "m", part=part)
    for kind, part in (("response", ""), ("response", "front"), ("error", ""))
]
NOW = timezone.now()


def one_by_one(message: IncomingAnswer) -> object:
    return arrival.receive_by_key(message, NOW, "default")


def together(message: IncomingAnswer) -> object:
    return bulk.receive([message], NOW, "default")


def together_without_the_statement(message: IncomingAnswer) -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fast_path, "settle", lambda *_: [])
        return together(message)


def rows_after(road: Callable[[IncomingAnswer], object], message: IncomingAnswer) -> list[Any]:
    """Return what an answer makes of the job and the inbox; it is undone."""
    differs = {"id", "update_time", "end_time", "rank"}
    with transaction.atomic():
        road(message)
        tables: tuple[Any, ...] = (Job.objects, Answer.objects, Attempt.objects)
        rows = [row for table in tables for row in table.order_by("pk").values()]
        transaction.set_rollback(True)
    return [{name: row[name] for name in row.keys() - differs} for row in rows]


@pytest.fixture
def job_type(is_handled: bool, declare: Declare) -> JobType:
    spec = declare("asks")(lambda job: hipq.WAIT)
    if is_handled:
        spec.on_response(lambda job, response: response)
    return JobTypeFactory.create(name="asks")


@pytest.mark.parametrize("is_handled", [False, True], ids=["for the job", "for its handler"])
@pytest.mark.parametrize("expects", [[], ["front", "back"], 2], ids=str)
@pytest.mark.parametrize("standing", STANDINGS)
def test_whatever_road_an_answer_takes_it_leads_to_the_same_rows(
    standing: str, expects: Any, job_type: JobType
) -> None:
    worker = WorkerFactory.create()
    may_be_pending = standing not in {"initial", "final"}
    for earlier, is_pending in product(EARLIER, {False, may_be_pending}):
        values = {**STANDINGS[standing], "expects": expects, "has_pending_answer": is_pending}
        owner = worker if "phase" in values else None
        with transaction.atomic():
            job = JobFactory.create(job_type=job_type, job_key="k", worker=owner, **values)
            for status, kind in earlier:
                AnswerFactory.create(
                    job=job, job_type="asks", job_key="k", kind=kind, status=status
                )
            for message in MESSAGES:
                by_rules = rows_after(one_by_one, message)
                told = f"{earlier=} {is_pending=} {message=}"
                assert rows_after(together, message) == by_rules, told
                assert rows_after(together_without_the_statement, message) == by_rules, told
            transaction.set_rollback(True)
