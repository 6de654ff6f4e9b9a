"""The rule by which an answer settles its job stands in SQL and in Python: both say the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

import hipq_django as hipq
from hipq_django.answers import arrival
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.models import Answer, Attempt, Job, JobType
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory, JobTypeFactory, WorkerFactory

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

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
EXPECTED: list[Any] = [[], ["front", "back"], 2]
ANSWERS = [("response", ""), ("response", "front"), ("error", "")]
NOW = timezone.now()


Road = Callable[[list[IncomingAnswer]], object]


def one_by_one(messages: list[IncomingAnswer]) -> None:
    for message in messages:
        arrival.receive_by_key(message, NOW, "default")


def together(messages: list[IncomingAnswer]) -> object:
    return arrival.receive_together(messages, NOW, "default")


def rows_after(road: Road, messages: list[IncomingAnswer]) -> dict[str, list[Any]]:
    """Return what the answers make of the jobs and the inbox, by the jobs' keys; it is undone."""
    differs = {"id", "update_time", "end_time", "rank"}
    rows: dict[str, list[Any]] = {message.job_key: [] for message in messages}
    with transaction.atomic():
        road(messages)
        keys = dict(Job.objects.values_list("pk", "job_key"))
        tables: tuple[Any, ...] = (Job.objects, Answer.objects, Attempt.objects)
        for table in tables:
            for row in table.order_by("pk").values():
                rows[row.get("job_key") or keys[row["job_id"]]].append(row)
        transaction.set_rollback(True)
    return {
        key: [{name: row[name] for name in row.keys() - differs} for row in found]
        for key, found in rows.items()
    }


@pytest.fixture
def job_type(is_handled: bool, declare: Declare) -> JobType:
    spec = declare("asks")(lambda job: hipq.WAIT)
    if is_handled:
        spec.on_response(lambda job, response: response)
    return JobTypeFactory.create(name="asks")


@pytest.mark.parametrize(
    "step", [5, pytest.param(1, marks=pytest.mark.nightly)], ids=["some", "all"]
)
@pytest.mark.parametrize("is_handled", [False, True], ids=["for the job", "for its handler"])
@pytest.mark.parametrize("standing", STANDINGS)
def test_whatever_road_an_answer_takes_it_leads_to_the_same_rows(
    standing: str, job_type: JobType, step: int
) -> None:
    """Each answer is to a job of its own; `step` leaves out most, in turn of each kind."""
    worker = WorkerFactory.create()
    may_be_pending = standing not in {"initial", "final"}
    messages = []
    cases = product(EXPECTED, EARLIER, sorted({False, may_be_pending}), ANSWERS)
    for expects, earlier, is_pending, (kind, part) in islice(cases, None, None, step):
        key = f"{expects=} {earlier=} {is_pending=} {kind=} {part=}"
        values = {**STANDINGS[standing], "expects": expects, "has_pending_answer": is_pending}
        owner = worker if "phase" in values else None
        job = JobFactory.create(job_type=job_type, job_key=key, worker=owner, **values)
        for status, said in earlier:
            AnswerFactory.create(job=job, job_type="asks", job_key=key, kind=said, status=status)
        messages.append(IncomingAnswer("default", "asks", key, kind, {"n": 1}, key, part=part))

    by_rules = rows_after(one_by_one, messages)

    assert rows_after(together, messages) == by_rules
