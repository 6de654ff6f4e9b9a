"""Schedules and batches in the admin: what is seen, and who may press what."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

import hipq_django as hipq
from hipq_django.admin.display import badge
from hipq_django.admin.job_panel import standing
from hipq_django.models import Batch, Job, Schedule
from hipq_django.monitoring import counts
from tests.admin_pages import act, history, html, list_url, log_in, messages_of, page_url, press
from tests.copying import copy
from tests.declaring import Declare
from tests.factories import JobFactory
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

HOURLY = hipq.Cron("0 * * * *", "Europe/Paris", overlap="allow")


@pytest.fixture
def schedule() -> Schedule:
    return hipq.schedule("hourly", hipq.NewJob("echo", {"shop": "berlin"}), HOURLY)


@pytest.fixture
def batch() -> Batch:
    with hipq.batch("import 7", then=hipq.NewJob("echo")) as batch:
        batch.enqueue_many([hipq.NewJob("echo"), hipq.NewJob("boom"), hipq.NewJob("ask")])
    return batch


def test_a_schedule_says_when_it_is_due_and_what_became_of_it(
    client: Client, schedule: Schedule
) -> None:
    log_in(client, "view_schedule", "view_job")
    job = hipq.run_schedule("hourly")
    hipq.pause_schedule("hourly", "the bank is closed")

    listed, page = html(client, list_url(Schedule)), html(client, page_url(schedule))

    for text in ("hourly", "0 * * * *", "the bank is closed", "run by hand", f"job {job.pk}"):
        assert text in listed
    assert f"{HOURLY.explanation} (Europe/Paris)</span>" in listed
    assert page.count("UTC)") == 5
    assert "Europe/Paris" in page
    assert "berlin" in page


def test_the_runs_of_two_weeks_are_dots_that_say_what_became_of_them(
    client: Client, schedule: Schedule
) -> None:
    log_in(client, "view_schedule", "view_job")
    jobs = [hipq.run_schedule("hourly") for _ in range(3)]
    run_due_jobs()
    hipq.run_schedule("hourly")
    schedule.runs.filter(job_id=jobs[0].pk).update(due_time=timezone.now() - timedelta(days=15))
    Job.objects.filter(pk=jobs[1].pk).delete()

    page = html(client, page_url(schedule))
    found = re.findall(r'hipq-dot (hipq-\w+)" role="img" title="[^"]+: ([^"]+)" aria', page)

    assert found == [
        ("hipq-cancelled", "run by hand"),  # its job was deleted
        ("hipq-succeeded", "succeeded"),
        ("hipq-initial", "initial"),
    ]
    assert f'href="/admin/hipq/job/{jobs[2].pk}/change/"><span class="hipq-dot' in page


def last_run(client: Client) -> str:
    """Return what the list says of the last run of its only schedule, without tags."""
    [column] = re.findall(r'class="field-last_run">(.*?)</td>', html(client, list_url(Schedule)))
    return re.sub(r"<[^>]+>", "", column)


def test_the_list_says_how_the_job_of_the_last_run_stands(
    client: Client, schedule: Schedule
) -> None:
    log_in(client, "view_schedule", "view_job")
    assert last_run(client) == "-"

    job = hipq.run_schedule("hourly")
    assert last_run(client).endswith(f"run by hand job {job.pk} initial")
    run_due_jobs()
    assert last_run(client).endswith(f"run by hand job {job.pk} final: succeeded")
    Job.objects.all().delete()
    assert last_run(client).endswith(f"run by hand job {job.pk}")


def test_a_run_that_was_skipped_does_not_stand_as_the_job_in_its_way(
    client: Client, schedule: Schedule
) -> None:
    Schedule.objects.update(overlap="skip", next_time=timezone.now())
    log_in(client, "view_schedule", "view_job")
    job = hipq.run_schedule("hourly")
    schedule.runs.all().delete()
    run_due_jobs()

    assert last_run(client).endswith(f"skipped job {job.pk} job {job.pk} is initial")
    page = html(client, page_url(schedule))
    assert re.findall(r'hipq-dot (hipq-\w+)" role="img" title="[^"]+: ([^"]+)"', page) == [
        ("hipq-cancelled", "skipped")
    ]


def test_a_schedule_that_cannot_be_read_is_shown_with_the_reason(
    client: Client, schedule: Schedule
) -> None:
    log_in(client, "view_schedule")
    Schedule.objects.update(cron="61 * * * *", problem="bad minute")

    assert "bad minute" in html(client, list_url(Schedule))
    assert "bad minute" in html(client, page_url(schedule))


@pytest.mark.parametrize("schedules", [1, 20])
def test_the_list_costs_no_query_for_each_schedule(
    client: Client, schedules: int, django_assert_max_num_queries: Any
) -> None:
    log_in(client, "view_schedule")
    for number in range(schedules):
        hipq.schedule(f"number {number}", hipq.NewJob("echo"), HOURLY)
        hipq.run_schedule(f"number {number}")

    with django_assert_max_num_queries(12):
        html(client, list_url(Schedule))


def test_a_batch_says_how_far_it_is(client: Client, batch: Batch) -> None:
    log_in(client, "view_batch")
    run_due_jobs()

    listed = html(client, list_url(Batch))

    assert "import 7" in listed
    assert '<progress value="2" max="3">' in listed


@pytest.mark.conformance
def test_the_list_of_batches_counts_up_to_a_bound(
    client: Client, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the page of a batch counts all of its jobs."""
    log_in(client, "view_batch")
    run_due_jobs()
    monkeypatch.setattr(counts, "COUNT_LIMIT", 3)
    with hipq.batch("large") as large:
        large.enqueue_many([hipq.NewJob("echo")] * 5)
    run_due_jobs()

    listed = html(client, list_url(Batch))

    assert '<progress value="2" max="3">' in listed
    assert listed.count("<progress") == 1
    assert '<td class="field-progress">3+ / 3+</td>' in listed
    assert '<td class="field-succeeded">3+</td>' in listed
    assert '<progress value="5" max="5">' in html(client, page_url(large))


@pytest.mark.parametrize("batches", [1, 20])
def test_the_list_of_batches_asks_the_same_number_of_queries(
    client: Client, batches: int, django_assert_max_num_queries: Any
) -> None:
    log_in(client, "view_batch")
    for _ in range(batches):
        with hipq.batch() as made:
            made.enqueue(hipq.NewJob("echo"))

    with django_assert_max_num_queries(8):
        html(client, list_url(Batch))


@pytest.mark.conformance
def test_the_page_of_a_batch_lists_its_jobs(client: Client, batch: Batch) -> None:
    log_in(client, "view_batch", "view_job")
    run_due_jobs()
    other = hipq.enqueue("echo")
    page = html(client, page_url(batch))
    link = f"{list_url(Job)}?batch={batch.pk}"

    assert '<progress value="2" max="3">' in page
    assert f'href="{link}">All 3 jobs of this batch' in page
    for job in batch.jobs.all():
        assert page_url(job) in page
        assert page_url(job) in html(client, link)
    assert page_url(other) not in html(client, link)
    assert page_url(batch.jobs.order_by("pk")[0]) in html(client, f"{link}&outcome=succeeded")


@pytest.mark.conformance
@pytest.mark.parametrize("text", ["x", "0", "9" * 40, "-1", "%00"])
def test_a_batch_that_cannot_be_has_no_jobs(client: Client, batch: Batch, text: str) -> None:
    log_in(client, "view_job")

    assert "0 jobs" in html(client, f"{list_url(Job)}?batch={text}")


def test_who_may_not_view_jobs_sees_no_jobs_of_a_batch(client: Client, batch: Batch) -> None:
    log_in(client, "view_batch")

    page = html(client, page_url(batch))

    assert "jobs of this batch" not in page
    assert "echo" not in page


@pytest.mark.conformance
def test_a_batch_is_cancelled(client: Client, batch: Batch) -> None:
    log_in(client, "view_batch", "cancel_batch")

    press(client, "cancel", batch)

    assert not Job.objects.live().exists()
    assert history(batch) == ["Began to cancel.", "Cancelled 4 jobs."]


@pytest.mark.conformance
def test_a_batch_of_which_only_then_is_left_is_cancelled(client: Client) -> None:
    log_in(client, "view_batch", "cancel_batch")
    with hipq.batch(then=hipq.NewJob("ask")) as batch:
        batch.enqueue(hipq.NewJob("echo"))
    run_due_jobs()
    then = Job.objects.live().get()

    press(client, "cancel", batch)

    then.refresh_from_db()
    assert then.outcome == "cancelled"


def test_a_batch_that_has_ended_has_no_button(client: Client, batch: Batch) -> None:
    log_in(client, "view_batch", "cancel_batch")
    hipq.cancel_batch(batch)

    assert page_url(batch, "cancel") not in html(client, page_url(batch))
    said = messages_of(act(client, "cancel", batch))
    assert said == [f"batch {batch.pk} (import 7) was left as it is: none of its jobs is live."]


def test_late_means_late(client: Client, schedule: Schedule) -> None:
    Schedule.objects.update(next_time=timezone.now() - timedelta(minutes=5))
    log_in(client, "view_schedule")

    assert "5 min" in html(client, list_url(Schedule))


def test_a_paused_schedule_in_trouble_says_both(client: Client, schedule: Schedule) -> None:
    hipq.pause_schedule("hourly", "the bank is closed")
    Schedule.objects.update(problem="bad minute", retired=True)
    log_in(client, "view_schedule")
    said = ["in trouble</span> bad minute", "paused</span> the bank is closed", "retired</span>"]

    for page in (html(client, list_url(Schedule)), html(client, page_url(schedule))):
        assert [text for text in said if text not in page] == []
        assert "active</span>" not in page


@pytest.mark.parametrize("idle", ["paused", "retired"])
def test_what_is_not_fired_has_no_due_time_in_the_past(
    client: Client, schedule: Schedule, idle: str
) -> None:
    log_in(client, "view_schedule")
    Schedule.objects.update(**{idle: True}, next_time=timezone.now() - timedelta(days=3))

    assert '<td class="field-next_due">-</td>' in html(client, list_url(Schedule))
    assert "3 d" not in html(client, page_url(schedule))


# What a job's page leads to


def test_a_job_leads_to_the_jobs_that_it_has_to_do_with(client: Client, batch: Batch) -> None:
    log_in(client, "view_job", "view_batch")
    then = Job.objects.held().get()
    member = batch.jobs.order_by("pk")[0]

    follower = hipq.enqueue("echo", after=[member])

    assert f"batch {batch.pk}</a>" in html(client, page_url(then))
    page = html(client, page_url(member))
    assert f"job {follower.pk}</a>" in page
    assert "Followed by" in page
    assert "Follows" in html(client, page_url(follower))


def test_a_job_leads_to_the_schedule_that_made_it(client: Client, schedule: Schedule) -> None:
    log_in(client, "view_job", "view_schedule")
    job = hipq.run_schedule("hourly")
    Job.objects.filter(pk=job.pk).update(due_time=datetime(2026, 3, 29, 1, tzinfo=UTC))

    row = '<th scope="row">Made by</th><td>{}, due at 2026-03-29 01:00:00 UTC</td>'
    link = f'<a href="{page_url(schedule)}">schedule {schedule.pk}</a>'
    assert row.format(link) in html(client, page_url(job))

    hipq.unschedule("hourly")
    deleted = f"schedule {schedule.pk}, which was deleted"
    assert row.format(deleted) in html(client, page_url(job))


def test_a_job_leads_to_the_one_that_enqueued_it_and_to_those_that_it_enqueued(
    client: Client, declare: Declare
) -> None:
    log_in(client, "view_job")
    declare("spread")(lambda job: hipq.enqueue("echo").pk)
    parent = hipq.enqueue("spread")
    run_due_jobs()
    child = Job.objects.get(parent=parent)

    of_parent, of_child = (html(client, page_url(job)) for job in (parent, child))

    row = '<th scope="row">{}</th><td>{}</td>'
    assert row.format("Enqueued while it ran", listed(of_page(child))) in of_parent
    assert row.format("Enqueued by", to_page(parent)) in of_child
    assert "Enqueued by" not in of_parent
    assert "Enqueued while it ran" not in of_child


def to_page(job: Job) -> str:
    return f'<a href="{page_url(job)}">job {job.pk}</a>'


def of_page(job: Job, below: str = "") -> str:
    """Return how a job and what is below it are listed."""
    job.refresh_from_db()
    return f"<li>{to_page(job)} {job.job_type} {badge(*standing(job))}{below}</li>"


def listed(*jobs: str) -> str:
    return f'<ul class="hipq-tree">{"".join(jobs)}</ul>'


@pytest.mark.conformance
def test_a_job_shows_the_whole_tree_that_it_is_in(client: Client) -> None:
    """Each level with where its jobs stand: that of a failed leaf is seen from the top."""
    log_in(client, "view_job")
    top = JobFactory.create()
    left, right = JobFactory.create_batch(2, parent=top)
    leaf = JobFactory.create(parent=left, state="final", outcome="failed", error="boom")
    last = JobFactory.create(parent=leaf)
    JobFactory.create()  # in no tree

    of_top, of_leaf = (html(client, page_url(job)) for job in (top, leaf))

    tree = listed(of_page(left, listed(of_page(leaf, listed(of_page(last))))), of_page(right))
    assert f"<td>{tree}</td>" in of_top
    assert f"<td>{to_page(top)} / {to_page(left)}</td>" in of_leaf
    assert f"<td>{listed(of_page(last))}</td>" in of_leaf
    assert to_page(right) not in of_leaf


@pytest.mark.conformance
def test_a_large_tree_is_shown_in_part(client: Client) -> None:
    """So that a page costs the same however large it is; the upper levels come first."""
    log_in(client, "view_job")
    chain = [JobFactory.create()]
    for _ in range(12):
        chain.append(JobFactory.create(parent=chain[-1]))
    wide = JobFactory.create()
    children = JobFactory.create_batch(51, parent=wide)
    JobFactory.create(parent=children[0])

    of_first, of_last, of_wide = (
        html(client, page_url(job)) for job in (chain[0], chain[-1], wide)
    )

    assert [to_page(job) in of_first for job in chain[1:]] == [True] * 10 + [False] * 2
    assert "</ul>…</td>" in of_first
    assert [to_page(job) in of_last for job in chain[:-1]] == [False] * 2 + [True] * 10
    assert f"<td>… / {to_page(chain[2])} / " in of_last
    assert [to_page(job) in of_wide for job in children] == [True] * 50 + [False]
    assert "</ul>…</td>" in of_wide


def test_a_tree_of_just_the_shown_size_is_complete(client: Client) -> None:
    log_in(client, "view_job")
    chain = [JobFactory.create()]
    for _ in range(10):
        chain.append(JobFactory.create(parent=chain[-1]))
    wide = JobFactory.create()
    copy(JobFactory.create(parent=wide), 49)

    for job in (chain[0], chain[-1], wide):
        assert "…</td>" not in html(client, page_url(job))
        assert "<td>… /" not in html(client, page_url(job))
    assert to_page(chain[0]) in html(client, page_url(chain[-1]))
    assert to_page(chain[-1]) in html(client, page_url(chain[0]))


@pytest.mark.conformance
def test_a_job_above_that_was_pruned_is_still_named(client: Client) -> None:
    log_in(client, "view_job")
    parent = JobFactory.create(parent=JobFactory.create())
    child = JobFactory.create(parent=parent)
    named = to_page(parent)
    Job.objects.filter(pk=parent.pk).delete()

    assert f"<td>{named}</td>" in html(client, page_url(child))


def test_a_waiting_job_leads_to_answers_that_may_be_its_own(client: Client) -> None:
    log_in(client, "view_job", "view_answer")
    job = hipq.enqueue("ask", job_key="order-7")
    run_due_jobs()
    answer = hipq.complete("ask", "order_7", 1)
    hipq.complete("echo", "order-7", 1)

    page = html(client, page_url(job))

    assert "Answers that may be for this job" in page
    assert page_url(answer) in page
    assert page.count("response for order") == 1


def test_a_job_of_a_former_name_leads_to_answers_under_the_present_one(
    client: Client, declare: Declare
) -> None:
    log_in(client, "view_job", "view_answer")
    declare("bill")(lambda job: hipq.WAIT)
    job = hipq.enqueue("bill", job_key="order-7")
    run_due_jobs()
    declare.forget_all()
    declare("invoice", aliases=["bill"])(lambda job: hipq.WAIT)
    answers = [hipq.complete(name, "order_7", 1) for name in ("invoice", "bill")]

    page = html(client, page_url(job))

    for answer in answers:
        assert page_url(answer) in page


def test_who_may_not_view_answers_is_not_led_to_them(client: Client) -> None:
    log_in(client, "view_job")
    job = hipq.enqueue("ask", job_key="order-7")
    run_due_jobs()
    hipq.complete("ask", "order_7", 1)

    assert "order_7" not in html(client, page_url(job))
