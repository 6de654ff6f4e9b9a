"""Who sees and edits what in the admin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.models import Answer, Attempt, Batch, Job, JobType, Queue, Schedule, Worker
from hipq_django.schedules.firing import Firing
from tests.admin_pages import (
    ACTION_BOX,
    act,
    form_values,
    html,
    list_url,
    log_in,
    page_url,
    save,
)
from tests.declaring import Declare
from tests.factories import (
    AnswerFactory,
    BatchFactory,
    JobFactory,
    JobTypeFactory,
    QueueFactory,
    ScheduleFactory,
    WorkerFactory,
)
from tests.rolling_back import rolled_back
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

FACTORIES: dict[type[Model], Any] = {
    Answer: AnswerFactory,
    Batch: BatchFactory,
    Job: JobFactory,
    JobType: JobTypeFactory,
    Queue: QueueFactory,
    Schedule: ScheduleFactory,
    Worker: WorkerFactory,
}
EDITS: dict[type[Model], dict[str, str]] = {
    Job: {"priority": "1"},
    JobType: {"default_priority": "1"},
    Queue: {"throttle_limit": "1"},
}
EVERYTHING = [
    f"{verb}_{model._meta.model_name}"
    for model in FACTORIES
    for verb in ("view", "change", "add", "delete")
]


def make(model: type[Model]) -> Model:
    row: Model = FACTORIES[model].create()
    return row


def test_without_permission_a_staff_user_sees_nothing(client: Client) -> None:
    log_in(client)

    for row in map(make, FACTORIES):
        for url in (list_url(type(row)), page_url(row), page_url(row, "history")):
            assert client.get(url).status_code == 403, url
    assert "Job queue" not in html(client, reverse("admin:index"))


def test_who_is_not_staff_is_sent_to_the_log_in(client: Client) -> None:
    log_in(client, *EVERYTHING, is_staff=False)

    for model in FACTORIES:
        response = client.get(list_url(model))
        assert response.status_code == 302
        assert "login" in response["Location"]


@pytest.mark.parametrize("model", FACTORIES)
def test_who_may_view_sees_no_button_and_edits_nothing(client: Client, model: type[Model]) -> None:
    log_in(client, f"view_{model._meta.model_name}")
    row = make(model)

    page = html(client, page_url(row))

    assert 'type="submit"' not in page.partition("</header>")[2]
    assert set(form_values(client, row)) <= {"csrfmiddlewaretoken"}
    assert 'name="action"' not in html(client, list_url(model))
    assert client.post(page_url(row), EDITS.get(model, {})).status_code == 403


def test_nobody_adds_or_deletes(admin_client: Client) -> None:
    for model in set(FACTORIES) - {Schedule}:
        row, add = make(model), list_url(model) + "add/"
        denied = [admin_client.get(add), admin_client.post(add, {})]
        denied.append(admin_client.post(page_url(row, "delete"), {"post": "yes"}))

        assert [response.status_code for response in denied] == [403] * 3, model
        act(admin_client, "delete_selected", row)
        assert model._default_manager.filter(pk=row.pk).exists(), model


@pytest.mark.conformance
def test_who_may_change_edits(client: Client) -> None:
    for model, edit in EDITS.items():
        with rolled_back():
            log_in(client, f"change_{model._meta.model_name}")
            row = make(model)
            ((name, value),) = edit.items()

            assert save(client, row, **{name: value}).status_code == 200
            assert getattr(model._default_manager.get(pk=row.pk), name) == int(value)


def test_who_may_do_all_else_adds_no_schedule(client: Client) -> None:
    log_in(client, *(f"{verb}_schedule" for verb in ("view", "change", "delete", "run", "pause")))

    add = list_url(Schedule) + "add/"
    assert [client.get(add).status_code, client.post(add, {}).status_code] == [403, 403]


@pytest.mark.parametrize("may_follow", [False, True])
def test_a_job_leads_to_its_worker_only_who_may_see_workers(
    client: Client, may_follow: bool
) -> None:
    log_in(client, "view_job", *(["view_worker"] if may_follow else []))
    worker = WorkerFactory.create(name="shop-1:4711")

    page = html(client, page_url(JobFactory.create(state="running", worker=worker)))

    assert "shop-1:4711" in page
    assert (page_url(worker) in page) == may_follow


# Who is shown what of a job, wherever it stands

MARKS = {
    "the-data": "view_job",
    "the-error": "view_job",
    "the-traceback": "view_job",
    "the-result": "view_job",
    "the-job-key": "view_job",
    "the-progress": "view_job",
    "the-problem": "view_job",  # a throttler may quote the jobs that it was asked about
    "the-payload": "view_answer",
    "the-unmatched": "view_answer",
    "the-answer-key": "view_answer",
    "the-schedule-name": "view_schedule",
    "the-schedule-data": "view_schedule",
    "the-schedule-problem": "view_schedule",
    "the-batch-name": "view_batch",
}
"""Texts that stand in rows, and the permission without which no page shows them."""

VIEWS = ["view_answer", "view_batch", "view_job", "view_jobtype", "view_queue", "view_schedule",
         "view_worker"]  # fmt: skip
VERBS = ["match_answer", "run_job", "cancel_job", "requeue_job", "cancel_batch", "run_schedule",
         "pause_schedule"]  # fmt: skip
# Only jobs name rows of the other kinds, or are named there: three users would see any leak.
SETS = [[], [v for v in VIEWS if v != "view_job"],
        [v for v in VIEWS if v == "view_job" or v not in MARKS.values()]]  # fmt: skip


@dataclass(frozen=True)
class World:
    """A row of each kind, with a mark in each of its values."""

    waiting: Job
    done: Job
    free: Answer
    taken: Answer
    batch: Batch
    schedule: Schedule

    def pages(self) -> list[str]:
        """Return the addresses that may be opened."""
        queue, job_type = self.waiting.queue, self.waiting.job_type
        rows = [self.waiting, self.done, self.free, self.taken, queue, job_type, self.batch]
        rows += [self.schedule, Job.objects.get(schedule_id=self.schedule.pk), Worker.objects.get()]
        match = page_url(self.free, "match")
        asked = "app_label=hipq&model_name=answer&field_name=job"
        return [
            reverse("admin:index"),
            reverse("admin:app_list", args=["hipq"]),
            *(list_url(model) for model in FACTORIES),
            f"{list_url(Job)}?q=the-job-key",
            f"{list_url(Job)}?batch={self.batch.pk}",
            f"{list_url(Answer)}?q=the-answer-key",
            page_url(self.schedule, "backfill"),
            *(page_url(row) for row in rows),
            *(page_url(row, "history") for row in rows),
            match,
            f"{reverse('admin:autocomplete')}?{asked}&term=the-job-key",
        ]

    def submits(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what may be sent, so that each answers with a message of its own."""
        pks = [self.waiting.pk, self.done.pk]
        buttons: list[tuple[str, dict[str, Any]]] = [
            (page_url(job, name), {})
            for job in (self.waiting, self.done)
            for name in ("run_now", "cancel", "requeue")
        ]
        actions = [
            (list_url(Job), {"action": name, ACTION_BOX: pks})
            for name in ("run_now", "cancel", "requeue")
        ]
        for row, names in (
            (self.batch, ["cancel"]),
            (self.schedule, ["run_now", "pause", "resume"]),
        ):
            buttons += [(page_url(row, name), {}) for name in names]
            actions += [
                (list_url(type(row)), {"action": name, ACTION_BOX: [row.pk]}) for name in names
            ]
        match = page_url(self.free, "match")
        matches: list[tuple[str, dict[str, Any]]] = [
            (match, {"job": pk, "confirmed": "1", **seen})
            for pk in pks
            for seen in ({}, {"seen": pk})
        ]
        return [*matches, *buttons, *actions]


@pytest.fixture
def world(declare: Declare) -> World:
    """A job that waits for a retry, one that is done, and answers with and without a job.

    The one that waits is of a batch, and a schedule was not fired because a job of it is live.
    """
    declare("charge")(lambda job: hipq.WAIT)
    done = hipq.enqueue("charge", {"note": "the-data"}, job_key="the-job-key")
    run_due_jobs()
    taken = hipq.complete("charge", "the-job-key", {"result": "the-result"})
    Answer.objects.filter(pk=taken.pk).update(payload="the-payload", job_key="the-answer-key")
    batch = BatchFactory.create(name="the-batch-name")
    waiting = JobFactory.create(
        batch=batch,
        queue=done.queue,
        job_type=done.job_type,
        job_data={"note": "the-data"},
        job_key="the-job-key",
        state="retry",
        attempt=1,
        error="the-error",
        progress_message="the-progress",
    )
    Attempt.objects.create(job=waiting, attempt=1, error="the-error", traceback="the-traceback")
    Queue.objects.update(throttler_problem="the-problem")
    WorkerFactory.create()
    free = AnswerFactory.create(
        status="unmatched", job_type="charge", job_key="the-answer-key", payload="the-unmatched"
    )
    return World(waiting, done, free, taken, batch, skipped_schedule())


def skipped_schedule() -> Schedule:
    """Return a schedule that was due while a job of it was live."""
    data = {"note": "the-schedule-data"}
    row = hipq.schedule("the-schedule-name", hipq.NewJob("echo", data), hipq.Every(hours=1))
    JobFactory.create(job_type=row.job_type, schedule_id=row.pk, job_key="the-job-key")
    Schedule.objects.update(next_time=clock.now("default"))
    assert Firing(get_instance()).run() == 1
    Schedule.objects.update(problem="the-schedule-problem")
    assert row.runs.get().kind == "skipped"
    return row


def seen(client: Client, world: World) -> set[str]:
    """Open every page, send everything, and return the marks that were shown."""
    shown = [client.get(url, follow=True) for url in world.pages()]
    shown += [client.post(url, sent, follow=True) for url, sent in world.submits()]
    texts = "".join(response.content.decode() for response in shown)
    return {mark for mark in MARKS if mark in texts}


def test_nobody_is_shown_what_he_may_not_view(client: Client, world: World) -> None:
    for views in SETS:
        with rolled_back():
            log_in(client, *views, *VERBS)
            allowed = {mark for mark, permission in MARKS.items() if permission in views}
            assert seen(client, world) <= allowed, views


def test_who_may_view_everything_is_shown_everything(client: Client, world: World) -> None:
    log_in(client, *VIEWS, *VERBS)

    assert seen(client, world) == set(MARKS)


@pytest.mark.parametrize("lacking", ["view_answer", "view_job", "match_answer"])
def test_the_page_for_matching_needs_three_permissions(
    client: Client, world: World, lacking: str
) -> None:
    log_in(client, *({"view_answer", "view_job", "match_answer"} - {lacking}))
    match = page_url(world.free, "match")

    assert "Match it" not in client.get(page_url(world.free)).content.decode()
    pk = str(world.waiting.pk)
    for sent in ({}, {"job": pk, "seen": pk, "confirmed": "1"}):
        assert client.get(match, sent).status_code == 403
        assert client.post(match, sent).status_code == 403
    world.free.refresh_from_db()
    assert world.free.job_id is None


def test_a_site_that_hides_jobs_hides_them_from_the_page_for_matching(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(client, "view_answer", "view_job", "match_answer")
    page = admin.site.get_model_admin(Job)
    shown = page.get_queryset

    def only_done(request: HttpRequest) -> QuerySet[Any]:
        return shown(request).filter(pk=world.done.pk)

    monkeypatch.setattr(page, "get_queryset", only_done)

    for more in ({}, {"seen": world.waiting.pk}):
        sent = {"job": world.waiting.pk, "confirmed": "1", **more}
        text = client.post(page_url(world.free, "match"), sent).content.decode()
        assert f"There is no job {world.waiting.pk}." in text
        assert "the-data" not in text
    world.free.refresh_from_db()
    assert world.free.job_id is None
