"""The admin of a sharded instance: each list shows one shard, and each page that of its row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import Client
from django.utils.translation import override

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings
from hipq_django.models import Answer, Batch, Job, JobType, Queue, Schedule, Worker
from tests.admin_pages import history, html, list_url, messages_of, page_url, press, save
from tests.factories import QueueFactory
from tests.integration.sharding.conftest import ALIASES, sharded

__all__ = ["sharded"]

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]


@pytest.fixture
def jobs(sharded: InstanceSettings) -> list[Job]:
    """A job in each shard."""
    call_command("hipq_shards", "add", verbosity=0)
    keys = ("tenant-7", "tenant-1")
    return [hipq.enqueue("echo", job_key=f"of-{key}", shard_key=key) for key in keys]


@contextmanager
def silent(alias: str) -> Iterator[None]:
    """Let a database not answer."""
    connection = connections[alias]
    connection.close()
    before, connection.settings_dict = connection.settings_dict, {
        **connection.settings_dict, "PORT": "1"
    }  # fmt: skip
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict = before


def queues() -> list[Queue]:
    """The row of the queue in each shard."""
    return [Queue.objects.using(alias).get() for alias in ALIASES]


def listed(page: str) -> list[int]:
    """The numbers of the shards whose jobs are on a page."""
    return [n for n, key in enumerate(("of-tenant-7", "of-tenant-1")) if f">{key}<" in page]


def test_a_list_shows_the_shard_that_was_chosen_last(admin_client: Client, jobs: list[Job]) -> None:
    def opened(**query: Any) -> tuple[list[int], str]:
        response = admin_client.get(list_url(Job), query, follow=True)
        return listed(response.content.decode()), response.wsgi_request.get_full_path()

    assert opened() == ([0], f"{list_url(Job)}?shard=0")
    assert opened(shard=1) == ([1], f"{list_url(Job)}?shard=1")
    assert opened(state="waiting") == ([1], f"{list_url(Job)}?state=waiting&shard=1")
    assert opened(shard=7) == ([1], f"{list_url(Job)}?shard=1")


@pytest.mark.parametrize("model", [Answer, Batch, Job, JobType, Queue, Schedule, Worker])
def test_each_list_has_a_chooser(admin_client: Client, jobs: list[Job], model: type) -> None:
    page = html(admin_client, list_url(model), shard="1")

    assert '<option value="0">0: default</option>' in page
    assert '<option value="1" selected>1: other</option>' in page


def test_pages_find_their_shard_by_the_id(admin_client: Client, jobs: list[Job]) -> None:
    for number, job in enumerate(jobs):
        page = html(admin_client, page_url(job))
        assert f"of-tenant-{'71'[number]}" in page
        assert page_url(queues()[number]) in page
        assert html(admin_client, page_url(job, "history"))

    url = page_url(jobs[0]).replace(str(jobs[0].pk), "63")
    assert admin_client.get(url).status_code == 302


def test_links_lead_to_lists_of_the_same_shard(admin_client: Client, jobs: list[Job]) -> None:
    queue = queues()[1]

    page = html(admin_client, page_url(queue))

    assert f"{list_url(Job)}?shard=1&amp;queue={queue.pk}&amp;state=due" in page


def test_a_row_is_edited_and_pressed_in_its_shard(admin_client: Client, jobs: list[Job]) -> None:
    job = jobs[1]

    save(admin_client, job, priority="5")
    press(admin_client, "cancel", job)

    job = Job.objects.using("other").get(pk=job.pk)
    assert (job.priority, job.state) == (5, "final")
    assert history(job) == ["Changed priority from 100 to 5.", "Cancelled."]
    assert Job.objects.get().state == "initial"


def test_actions_act_in_the_shard_of_the_page(admin_client: Client, jobs: list[Job]) -> None:
    html(admin_client, list_url(Queue), shard=0)  # chosen in another window meanwhile
    sent = {"action": "pause", "_selected_action": "1", "select_across": "1"}

    admin_client.post(f"{list_url(Queue)}?shard=1", sent)

    assert [queue.paused for queue in queues()] == [False, True]


def test_the_page_of_a_queue_says_what_each_shard_has(
    admin_client: Client, jobs: list[Job]
) -> None:
    Queue.objects.using("other").update(throttle_limit=10, share="2.5", owed=3)

    pages = [html(admin_client, page_url(queue)) for queue in queues()]

    for page in pages:
        [row] = [part for part in page.split("<tr>") if ">other</a></th>" in part]
        for name, value in {"Due": 1, "Running": 0, "Share": 2.5, "Owed": 3}.items():
            assert f'<td data-label="{name}">{value}</td>' in row
    assert ">0 of 2.5<" in pages[1]


def test_a_shard_that_does_not_answer_is_named(admin_client: Client, jobs: list[Job]) -> None:
    own = queues()[0]
    for language, text in (("en", "other does not answer"), ("fr", "other ne répond pas")):
        with silent("other"), override(language):
            pages = [
                html(admin_client, list_url(Job), shard=1),
                html(admin_client, page_url(jobs[1])),
                html(admin_client, page_url(own)),
            ]

            assert all(f"<h1>{text}</h1>" in page for page in pages[:2])
            assert f'<td colspan="4">{text}</td>' in pages[2]
            assert listed(html(admin_client, list_url(Job), shard=0)) == [0]


def test_without_shards_there_is_no_choice(admin_client: Client) -> None:
    queue = QueueFactory.create()

    for url in (list_url(Queue), page_url(queue)):
        page = html(admin_client, url)
        assert "hipq-shard" not in page
        assert "Owed" not in page


def test_a_changed_limit_is_changed_in_all_shards(admin_client: Client, jobs: list[Job]) -> None:
    own = queues()[1]

    [said] = messages_of(save(admin_client, own, throttle_limit="12", retention_days="4"))

    assert "was changed successfully" in said
    assert {queue.throttle_limit for queue in queues()} == {12}
    assert sum(queue.share or 0 for queue in queues()) == 12
    assert queues()[1].retention_days == 4
    assert "throttle limit from 0 to 12" in history(own)[0]


@pytest.mark.parametrize("edit", [{"retention_days": "x"}, {}])
def test_a_limit_that_cannot_be_changed_is_an_error_of_the_form(
    admin_client: Client, jobs: list[Job], edit: dict[str, str]
) -> None:
    before = queues()
    with silent("other"):
        page = save(admin_client, before[0], throttle_limit="12", **edit).content.decode()

    text = "The limit of &#x27;default&#x27; was not changed: other does not answer."
    assert (text in page) is not bool(edit)
    assert [q.throttle_limit for q in queues()] == [q.throttle_limit for q in before]
