"""Who sees and edits what in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from hipq_django.models import Answer, Job, JobType, Queue, Worker
from tests.admin_pages import act, form_values, html, list_url, log_in, page_url, save
from tests.factories import (
    AnswerFactory,
    AttemptFactory,
    JobFactory,
    JobTypeFactory,
    QueueFactory,
    WorkerFactory,
)

pytestmark = pytest.mark.django_db

FACTORIES: dict[type[Model], Any] = {
    Answer: AnswerFactory,
    Job: JobFactory,
    JobType: JobTypeFactory,
    Queue: QueueFactory,
    Worker: WorkerFactory,
}
EDITS: dict[type[Model], dict[str, str]] = {
    Job: {"priority": "1"},
    JobType: {"default_priority": "1"},
    Queue: {"throttle_limit": "1"},
}
MODELS = pytest.mark.parametrize("model", FACTORIES)
EVERYTHING = [
    f"{verb}_{model._meta.model_name}"
    for model in FACTORIES
    for verb in ("view", "change", "add", "delete")
]


def make(model: type[Model]) -> Model:
    row: Model = FACTORIES[model].create()
    return row


@MODELS
def test_without_permission_a_staff_user_sees_nothing(client: Client, model: type[Model]) -> None:
    log_in(client)
    row = make(model)

    for url in (list_url(model), page_url(row), page_url(row, "history")):
        assert client.get(url).status_code == 403
    assert "Job queue" not in html(client, reverse("admin:index"))


@MODELS
def test_who_is_not_staff_is_sent_to_the_log_in(client: Client, model: type[Model]) -> None:
    log_in(client, *EVERYTHING, is_staff=False)

    response = client.get(list_url(model))

    assert response.status_code == 302
    assert "login" in response["Location"]


@MODELS
def test_who_may_view_sees_no_button_and_edits_nothing(client: Client, model: type[Model]) -> None:
    log_in(client, f"view_{model._meta.model_name}")
    row = make(model)

    page = html(client, page_url(row))

    assert 'type="submit"' not in page.partition("</header>")[2]
    assert set(form_values(client, row)) <= {"csrfmiddlewaretoken"}
    assert 'name="action"' not in html(client, list_url(model))
    assert client.post(page_url(row), EDITS.get(model, {})).status_code == 403


@MODELS
def test_nobody_adds_or_deletes(admin_client: Client, model: type[Model]) -> None:
    row = make(model)
    add = list_url(model) + "add/"

    assert admin_client.get(add).status_code == 403
    assert admin_client.post(add, {}).status_code == 403
    assert admin_client.post(page_url(row, "delete"), {"post": "yes"}).status_code == 403
    act(admin_client, "delete_selected", row)
    assert model._default_manager.filter(pk=row.pk).exists()


@pytest.mark.parametrize("model", EDITS)
def test_who_may_change_edits(client: Client, model: type[Model]) -> None:
    log_in(client, f"change_{model._meta.model_name}")
    row = make(model)
    ((name, value),) = EDITS[model].items()

    assert save(client, row, **{name: value}).status_code == 200
    assert getattr(model._default_manager.get(pk=row.pk), name) == int(value)


@pytest.mark.parametrize("model", [Answer, Worker])
def test_answers_and_workers_are_read_only(admin_client: Client, model: type[Model]) -> None:
    row = make(model)

    assert set(form_values(admin_client, row)) <= {"csrfmiddlewaretoken"}
    assert admin_client.post(page_url(row), {}).status_code == 403


def test_failed_attempts_are_read_only(admin_client: Client) -> None:
    attempt = AttemptFactory.create(job=JobFactory.create(state="retry"))

    save(admin_client, attempt.job, error="gone", priority="1")

    attempt.refresh_from_db()
    assert attempt.error == "boom"


@pytest.mark.parametrize("model", [JobType, Queue])
def test_name_and_instance_are_never_edited(admin_client: Client, model: type[Model]) -> None:
    row = make(model)

    save(admin_client, row, name="other", instance="other", **EDITS[model])

    fresh = model._default_manager.values("name", "instance").get(pk=row.pk)
    assert fresh == {"name": row.name, "instance": "default"}  # type: ignore[attr-defined]
