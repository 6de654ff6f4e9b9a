"""Nobody is led to a page that he may not see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urljoin

import pytest
from django.test import Client
from django.urls import reverse

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.models import Job, Queue
from tests.admin_pages import html, log_in, page_url
from tests.factories import AnswerFactory, JobFactory, WorkerFactory
from tests.rolling_back import rolled_back

pytestmark = pytest.mark.django_db

LINK = re.compile(r'<a\b[^>]*?href="([^"#]+)"')
OURS = re.compile(r"/admin/(hipq.*)?$")
MODELS = ("answer", "batch", "job", "jobtype", "queue", "schedule", "worker", "node", "graph")
USERS = [
    *([f"change_{model}"] for model in ("jobtype", "queue", "schedule", "worker", "graph")),
    ["view_job", "run_job", "cancel_job", "requeue_job"],
    ["view_answer", "match_answer"],
    ["view_batch", "cancel_batch"],
    ["view_schedule", "add_schedule", "delete_schedule", "run_schedule", "pause_schedule"],
    ["view_node", "run_node", "terminate_node", "edit_node", "edit_graph", "start_node"],
    ["view_node", "view_message", "change_message", "delete_message"],
    ["edit_graph", "start_node"],
]
MORE_USERS = [[f"{verb}_{model}"] for model in MODELS for verb in ("view", "change")]


@pytest.fixture
def job() -> Job:
    """A job among rows of each kind, which name each other."""
    with hipq.batch("import") as batch:
        job = hipq.enqueue("ask", job_key="first", batch=batch)
        hipq.enqueue("ask", after=[job])
    failed = JobFactory.create(
        state="final", outcome="failed", error="boom", job_type=job.job_type, queue=job.queue
    )
    hipq.requeue(failed)
    hipq.schedule("hourly", hipq.NewJob("ask"), "0 * * * *")
    hipq.run_schedule("hourly")
    AnswerFactory.create(job=job, status="accepted", job_type="ask")
    AnswerFactory.create(status="unmatched", job_type="ask")
    WorkerFactory.create()
    nodes = {name: {"component": "t.double"} for name in ("one", "two")}
    graph = flow.start({"nodes": nodes, "edges": ["one.out -> two.number"]})
    flow.start("t.double", data={"number": [3]})  # a run writes a message, which names it
    testing.drain()
    graph.children["one"].inputs["number"].write(3)
    Queue.objects.update(paused=True)
    return job


def statuses(client: Client) -> dict[str, int]:
    """Return the status of each page that links lead to, from the index on."""
    found: dict[str, int] = {}
    todo = [reverse("admin:index")]
    while todo:
        url = todo.pop()
        if url not in found:
            response = client.get(url, follow=True)
            found[url] = response.status_code
            todo += links(url, response.content.decode())
    return found


def links(url: str, page: str) -> Iterator[str]:
    """Yield where a page leads to; of filters only one at a time."""
    for link in LINK.findall(page):
        to = urljoin(url, unescape(link))
        if OURS.match(to) and not ("?" in url and "?" in to):
            yield to


@pytest.mark.parametrize(
    "users", [USERS[::2], USERS[1::2], pytest.param(MORE_USERS, marks=pytest.mark.nightly)]
)
def test_each_link_can_be_followed(client: Client, job: Job, users: list[list[str]]) -> None:
    refused = {}
    for permissions in users:
        with rolled_back():
            log_in(client, *permissions)
            found = statuses(client)
            assert len(found) > 2
            refused[*permissions] = {url for url, status in found.items() if status != 200}

    assert {who: urls for who, urls in refused.items() if urls} == {}


def test_who_may_not_follow_a_link_reads_its_text(client: Client, job: Job) -> None:
    log_in(client, "view_job")

    page = html(client, page_url(job))

    assert page_url(job.queue) not in page
    assert f">{job.queue}<" in page
