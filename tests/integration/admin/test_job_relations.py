"""The rows that a job's page leads to, and where it stands in its tree."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

import hipq_django as hipq
from hipq_django.admin.display import badge
from hipq_django.admin.job_panel import standing
from hipq_django.models import Answer, Job
from tests.admin_pages import html, list_url, log_in, page_url
from tests.factories import JobFactory
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

LINE = '<th scope="row">{}</th><td>{}</td>'


def to_page(job: Job) -> str:
    return f'<a href="{page_url(job)}">job {job.pk}</a>'


def of_page(job: Job, below: str = "") -> str:
    """Return how a job and what is below it are listed."""
    job.refresh_from_db()
    return f"<li>{to_page(job)} {job.job_type} {badge(*standing(job))}{below}</li>"


def listed(*jobs: str) -> str:
    return f'<ul class="hipq-tree">{"".join(jobs)}</ul>'


def test_a_job_leads_to_the_jobs_that_it_has_to_do_with(client: Client) -> None:
    log_in(client, "view_job", "view_batch")
    with hipq.batch("import 7", then=hipq.NewJob("echo")) as batch:
        member = batch.enqueue(hipq.NewJob("echo"))
    then = Job.objects.held().get()
    follower = hipq.enqueue("echo", after=[member])
    again = hipq.requeue(JobFactory.create(state="final"))
    origin = again.origin
    assert origin is not None

    in_batch = f'<a href="{page_url(batch)}">batch {batch.pk}</a>'
    for job, title, links in (
        (then, "Follows", in_batch),
        (member, "Batch", in_batch),
        (member, "Followed by", to_page(follower)),
        (follower, "Follows", to_page(member)),
        (origin, "Requeued as", to_page(again)),
        (again, "Requeued from", to_page(origin)),
    ):
        assert LINE.format(title, links) in html(client, page_url(job)), title


def test_a_job_leads_to_the_schedule_that_made_it(client: Client) -> None:
    log_in(client, "view_job", "view_schedule")
    schedule = hipq.schedule("hourly", hipq.NewJob("echo"), "0 * * * *")
    job = hipq.run_schedule("hourly")
    Job.objects.filter(pk=job.pk).update(due_time=datetime(2026, 3, 29, 1, tzinfo=UTC))

    made_by = LINE.format("Made by", "{}, due at 2026-03-29 01:00:00 UTC")
    link = f'<a href="{page_url(schedule)}">schedule {schedule.pk}</a>'
    assert made_by.format(link) in html(client, page_url(job))

    hipq.unschedule("hourly")
    deleted = f"schedule {schedule.pk}, which was deleted"
    assert made_by.format(deleted) in html(client, page_url(job))


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
    assert "Enqueued by" not in of_top
    assert LINE.format("Enqueued by", f"{to_page(top)} / {to_page(left)}") in of_leaf
    assert LINE.format("Enqueued while it ran", listed(of_page(last))) in of_leaf


def test_a_large_tree_is_shown_in_part(client: Client) -> None:
    """So that a page costs the same however large it is; the upper levels come first."""
    log_in(client, "view_job")
    chain = [JobFactory.create()]
    for _ in range(12):
        chain.append(JobFactory.create(parent=chain[-1]))
    wide = JobFactory.create()
    children = JobFactory.create_batch(51, parent=wide)

    pages = [html(client, page_url(job)) for job in (chain[0], chain[-1], wide)]

    assert [to_page(job) in pages[0] for job in chain[1:]] == [True] * 10 + [False] * 2
    assert [to_page(job) in pages[1] for job in chain[:-1]] == [False] * 2 + [True] * 10
    assert f"<td>… / {to_page(chain[2])} / " in pages[1]
    assert [to_page(job) in pages[2] for job in children] == [True] * 50 + [False]
    assert [page.count("</ul>…</td>") for page in pages] == [1, 0, 1]


def test_a_job_that_waits_for_its_answer_leads_to_those_without_a_job(client: Client) -> None:
    hipq.enqueue("ask", job_key="order-7")
    run_due_jobs()
    link = f'<a href="{list_url(Answer)}?status=no_job">Answers without a job</a>'

    user = log_in(client, "view_job")
    assert link not in html(client, page_url(Job.objects.get()))
    user.user_permissions.add(Permission.objects.get(codename="view_answer"))
    assert link in html(client, page_url(Job.objects.get()))
