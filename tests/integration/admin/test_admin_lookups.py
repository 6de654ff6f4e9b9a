"""What the address of an admin page may ask for: the filters that are there, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.db.models import Model
from django.test import Client, RequestFactory

import hipq_django as hipq
from hipq_django.admin import JobAdmin
from hipq_django.admin.filters import QueueFilter
from hipq_django.models import Answer, Batch, Job, JobType, Queue, Schedule, Worker
from tests.admin_pages import ACTION_BOX, html, list_url
from tests.factories import AnswerFactory, JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db

MODELS: list[type[Model]] = [Answer, Batch, Job, JobType, Queue, Schedule, Worker]
EACH_MODEL = pytest.mark.parametrize("model", MODELS)
CARD = "4111111111111111"


@pytest.fixture
def rows() -> list[Model]:
    """A row of each model."""
    answer = AnswerFactory.create(status="unmatched")
    job = JobFactory.create(job_key="k")
    schedule = hipq.schedule("nightly", hipq.NewJob(job.job_type.name), "0 2 * * *")
    batch = Batch.objects.create(name="reports", create_time=job.create_time)
    others = [batch, schedule, WorkerFactory.create()]
    return [answer, job, job.job_type, job.queue, *others]


@pytest.fixture
def operator(admin_client: Client) -> Client:
    """One whose browser shows an error where a test would raise it."""
    admin_client.raise_request_exception = False
    return admin_client


# Look-ups

REFUSED = [
    (Job, "job_data__card__startswith=41"),
    (Job, "job_data__card=4111111111111111"),
    (Job, "error=NONE"),
    (Job, "job_key__regex=^(a%2B)%2B$"),
    (Job, "job_key=%00"),
    (Job, "job_key__exact=k"),
    (Job, "attempts__error__contains=41"),
    (Job, "answers__payload__card__startswith=41"),
    (Job, "job_type__jobs__job_data__card__startswith=41"),
    (Job, "queue__throttler_problem__contains=41"),
    (Job, "queue__id__exact=1"),
    (Job, "pk__in=1,2"),
    (Job, "no_such_field=1"),
    (Answer, "payload__card__startswith=41"),
    (Answer, "job__job_data__card__startswith=41"),
    (Answer, "kind__regex=("),
    (JobType, "sensitive__contains=card"),
    (Queue, "jobs__job_data__card__startswith=41"),
    (Worker, "name__regex=("),
]


def test_what_no_filter_asks_for_is_refused(operator: Client) -> None:
    sent = {"action": "cancel", "select_across": "1", ACTION_BOX: ["1"]}
    answered = []
    for model, lookup in REFUSED:
        address = f"{list_url(model)}?{lookup}"
        pages = {
            "list": operator.get(address),
            "pop-up": operator.get(f"{address}&_popup=1"),
            "action": operator.post(address, sent),
        }
        answered += [(address, page) for page, got in pages.items() if got.status_code != 400]

    assert answered == []


@pytest.mark.conformance
def test_what_is_there_to_ask_is_answered(admin_client: Client, rows: list[Model]) -> None:
    expected: list[tuple[type[Model], dict[str, str], int]] = [
        (Job, {"state": "initial"}, 1),
        (Job, {"state": "final"}, 0),
        (Job, {"outcome": "failed"}, 0),
        (Job, {"q": "k"}, 1),
        (Job, {"o": "-1"}, 1),
        (Job, {"state": "initial", "o": "1", "p": "1", "_popup": "1", "_to_field": "id"}, 1),
        (Answer, {"status": "unmatched"}, 1),
        (Answer, {"status": "late"}, 0),
        (Answer, {"kind": "response"}, 1),
        (Answer, {"kind": "malformed"}, 0),
        (JobType, {"q": "k_no_such"}, 0),
        (JobType, {"q": "TYPE"}, 1),
    ]
    counts = [
        (model, query, admin_client.get(list_url(model), query).context["cl"].result_count)
        for model, query, _ in expected
    ]

    assert counts == expected


class FilteredAdmin(JobAdmin):
    """The pages of a project that wants to filter by more."""

    list_filter = (  # type: ignore[assignment]  # inferred from those of the class above
        "priority", ("create_time", admin.DateFieldListFilter), "queue", QueueFilter,
    )  # fmt: skip


def test_a_project_may_filter_by_fields_of_its_choice(rf: RequestFactory) -> None:
    page, request = FilteredAdmin(Job, admin.site), rf.get("/")
    asked = ["priority", "create_time__gte", "queue__id__exact", "queue"]
    others = ["state", "priority__regex", "queue__name__exact", "job_data__gte", "job_data"]

    assert [page.lookup_allowed(name, "1", request) for name in asked] == [True] * 4
    assert [page.lookup_allowed(name, "1", request) for name in others] == [False] * 5


# Sorting


def sorted_by(client: Client, model: type[Model], order: str) -> Any:
    return client.get(list_url(model), {"o": order}).context["cl"].queryset.query.order_by[0]


def test_jobs_are_sorted_by_their_id_only(admin_client: Client, rows: list[Model]) -> None:
    assert sorted_by(admin_client, Job, "1") == "id"
    assert sorted_by(admin_client, Job, "-1") == "-id"
    assert {sorted_by(admin_client, Job, f"{column}") for column in range(2, 12)} <= {"-id", "-pk"}


def test_the_list_of_jobs_links_only_to_what_is_allowed(
    admin_client: Client, rows: list[Model]
) -> None:
    for model in (Queue, JobType, Job, Answer):
        page = html(admin_client, list_url(model))
        links = {part.partition('"')[0] for part in page.split(' href="')[1:]}
        for link in (link.replace("&amp;", "&") for link in links if "?" in link):
            address = link if link.startswith("/") else list_url(model) + link
            assert admin_client.get(address).status_code == 200, address
