"""Job types and workers in the admin."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.models import JobType, Worker
from hipq_django.models.catalog import get_job_type
from tests.admin_pages import (
    history,
    html,
    list_url,
    page_url,
    save,
)
from tests.declaring import Declare
from tests.factories import JobTypeFactory, QueueFactory, WorkerFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def charge(declare: Declare) -> JobType:
    """A declared job type with all its handlers."""

    def send(job: object) -> None:
        del job

    def card_charged(job: object, response: object) -> None:
        del job, response

    declared: Any = declare("charge", retry=hipq.Fixed(30, max_attempts=3))(send)
    declared.on_response(card_charged)
    return get_job_type("default", "charge")


def test_the_page_says_which_code_runs_the_jobs(admin_client: Client, charge: JobType) -> None:
    page = html(admin_client, page_url(charge))

    for text in ("charge.&lt;locals&gt;.send", "card_charged", "Fixed("):
        assert text in page


def line(page: str, name: str) -> str:
    """Return what a page says in one of its lines."""
    block = page.partition(f'class="form-row field-{name}"')[2]
    return block.partition('<div class="readonly">')[2].partition("</div>")[0]


def test_the_page_of_a_task_says_what_it_takes_and_what_converts_it(
    admin_client: Client, declare: Declare, settings: Settings
) -> None:
    settings.HIPQ = {"default": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"}}

    @declare.task("bill", aliases=["shop.bill", "shop.invoice"])
    def bill(order: int, *, copies: int = 1, job: hipq.Job = hipq.JOB) -> None: ...

    page = html(admin_client, page_url(get_job_type("default", "bill")))

    takes = "<code>(order: int, *, copies: int = …)</code>"
    assert line(page, "takes") == f"{takes} (hipq_django.arguments.PydanticArguments)"
    assert line(page, "names") == "shop.bill, shop.invoice"


def test_the_page_says_what_happens_after_an_error(admin_client: Client, declare: Declare) -> None:
    declare("plain")(lambda job: None)
    handled: Any = declare("handled")(lambda job: None)
    handled.on_error(lambda job: None)

    for name, text in (("plain", "no retry"), ("handled", "&lt;lambda&gt;")):
        page = html(admin_client, page_url(get_job_type("default", name)))
        assert text in page.partition("After an error:")[2]


def test_the_page_says_what_is_masked_and_how_long_an_attempt_may_take(
    admin_client: Client, declare: Declare
) -> None:
    declare("order_card", max_timeout=90_000, sensitive=["iban"])(lambda job: None)

    page = html(admin_client, page_url(get_job_type("default", "order_card")))

    assert "90000 s" in page
    assert "iban" in page


def test_a_type_without_code_says_so(admin_client: Client) -> None:
    unknown = JobTypeFactory.create()

    assert "no code declares it" in html(admin_client, list_url(JobType))
    assert "no code declares it" in html(admin_client, page_url(unknown))


@pytest.mark.conformance
def test_edited_defaults_hold_for_new_jobs_only(admin_client: Client, charge: JobType) -> None:
    old = hipq.enqueue("charge")
    queue = QueueFactory.create(name="bank")

    save(
        admin_client, charge, queue=queue.pk, default_timeout="60", default_priority="5",
        default_throttle_factor="0.25", time_zone="Europe/Paris",
        default_time_windows="22:00-02:00\r\n\r\n mon-fri 05:00-07:00\r\n",
    )  # fmt: skip

    new = hipq.enqueue("charge")
    assert (new.queue, new.timeout, new.priority) == (queue, 60, 5)
    assert new.throttle_factor == Decimal("0.25")
    assert new.time_windows == ["22:00-02:00", "mon-fri 05:00-07:00"]
    old.refresh_from_db()
    assert (old.priority, old.time_windows, old.queue.name) == (100, [], "default")
    assert history(charge) == [
        "Changed queue from default to bank, default timeout from 86400 to 60, default priority "
        "from 100 to 5, default throttle factor from 1 to 0.25, default time windows from none to "
        "22:00-02:00, mon-fri 05:00-07:00, time zone from none to Europe/Paris."
    ]


def test_a_type_moves_to_queues_of_its_own_instance_only(admin_client: Client) -> None:
    job_type, foreign = JobTypeFactory.create(), QueueFactory.create(instance="other")

    page = save(admin_client, job_type, queue=str(foreign.pk)).content.decode()

    assert "not one of the available choices" in page
    assert JobType.objects.get(pk=job_type.pk).queue == job_type.queue


def test_workers_are_listed_with_their_heartbeat(admin_client: Client) -> None:
    shown: list[tuple[dict[str, Any], str]] = [
        ({}, ">running<"),
        ({"silent": True}, ">silent<"),
        ({"state": "stopped", "silent": True}, ">stopped<"),
        ({"state": "lost"}, ">lost<"),
        ({"queues": ["bank", "mail"]}, "bank, mail"),
    ]
    for values, text in shown:
        worker = WorkerFactory.create(**values)
        assert text in html(admin_client, list_url(Worker))
        assert text in html(admin_client, page_url(worker))
