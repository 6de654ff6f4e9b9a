"""The shop's page and the job that charges a card."""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import LazySettings
from django.test import Client

import hipq_django as hipq
from example_project.bank.server import Bank
from example_project.payments.jobs import charge
from example_project.payments.models import Order
from hipq_django.models import Job
from hipq_django.testing import assert_enqueued
from tests.docs.project import free_port
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

HOUR_SECONDS = 3_600


@pytest.fixture(autouse=True)
def bank(settings: LazySettings) -> Iterator[Bank]:
    """The bank, which works too slowly to answer within a test; the tests answer for it."""
    with Bank(slowest_seconds=HOUR_SECONDS) as bank:
        thread = threading.Thread(target=bank.serve_forever, args=(0.01,))
        thread.start()
        settings.BANK_URL = bank.address
        yield bank
        bank.shutdown()
        thread.join()


@pytest.fixture
def order() -> Order:
    """An order whose payment was requested."""
    order = Order.objects.create(item="Teapot", amount=25)
    charge(order)
    run_due_jobs()
    return order


def job_of(order: Order) -> Job:
    return Job.objects.get(job_key=order.key)


def answer(client: Client, order: Order, content: dict[str, Any]) -> int:
    """Call back as the bank does; return the status."""
    address = urlsplit(hipq.callback_url(job_of(order))).path
    return client.post(address, content, "application/json").status_code


def state_of(order: Order) -> tuple[str, str]:
    order.refresh_from_db()
    return order.state, order.bank_said


# The page


def test_an_order_and_its_payment_are_stored_together(client: Client) -> None:
    response = client.post("/", {"item": "Teapot", "amount": "25"})

    assert response.headers["Location"] == "/"
    order = Order.objects.get()
    assert_enqueued("charge_card", job_key=order.key, job_data={"order": order.pk})


@pytest.mark.parametrize(("amount", "factor"), [("999.99", 1), ("1000", 3)])
def test_a_big_order_counts_three_times_in_the_limit(
    client: Client, amount: str, factor: int
) -> None:
    client.post("/", {"item": "Bicycle", "amount": amount})

    assert_enqueued("charge_card", throttle_factor=factor)


def test_the_page_shows_each_order_and_what_the_bank_said(client: Client) -> None:
    Order.objects.create(item="<Lamp>", amount=1234, state="declined", bank_said="card stolen")

    page = client.get("/").text

    assert all(text in page for text in ("&lt;Lamp&gt;", "1,234.00", "declined", "card stolen"))


# The request and the answers


def test_the_bank_gets_the_request_and_the_job_waits_without_a_worker(
    order: Order, bank: Bank
) -> None:
    job = job_of(order)

    assert (job.state, job.worker) == (Job.State.RUNNING, None)
    assert (bank.ledger.report()["requests"], bank.ledger.report()["in_flight"]) == (1, 1)
    assert state_of(order) == ("waiting", "")


def test_a_response_of_the_bank_pays_the_order(client: Client, order: Order) -> None:
    status = answer(client, order, {"response": {"receipt": "R-7"}})
    run_due_jobs()

    assert status == 200
    assert state_of(order) == ("paid", "receipt R-7")
    assert job_of(order).outcome == Job.Outcome.SUCCEEDED


def test_a_declined_payment_is_tried_again_later(client: Client, order: Order) -> None:
    answer(client, order, {"error": "insufficient funds"})
    run_due_jobs()

    assert state_of(order) == ("waiting", "insufficient funds; will be tried again")
    assert job_of(order).state == Job.State.RETRY


def test_a_stolen_card_is_not_tried_again(client: Client, order: Order) -> None:
    answer(client, order, {"error": "card stolen"})
    run_due_jobs()

    assert state_of(order) == ("declined", "card stolen")
    assert job_of(order).outcome == Job.Outcome.FAILED


def test_a_bank_that_cannot_be_reached_is_tried_again_later(
    settings: LazySettings,
) -> None:
    settings.BANK_URL = f"http://127.0.0.1:{free_port()}/payments"
    order = Order.objects.create(item="Lamp", amount=25)
    charge(order)

    run_due_jobs()

    assert "Connection refused" in state_of(order)[1]
    assert job_of(order).state == Job.State.RETRY


def test_an_order_whose_job_an_operator_cancels_is_declined(
    order: Order, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        hipq.cancel(job_of(order))

    assert state_of(order)[0] == "declined"
