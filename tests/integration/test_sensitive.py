"""Fields that must not be shown: in the admin, in the log, in errors. Handlers get them whole."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DataError
from django.test import Client

import hipq_django as hipq
from hipq_django.catalog import get_job_type
from hipq_django.declarations import Declaration
from hipq_django.exceptions import InvalidJobTypeError
from hipq_django.executor import execute
from hipq_django.models import Answer, Attempt, Job, JobType, Queue
from hipq_django.results import Failed, refused
from hipq_django.signals import job_finished
from hipq_django.testing import assert_enqueued, run_due_jobs
from tests.admin_pages import html, list_url, page_url
from tests.declaring import Declare
from tests.factories import AnswerFactory
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue

pytestmark = pytest.mark.django_db

CARD = "4111111111111111"
IBAN = "DE02120300000000202051"
DATA = {"card": CARD, "order": 42, "customer": {"iban": IBAN, "name": "Ada"}}

Charge = Callable[[Callable[[Job], Any]], Declaration]


@pytest.fixture
def charge(declare: Declare) -> Charge:
    return declare("charge", sensitive=["card", "customer.iban"])


def run(declared: Declaration) -> Job:
    job = declared.enqueue(DATA, job_key="k")
    run_due_jobs()
    job.refresh_from_db()
    return job


def fails(job: Job) -> Any:
    data = job.job_data
    job.job_data = {}  # what a handler does to its copy hides nothing from us
    try:
        raise OSError(f"no route to {data['customer']['iban']}")
    except OSError as error:
        raise ValueError(f"{data} was refused") from error


def waits(job: Job) -> Any:
    return hipq.WAIT


def shows_nothing(text: str) -> bool:
    return CARD not in text and IBAN not in text


def every_page(client: Client, job: Job) -> str:
    rows = [job, *Answer.objects.all()]
    pages = [html(client, page_url(row)) for row in rows]
    pages += [html(client, list_url(model)) for model in (Job, Answer, Queue)]
    pages.append(html(client, list_url(Job), q="k"))
    return "\n".join(pages)


def test_the_handler_gets_the_data_whole_and_it_is_stored_whole(charge: Charge) -> None:
    seen: list[Any] = []
    job = run(charge(lambda job: seen.append(job.job_data)))

    assert seen == [DATA]
    assert job.job_data == DATA


def test_the_admin_masks_data_result_and_answers(charge: Charge, admin_client: Client) -> None:
    job = run(charge(waits))
    hipq.complete("charge", "k", {"card": CARD, "note": f"charged {CARD}", "receipt": 4711})
    AnswerFactory.create(job_type="charge", status="unmatched", payload={"card": CARD, "n": "2nd"})

    pages = every_page(admin_client, job)

    job.refresh_from_db()
    assert job.result["card"] == CARD
    assert shows_nothing(pages)
    assert all(shown in pages for shown in ("•••", "4711", "Ada", "charged •••", "2nd"))


def test_an_error_is_masked_before_it_is_stored(
    charge: Charge, admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    job = run(charge(fails))

    attempt = Attempt.objects.get()
    assert job.error == (
        "ValueError: {'card': '•••', 'order': 42, 'customer': {'iban': '•••', 'name': 'Ada'}} "
        "was refused"
    )
    assert attempt.error == job.error
    assert "no route to •••" in attempt.traceback
    assert shows_nothing(attempt.traceback + caplog.text + every_page(admin_client, job))
    assert "event=failed error=" in caplog.text


def test_what_a_retry_handler_raises_is_masked_in_the_log(
    charge: Charge, caplog: pytest.LogCaptureFixture
) -> None:
    declared = charge(fails)
    declared.on_error(fails)

    job = run(declared)

    assert job.outcome == "failed"
    assert "retry handler raised" in caplog.text
    assert "no route to •••" in caplog.text
    assert shows_nothing(caplog.text)


def test_what_a_response_handler_raises_is_masked_by_the_response_too(charge: Charge) -> None:
    declared = charge(waits)

    @declared.on_response
    def charged(job: Job, response: Any) -> None:
        raise ValueError(f"no such receipt: {response}")

    job = run(declared)
    hipq.complete("charge", "k", {"card": "5500000000000004", "receipt": 1})
    run_due_jobs()

    job.refresh_from_db()
    assert job.error == "ValueError: no such receipt: {'card': '•••', 'receipt': 1}"


@pytest.mark.parametrize(
    ("error", "stored"),
    [
        (f"card {CARD} declined", "card ••• declined"),
        ({"card": CARD, "why": f"{CARD} expired"}, {"card": "•••", "why": "••• expired"}),
    ],
)
def test_an_error_answer_is_masked_and_kept_whole_in_the_inbox(
    charge: Charge, error: Any, stored: Any
) -> None:
    run(charge(waits))

    answer = hipq.fail("charge", "k", error)

    job = Job.objects.get()
    assert (job.error, Attempt.objects.get().error) == (stored, stored)
    answer.refresh_from_db()
    assert answer.payload == error
    assert hipq.fail("charge", "k", error).status == "duplicate"


def test_a_message_of_progress_is_masked(charge: Charge) -> None:
    job = run(charge(waits))

    hipq.progress("charge", "k", 40, "x" * 490 + f" {CARD}")

    job.refresh_from_db()
    assert job.progress_message == "x" * 490 + " •••"


def test_what_the_database_refuses_is_masked(charge: Charge) -> None:
    declared = charge(lambda job: {"card": "5500000000000004"})
    declared.enqueue(DATA)
    worker = HandWorker()
    worker.run_pass()
    returned = execute(worker.claims[0])

    result = refused(returned, DataError(f"out of range: {CARD} 5500000000000004"))

    assert isinstance(result, Failed)
    assert result.error == "DataError: out of range: ••• •••"


def test_a_throttler_that_quotes_the_data_is_masked(
    charge: Charge, configure_queue: ConfigureQueue, caplog: pytest.LogCaptureFixture
) -> None:
    def throttler(queue: Any, now: Any, running: Any, candidates: Any) -> Any:
        raise KeyError(str(candidates[0].job_data))

    queue = configure_queue(throttler)
    job = run(charge(waits))

    queue.refresh_from_db()
    reasons = [reason.text for reason in hipq.explain(job)]
    assert "Ada" in queue.throttler_problem
    assert shows_nothing(f"{queue.throttler_problem} {reasons} {caplog.text}")


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_quotes_the_data_is_masked(
    charge: Charge, caplog: pytest.LogCaptureFixture
) -> None:
    def receiver(job: Job, **_: Any) -> None:
        raise KeyError(str(job.job_data))

    job_finished.connect(receiver)
    try:
        run(charge(lambda job: None))
    finally:
        job_finished.disconnect(receiver)

    # Django logs the exception of a receiver under its own name, whatever we do.
    ours = "".join(r.getMessage() for r in caplog.records if r.name == "hipq_django")
    assert "Ada" in ours
    assert shows_nothing(ours)


def test_the_test_kit_masks_the_jobs_that_it_lists(charge: Charge) -> None:
    charge(waits).enqueue(DATA, job_key="k")

    with pytest.raises(AssertionError, match="Ada") as caught:
        assert_enqueued("charge", job_key="another")

    assert shows_nothing(str(caught.value))


# Which fields they are


def test_the_row_knows_the_fields_where_the_code_is_gone(
    declare: Declare, admin_client: Client
) -> None:
    job = run(declare("charge", sensitive=["card", "customer.iban"])(waits))
    declare.forget_all()

    assert shows_nothing(every_page(admin_client, job))


def test_the_code_knows_the_fields_before_the_row_does(
    declare: Declare, admin_client: Client
) -> None:
    job = run(declare("charge")(waits))
    declare.forget_all()
    declare("charge", sensitive=["card", "customer.iban"])(waits)

    assert JobType.objects.get(name="charge").sensitive == []
    assert shows_nothing(every_page(admin_client, job))


def test_the_row_follows_the_code(declare: Declare) -> None:
    declare("charge", sensitive=["card", "pin"])(waits)
    assert get_job_type("default", "charge").sensitive == ["card", "pin"]
    declare.forget_all()

    declare("charge", sensitive=["card"])(waits)

    assert get_job_type("default", "charge").sensitive == ["card"]


@pytest.mark.parametrize("names", ["card", [7], [""]])
def test_a_type_whose_fields_are_no_list_of_names_is_refused(names: Any) -> None:
    with pytest.raises(InvalidJobTypeError, match="job type 'never': sensitive="):
        hipq.job_type("never", sensitive=names)(waits)
