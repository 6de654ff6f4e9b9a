"""Several requests, one job: `WAIT_FOR`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.api import assign
from hipq_django.conf.instances import get_instance
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.job_types.registry import forget
from hipq_django.maintenance import recovery
from hipq_django.models import Answer, Job, JobType
from hipq_django.web.formats import MessageFormat
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs
from tests.settings import ENGINE

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

PARTS = ("front", "back")
BOTH = {"front": "F", "back": "B"}


class Scan:
    """A type that asks for parts."""

    def __init__(self, declare: Declare, returned: Any, handles: bool, **options: Any) -> None:
        self.type: JobTypeSpec = declare("scan", **options)(lambda job: returned)
        if handles:
            self.type.on_response(lambda job, response: response)

    def asked(self) -> Job:
        job = self.type.enqueue(job_key="k")
        run_due_jobs()
        return job


@pytest.fixture
def scan(declare: Declare) -> Scan:
    return Scan(declare, hipq.WAIT_FOR(*PARTS), handles=False)


def complete(part: str | None, response: Any = None, **options: Any) -> Answer:
    response = part[0].upper() if part and response is None else response
    return hipq.complete("scan", "k", response, part=part, **options)


def statuses() -> list[str]:
    return [str(s) for s in Answer.objects.order_by("pk").values_list("status", flat=True)]


def reread(job: Job) -> Job:
    run_due_jobs()
    return Job.objects.get(pk=job.pk)


# Named parts


def test_a_name_that_cannot_be_a_part_is_refused(scan: Scan) -> None:
    with pytest.raises(hipq.InvalidAnswerError, match="part '#1': give text"):
        complete("#1")

    assert statuses() == []


def test_a_part_that_waited_for_the_key_counts_when_the_handler_sets_it(declare: Declare) -> None:
    @declare("scan")
    def scan(job: Job) -> Any:
        job.set_key("k")
        return hipq.WAIT_FOR(*PARTS)

    complete("front")
    job = scan.enqueue()
    run_due_jobs()

    complete("back")

    assert reread(job).result == BOTH


def test_parts_are_matched_by_hand(declare: Declare) -> None:
    job = Scan(declare, hipq.WAIT_FOR(*PARTS), True).asked()
    strays = [hipq.complete("scan", f"other {p}", p[0].upper(), part=p) for p in PARTS]

    matched = [assign(answer, job.pk) for answer in strays]

    assert [answer.status for answer in matched] == ["accepted", "accepted"]
    assert reread(job).result == BOTH
    stray = hipq.complete("scan", "other", "x", part="side")
    fresh = hipq.requeue(job)
    run_due_jobs()
    with pytest.raises(hipq.InvalidAnswerError, match="does not wait for part 'side'"):
        assign(stray, fresh.pk)


def test_the_database_accepts_a_part_once(scan: Scan) -> None:
    job = scan.asked()
    complete("front")

    with pytest.raises(IntegrityError), transaction.atomic():
        Answer.objects.create(
            job=job, job_type="scan", kind="response", payload=1, part="front", status="accepted"
        )


def test_many_jobs_that_wait_for_parts_are_written_in_few_statements(
    declare: Declare, django_assert_max_num_queries: Any
) -> None:
    Scan(declare, hipq.WAIT_FOR(*PARTS), True)
    hipq.enqueue_many([hipq.NewJob("scan") for _ in range(50)])
    worker = HandWorker()
    worker.run_pass()
    worker.execute()

    with django_assert_max_num_queries(12):
        worker.save()

    assert Job.objects.count() == 50
    assert {tuple(job.expects) for job in Job.objects.all()} == {PARTS}


# Errors and retries


def test_a_timeout_names_the_missing_parts(scan: Scan, frozen_time: Any) -> None:
    job = scan.asked()
    complete("front")

    frozen_time.shift(86_401)
    recovery.time_out_overdue(get_instance())

    job = reread(job)
    assert job.outcome == "timed_out"
    assert job.error == (
        "JobTimeout: attempt 1 did not get all answers within 86400 s "
        "(parts received: 1 of 2, missing: 'back')"
    )


# Counted answers


@pytest.mark.parametrize("counts", ["the row", "the code"])
def test_an_answer_settles_a_job_whose_handler_was_of_the_release_that_counts_none(
    counts: str, declare: Declare
) -> None:
    old = Scan(declare, hipq.WAIT, handles=False)
    job = old.asked()
    if counts == "the row":
        JobType.objects.update(counted_answers=True)
    else:
        forget(old.type)
        Scan(declare, hipq.WAIT_FOR(1), handles=False, counted_answers=True)

    complete(None, "a")

    assert (reread(job).outcome, reread(job).result) == ("succeeded", "a")


# Mistakes of handlers


@pytest.mark.parametrize(
    ("returned", "options", "said"),
    [
        (hipq.WAIT_FOR, {}, "is not JSON"),
        (hipq.WAIT_FOR(3), {}, "counted_answers=True"),
        (hipq.WAIT, {"counted_answers": True}, r"return WAIT_FOR(1)"),
    ],
)
def test_a_handler_is_told_what_to_return(
    declare: Declare, returned: Any, options: dict[str, Any], said: str
) -> None:
    job = reread(Scan(declare, returned, False, **options).asked())

    assert job.outcome == "failed"
    assert said in job.error


def test_a_response_handler_cannot_wait_again(declare: Declare) -> None:
    scan = declare("scan")(lambda job: hipq.WAIT_FOR("front"))
    scan.on_response(lambda job, response: hipq.WAIT_FOR("back"))
    job = scan.enqueue(job_key="k")
    run_due_jobs()

    complete("front")

    assert "returned WAIT_FOR, but the answer has come already" in reread(job).error


# By other ways


@pytest.fixture
def _base_url(settings: Settings) -> None:
    settings.HIPQ = {"default": {"ENGINE": ENGINE, "CALLBACK_BASE_URL": "http://testserver"}}


def post(url: str, response: Any) -> Any:
    content = json.dumps({"response": response})
    return Client().post(url.removeprefix("http://testserver"), content, "application/json")


@pytest.mark.usefixtures("_base_url")
def test_each_part_has_a_callback_url(declare: Declare) -> None:
    names = ("front side/1-2", "back.ü%")
    urls: dict[str, str] = {}

    @declare("scan")
    def scan(job: Job) -> Any:
        urls.update({part: hipq.callback_url(job, part=part) for part in (*names, "other")})
        return hipq.WAIT_FOR(*names)

    job = scan.enqueue()
    run_due_jobs()

    said = [post(urls[part], part).status_code for part in (names[0], names[0], "other")]
    differing = post(urls[names[0]], "X").status_code
    last = post(urls[names[1]], names[1]).status_code

    assert (said, differing, last) == ([200, 200, 410], 410, 200)
    assert reread(job).result == {name: name for name in names}


@pytest.mark.usefixtures("_base_url")
def test_a_url_of_a_discarded_attempt_is_late(declare: Declare) -> None:
    urls: list[str] = []

    @declare("scan")
    def scan(job: Job) -> Any:
        urls.append(hipq.callback_url(job, part="front"))
        return hipq.WAIT_FOR("front")

    @scan.on_response
    def handle(job: Job, response: Any) -> Any:
        raise OSError("unreadable")

    scan.on_error(lambda job: hipq.RetryIn(0, resend=True))
    scan.enqueue()
    run_due_jobs()
    post(urls[0], "a")
    run_due_jobs()

    assert (post(urls[0], "b").status_code, post(urls[1], "b").status_code) == (410, 200)


def test_a_message_format_reads_the_part(scan: Scan) -> None:
    job = scan.asked()
    message_format = MessageFormat(
        job_type="scan",
        key="key",
        outcome=lambda m: (
            hipq.Response(m["image"], part=m["side"])
            if m["image"]
            else hipq.ErrorResponse("no image", part=m["side"])
        ),
    )

    for side in PARTS:
        message_format.receive({"key": "k", "side": side, "image": side[0].upper()})

    assert reread(job).result == BOTH
    error = message_format.receive({"key": "k", "side": "back", "image": None})
    assert error is not None
    assert (error.kind, error.part) == ("error", "back")


# What is shown


@pytest.mark.django_db(transaction=True)
def test_an_async_handler_sees_what_was_answered(declare: Declare) -> None:
    seen: list[Any] = []

    @declare("asks", retry=hipq.Fixed(0, max_attempts=2))
    async def asks(job: Job) -> Any:
        seen.append(await job.aanswers_so_far())
        return hipq.WAIT_FOR(*PARTS)

    job = asks.enqueue(job_key="k")
    run_due_jobs()
    hipq.complete(job, "F", part=PARTS[0])
    hipq.fail(job, "ask again")
    run_due_jobs()

    assert seen == [{}, {PARTS[0]: "F"}]
