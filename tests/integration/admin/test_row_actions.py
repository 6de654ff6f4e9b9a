"""What holds for every verb of an operator: who may do it, when it asks, and what is written down.

What each verb changes is tested with its rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models import Model
from django.test import Client

import hipq_django as hipq
from hipq_django import flow
from hipq_django.admin import row_actions
from hipq_django.admin.row_actions import RowActions
from hipq_django.api import batches
from hipq_django.database import clock
from hipq_django.flow.models import Node, Wake
from hipq_django.models import Batch, Job, Queue, Schedule
from tests.admin_pages import (
    ACTION_BOX,
    act,
    confirm,
    history,
    html,
    list_url,
    log_in,
    messages_of,
    page_url,
    press,
)
from tests.concurrency.conftest import Refuse, refuse
from tests.factories import JobFactory, QueueFactory
from tests.flow.conftest import in_status
from tests.running import run_due_jobs

__all__ = ["refuse"]

pytestmark = pytest.mark.django_db

WEEK = timedelta(days=7)


def job_in(state: str, **values: Any) -> Job:
    job: Job = JobFactory.create(state=state, **values)
    return job


def put_off() -> Job:
    return job_in("retry", scheduled_run_time=clock.now("default") + WEEK)


def a_batch() -> Batch:
    with hipq.batch("import 7") as batch:
        batch.enqueue_many([hipq.NewJob("echo")] * 2)
    return batch


def a_schedule(*, paused: bool = False) -> Schedule:
    row = hipq.schedule(f"s{Schedule.objects.count()}", hipq.NewJob("echo"), "0 * * * *")
    return hipq.pause_schedule(row.name) if paused else row


def a_node(*, paused: bool = False) -> Node:
    node = flow.start("t.sum", run=False)
    if paused:
        node.pause()
    return node


@dataclass(frozen=True)
class Case:
    """A verb, a row that it suits, what it needs, and what is said to be done."""

    verb: str
    make: Callable[[], Any]
    needs: str
    done: str
    sent: tuple[tuple[str, str], ...] = ()
    warns: str = ""


SPAN = (("start", "2026-03-01T00:30"), ("end", "2026-03-01T02:30"))

CASES = {
    "job-run_now": Case("run_now", put_off, "run_job", "Set to run now, its time windows dropped"),
    "job-requeue": Case("requeue", lambda: job_in("final"), "requeue_job", "Requeued"),
    "job-cancel": Case(
        "cancel", lambda: job_in("running"), "cancel_job", "Cancelled", (), "The job becomes final."
    ),
    "batch-cancel": Case(
        "cancel", a_batch, "cancel_batch", "Cancelled", (), "All live jobs of the batch become"
    ),
    "schedule-run_now": Case("run_now", a_schedule, "run_schedule", "Run by hand"),
    "schedule-pause": Case("pause", a_schedule, "pause_schedule", "Paused"),
    "schedule-resume": Case(
        "resume", lambda: a_schedule(paused=True), "pause_schedule", "Resumed"
    ),
    "schedule-backfill": Case(
        "backfill", a_schedule, "run_schedule", "Backfilled", SPAN, "A job is made for each"
    ),
    "schedule-delete": Case(
        "delete", a_schedule, "delete_schedule", "Deleted", (), "The schedule and the record"
    ),
    "queue-pause": Case("pause", QueueFactory.create, "change_queue", "Paused"),
    "queue-resume": Case(
        "resume", lambda: QueueFactory.create(paused=True), "change_queue", "Resumed"
    ),
    "node-run": Case("run", a_node, "run_node", "Set to run", (), "The next free worker runs"),
    "node-run_by_force": Case(
        "run_by_force", lambda: in_status("failed"), "run_node", "Set to run by force", (),
        "if neither they nor the code were corrected",
    ),
    "node-pause": Case("pause", a_node, "run_node", "Paused", (), "A paused node starts no run"),
    "node-resume": Case(
        "resume", lambda: a_node(paused=True), "run_node", "Resumed", (), "A resumed node may run"
    ),
    "node-terminate": Case(
        "terminate", a_node, "terminate_node", "Set to terminate", (("extent", "node"),),
        "A node that is terminated shuts down",
    ),
}  # fmt: skip
EACH = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
ALL_PERMISSIONS = {case.needs for case in CASES.values()}
ON_PAGE_ONLY = {"backfill"}


class Place(NamedTuple):
    """From where a verb is done."""

    do: Callable[..., Any]
    is_page: bool


PLACES = {"page": Place(confirm, True), "list": Place(act, False)}
EACH_PLACE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


def view_of(row: Model) -> str:
    return f"view_{row._meta.model_name}"


def has_button(client: Client, row: Any, verb: str) -> bool:
    return page_url(row, verb) in html(client, page_url(row))


def state() -> list[Any]:
    """Return what verbs change."""
    rows: list[type[Model]] = [Job, Schedule, Queue, Node, Wake]
    return [*(list(model._default_manager.order_by("pk").values()) for model in rows)]


# Who may


@pytest.mark.conformance
@EACH
@EACH_PLACE
def test_its_permission_and_the_one_to_view_are_enough(
    client: Client, case: Case, place: Place
) -> None:
    if not place.is_page and case.verb in ON_PAGE_ONLY:
        pytest.skip("the list does not offer it")
    row = case.make()
    user = log_in(client, view_of(row), case.needs)
    if place.is_page and not isinstance(row, Queue):  # whose page is a form
        assert has_button(client, row, case.verb)
    before = state()

    sent = {**dict(case.sent), "confirmed": "1"}
    response = place.do(client, case.verb, row, **sent)

    assert messages_of(response)[0].startswith(case.done)
    assert history(row)[-1].startswith(case.done)
    assert LogEntry.objects.filter(user=user).exists()
    assert state() != before


@EACH
def test_nobody_else_may(client: Client, case: Case) -> None:
    row = case.make()
    log_in(client, view_of(row), *ALL_PERMISSIONS - {case.needs})
    before = state()

    assert not has_button(client, row, case.verb)
    assert client.get(page_url(row, case.verb)).status_code == 403
    for place in PLACES.values():
        place.do(client, case.verb, row, **dict(case.sent), confirmed="1")
    assert (state(), history(row)) == (before, [])


@EACH
def test_who_may_not_see_the_row_may_not_either(client: Client, case: Case) -> None:
    if case.needs == "change_queue":
        pytest.skip("who may change queues may see them")
    row = case.make()
    log_in(client, *ALL_PERMISSIONS - {"change_queue"})
    before = state()

    sent = {**dict(case.sent), "confirmed": "1"}
    assert client.post(page_url(row, case.verb), sent).status_code == 403
    listed = {"action": case.verb, ACTION_BOX: [row.pk], **sent}
    assert client.post(list_url(type(row)), listed).status_code == 403
    assert (state(), history(row)) == (before, [])


# What is asked before


@EACH
def test_what_warns_is_done_only_after_a_confirmation(client: Client, case: Case) -> None:
    row = case.make()
    log_in(client, view_of(row), case.needs)
    before, url = state(), page_url(row, case.verb)

    pages = [client.get(url, {"confirmed": "1"})]
    if case.warns:
        pages += [client.post(url), client.post(url, {"confirmed": "", **dict(case.sent)})]
        if case.verb not in ON_PAGE_ONLY:
            pages.append(act(client, case.verb, row))

    for response in pages:
        page = response.content.decode()
        assert response.status_code == 200
        assert 'name="confirmed" value="1"' in page
        assert case.warns in page
    assert (state(), history(row)) == (before, [])


def test_a_confirmation_names_the_rows_that_it_warns_of(client: Client) -> None:
    log_in(client, "view_job", "cancel_job", "run_job")
    held, waiting = hipq.enqueue("echo", after=[hipq.enqueue("ask")]), put_off()

    cancelled = act(client, "cancel", held, waiting).content.decode()
    run = act(client, "run_now", held, waiting).content.decode()

    assert "Cancel: 2 jobs?" in cancelled
    assert cancelled.count("<p>The job becomes final.") == 1
    assert all(page_url(job) in cancelled for job in (held, waiting))
    assert page_url(held) in run
    assert page_url(waiting) not in run


# What is left as it is


LEFT: dict[str, tuple[str, Callable[[], Any], str]] = {
    "job": ("run_now", lambda: job_in("retry"), "it is due already, and has no time windows."),
    "schedule": ("pause", lambda: a_schedule(paused=True), "it is paused already."),
    "queue": ("resume", QueueFactory.create, "it is not paused."),
    "node": ("run", lambda: in_status("failed"), "there is nothing to do."),
}


@pytest.mark.parametrize("kind", LEFT)
@EACH_PLACE
def test_what_would_change_nothing_is_left_with_the_reason(
    admin_client: Client, kind: str, place: Place
) -> None:
    verb, make, reason = LEFT[kind]
    row = make()
    before = state()

    response = place.do(admin_client, verb, row, confirmed="1")

    assert not has_button(admin_client, row, verb)
    assert messages_of(response)[0].endswith(f" was left as it is: {reason}")
    assert (state(), history(row)) == (before, [])


def test_of_several_the_refused_are_named_and_the_others_go_on(admin_client: Client) -> None:
    done, running, waiting = job_in("final"), job_in("running"), put_off()

    response = act(admin_client, "run_now", done, running, waiting)

    assert messages_of(response) == [
        "Set to run now, its time windows dropped: 1 job.",
        f"run_now: job {done.pk} is final (succeeded); use requeue to run it once more.",
        f"run_now: job {running.pk} is running; this is for waiting jobs, in initial or retry.",
    ]
    assert (history(done), history(running)) == ([], [])
    assert (
        f"run_now: {running} is running" in messages_of(press(admin_client, "run_now", running))[0]
    )


def test_many_refusals_are_shortened(admin_client: Client) -> None:
    said = messages_of(act(admin_client, "cancel", *(job_in("final") for _ in range(15))))

    assert len(said) == 11
    assert said[-1] == "5 more jobs were refused."


# Very many


ALL = {"select_across": "1"}
IN_TURN: dict[str, Callable[[], Job]] = {
    "run_now": put_off,
    "cancel": lambda: job_in("retry"),
    "requeue": lambda: job_in("final"),
}


def all_of(client: Client, action: str, **filters: str) -> Any:
    """Choose an action for all jobs of the list, as "Select all" does, and confirm it."""
    url = f"{list_url(Job)}?{urlencode(filters)}"
    boxes = [job.pk for job in Job.objects.order_by("-pk")[:2]]
    asked = client.post(url, {"action": action, ACTION_BOX: boxes, **ALL}, follow=True)
    if asked.redirect_chain:
        return asked
    ids = re.findall(f'name="{ACTION_BOX}" value="([0-9]+)"', asked.content.decode())
    return client.post(
        url, {"action": action, ACTION_BOX: ids, "confirmed": "1", **ALL}, follow=True
    )


@pytest.mark.conformance
@pytest.mark.parametrize("action", IN_TURN)
def test_of_very_many_jobs_the_first_are_taken_in_turn(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr(row_actions, "MAX_ROWS", 2)
    jobs = [IN_TURN[action]() for _ in range(5)]
    others = [job_in("running"), job_in("running")] if action != "cancel" else []
    rest = "{} more job{} of this list are left: select all again, and do the same."

    said = [messages_of(all_of(admin_client, action))[1:] for _ in range(4)]

    assert said[:3] == [[rest.format(3, "s")], [rest.format(1, "")], []]
    assert [len(history(job)) for job in jobs] == [1] * 5
    assert [history(job) for job in others] == [[]] * len(others)
    nothing = "Nothing was done: this list has no jobs to which it can be done."
    assert messages_of(all_of(admin_client, action)) == [nothing]


def test_what_cannot_be_taken_in_turn_is_refused_as_a_whole(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_actions, "MAX_ROWS", 2)

    schedules, nodes = [a_schedule() for _ in range(3)], [a_node() for _ in range(3)]

    said = messages_of(act(admin_client, "pause", *nodes))
    assert said == ["Nothing was done: select at most 2 nodes at a time."]
    response = act(admin_client, "run_now", *schedules, **ALL)
    assert messages_of(response) == ["Nothing was done: select at most 2 schedules at a time."]
    assert not Job.objects.exists()


# Nothing is done without a line in the history


@EACH
def test_what_cannot_be_written_down_is_not_done(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    row = case.make()
    monkeypatch.setattr(RowActions, "log_change", lambda *_: 1 / 0)
    before = state()

    with pytest.raises(ZeroDivisionError):
        confirm(admin_client, case.verb, row, **dict(case.sent), confirmed="1")

    assert state() == before


@pytest.mark.conformance
@pytest.mark.django_db(transaction=True)
def test_the_history_says_who_cancelled_a_batch_also_where_that_was_interrupted(
    client: Client, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PAGE_SIZE", 1)
    log_in(client, "view_batch", "cancel_batch")
    batch = a_batch()
    _first, last = batch.jobs.order_by("pk")
    refuse(f"OLD.id = {last.pk}")
    client.raise_request_exception = False

    press(client, "cancel", batch)

    assert [*Job.objects.live()] == [last]
    assert history(batch) == ["Began to cancel."]


@pytest.mark.conformance
@pytest.mark.django_db(transaction=True)
@EACH_PLACE
def test_a_row_that_the_database_refuses_stops_no_other(
    client: Client, refuse: Refuse, place: Place
) -> None:
    log_in(client, "view_job", "requeue_job")
    failed = hipq.enqueue_many([hipq.NewJob("boom")] * 3)
    run_due_jobs()
    first, *others = failed
    refuse(f"NEW.origin_id = {first.pk}", when="INSERT")

    response = press(client, "requeue", first) if place.is_page else act(client, "requeue", *failed)

    assert "The database refused it: " in messages_of(response)[-1]
    made = Job.objects.filter(origin__in=failed).values_list("origin", flat=True)
    assert [*made] == ([] if place.is_page else [job.pk for job in others])
    assert history(first) == []
