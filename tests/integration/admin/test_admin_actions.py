"""Run now, cancel and requeue in the admin: from the list and from a job's page."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

import hipq_django as hipq
from hipq_django.admin import job_actions, selection
from hipq_django.database import clock
from hipq_django.models import Job
from tests.admin_pages import (
    ACTION_BOX,
    act,
    button_values,
    confirm,
    history,
    html,
    list_url,
    log_in,
    messages_of,
    page_url,
    press,
    warned_of,
)
from tests.declaring import Declare
from tests.factories import JobFactory, JobTypeFactory
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

ACTIONS = {"run_now": "run_job", "cancel": "cancel_job", "requeue": "requeue_job"}
BOX = 'type="checkbox" name="{}"'
LABELS = {"run_now": "Run now</button>", "cancel": "Cancel …", "requeue": "Requeue</button>"}


def job_in(state: str, **values: Any) -> Job:
    job: Job = JobFactory.create(state=state, **values)
    return job


def suited_to(action: str) -> Job:
    """A job to which the action may be done."""
    if action == "run_now":
        return job_in("retry", scheduled_run_time=clock.now("default") + timedelta(days=9))
    return job_in("final" if action == "requeue" else "retry")


def a_week_ahead() -> datetime:
    return clock.now("default") + timedelta(days=7)


def in_the_future() -> Job:
    return hipq.enqueue(
        "echo",
        job_key="order-42",
        scheduled_run_time=clock.now("default") + timedelta(days=9),
        time_windows=["22:00-22:01"],
    )


# What they do


@pytest.mark.conformance
@pytest.mark.parametrize("from_page", [True, False])
def test_run_now_lets_a_job_run_now(admin_client: Client, from_page: bool) -> None:
    job = in_the_future()

    response = (
        press(admin_client, "run_now", job) if from_page else act(admin_client, "run_now", job)
    )

    assert messages_of(response)[0].startswith("Set to run now, its time windows dropped: ")
    assert history(job) == ["Set to run now, its time windows dropped."]
    assert run_due_jobs() == 1


@pytest.mark.conformance
def test_cancel_ends_a_live_job(admin_client: Client) -> None:
    for state in ("initial", "running", "error", "retry"):
        one, other = job_in(state), job_in(state)

        responses = [
            press(admin_client, "cancel", one),
            act(admin_client, "cancel", other, confirmed="1"),
        ]

        for job, response in zip((one, other), responses, strict=True):
            job.refresh_from_db()
            assert (job.state, job.outcome) == ("final", "cancelled"), state
            assert messages_of(response)[0].startswith("Cancelled: ")
            assert history(job) == ["Cancelled."]


@pytest.mark.conformance
@pytest.mark.parametrize("from_page", [True, False])
def test_requeue_makes_a_fresh_job_from_a_final_one(admin_client: Client, from_page: bool) -> None:
    job = job_in("final", outcome="failed", error="boom", job_data={"order": 42}, job_key="k")

    press(admin_client, "requeue", job) if from_page else act(admin_client, "requeue", job)

    fresh = Job.objects.exclude(pk=job.pk).get()
    assert (fresh.state, fresh.job_data, fresh.job_key, fresh.origin) == (
        "initial", {"order": 42}, "k", job,
    )  # fmt: skip
    assert history(job) == [f"Requeued as job {fresh.pk}."]
    assert history(fresh) == [f"Requeued from job {job.pk}."]


def test_the_button_requeue_leads_to_the_fresh_job(admin_client: Client) -> None:
    job = job_in("final")

    response = press(admin_client, "requeue", job)

    fresh = Job.objects.exclude(pk=job.pk).get()
    assert response.redirect_chain == [(page_url(fresh), 302)]
    assert messages_of(response) == [f"Requeued: job {fresh.pk}."]


def test_the_history_names_the_operator(client: Client) -> None:
    operator = log_in(client, "view_job", "cancel_job")
    job = job_in("running")

    press(client, "cancel", job)

    entry = LogEntry.objects.get(object_id=str(job.pk))
    assert (entry.user, entry.object_repr) == (operator, str(job))
    assert "Cancelled." in html(client, page_url(job, "history"))


def test_to_cancel_jobs_has_to_be_confirmed_in_the_list(client: Client) -> None:
    log_in(client, "view_job", "cancel_job")
    jobs = [job_in("running"), job_in("retry")]

    asked = act(client, "cancel", *jobs).content.decode()

    assert "Cancel: 2 jobs?" in asked
    assert asked.count("<p>The job becomes final.") == 1
    assert all(page_url(job) in asked for job in jobs)
    assert Job.objects.live().count() == 2
    said = messages_of(act(client, "cancel", *jobs, confirmed="1"))
    assert said == ["Cancelled: 2 jobs."]
    assert not Job.objects.live().exists()


def test_what_has_ended_already_is_refused_without_a_question(admin_client: Client) -> None:
    job = job_in("final")

    assert "is final (succeeded)" in messages_of(act(admin_client, "cancel", job))[0]


@pytest.mark.parametrize("from_page", [True, False])
def test_to_requeue_once_more_has_to_be_confirmed(client: Client, from_page: bool) -> None:
    log_in(client, "view_job", "requeue_job")
    job = job_in("final", outcome="failed", error="boom")
    fresh = hipq.requeue(job)
    url = page_url(job, "requeue")

    asked = client.post(url) if from_page else act(client, "requeue", job)

    assert f"the last time as job {fresh.pk}." in asked.content.decode()
    assert Job.objects.filter(origin=job).count() == 1
    if from_page:
        press(client, "requeue", job)
    else:
        act(client, "requeue", job, confirmed="1")
    assert Job.objects.filter(origin=job).count() == 2


@pytest.mark.parametrize("from_page", [True, False])
def test_to_requeue_a_job_without_what_it_follows_has_to_be_confirmed(
    client: Client, broken_chain: list[Job], from_page: bool
) -> None:
    log_in(client, "view_job", "requeue_job")
    failed, job, _ = broken_chain
    url = page_url(job, "requeue")

    asked = client.post(url) if from_page else act(client, "requeue", job)

    text = "It would run without their results, unless they are requeued before it."
    assert text in asked.content.decode()
    assert not Job.objects.filter(origin=job).exists()
    if from_page:
        press(client, "requeue", job)
    else:
        act(client, "requeue", job, confirmed="1")
    assert Job.objects.get(origin=job).hold_time is None
    assert "without their results" not in client.post(page_url(failed, "requeue")).content.decode()


def test_what_follows_a_job_that_was_requeued_is_requeued_without_a_question(
    client: Client, broken_chain: list[Job]
) -> None:
    log_in(client, "view_job", "requeue_job")
    *before, last = broken_chain
    for job in before:
        hipq.requeue(job)

    act(client, "requeue", last)

    assert Job.objects.get(origin=last).hold_time is not None


def test_a_chain_that_is_selected_in_the_list_is_a_chain_again(
    client: Client, broken_chain: list[Job]
) -> None:
    log_in(client, "view_job", "requeue_job")

    act(client, "requeue", *broken_chain, confirmed="1")

    fresh = list(Job.objects.live().order_by("pk"))
    assert [job.origin_id for job in fresh] == [job.pk for job in broken_chain]
    assert [job.hold_time is None for job in fresh] == [True, False, False]
    assert list(fresh[2].needs.values_list("needs_job", flat=True)) == [fresh[1].pk]


def test_a_job_that_waits_again_for_what_it_follows_is_requeued_without_a_question(
    client: Client,
) -> None:
    log_in(client, "view_job", "requeue_job")
    job = hipq.enqueue("echo", after=[hipq.enqueue("echo", delay=60)])
    hipq.cancel(job)

    client.post(page_url(job, "requeue"))

    assert Job.objects.get(origin=job).hold_time is not None


def test_the_list_says_what_a_job_was_requeued_as(admin_client: Client) -> None:
    job = job_in("final", outcome="failed", error="boom")
    again = [hipq.requeue(job) for _ in range(2)][-1]

    page = html(admin_client, list_url(Job), state="final")

    assert f'requeued as <a href="{page_url(again)}">job {again.pk}</a>, boom' in page


# Refusals


def test_of_several_jobs_the_refused_are_named_and_the_others_go_on(admin_client: Client) -> None:
    done, running, waiting = job_in("final"), job_in("running"), suited_to("run_now")

    response = act(admin_client, "run_now", done, running, waiting)

    assert messages_of(response) == [
        "Set to run now, its time windows dropped: 1 job.",
        f"job {done.pk}: run_now: job {done.pk} is final (succeeded); use requeue to run it once "
        "more.",
        f"job {running.pk}: run_now: job {running.pk} is running; this is for waiting jobs, in "
        "initial or retry.",
    ]
    assert (history(done), history(running)) == ([], [])
    assert history(waiting) == ["Set to run now, its time windows dropped."]


@pytest.mark.conformance
def test_a_requeue_is_refused_while_another_job_has_the_key(admin_client: Client) -> None:
    job = job_in("final", job_key="k")
    live = job_in("retry", job_key="k", job_type=job.job_type)

    for response in (press(admin_client, "requeue", job), act(admin_client, "requeue", job)):
        assert f"has a live job with key 'k': job {live.pk} is retry" in messages_of(response)[0]
    assert Job.objects.count() == 2
    assert history(job) == []


def test_many_refusals_are_shortened(admin_client: Client) -> None:
    jobs = [job_in("final") for _ in range(15)]

    said = messages_of(act(admin_client, "cancel", *jobs))

    assert len(said) == 11
    assert said[-1] == "5 more jobs were refused."


ALL = {"select_across": "1"}


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
@pytest.mark.parametrize("action", ACTIONS)
def test_of_very_many_jobs_the_first_are_taken_in_turn(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr(selection, "MAX_ROWS", 2)
    jobs = [suited_to(action) for _ in range(5)]
    rest = "{} more job{} of this list are left: select all again, and do the same."

    said = [messages_of(all_of(admin_client, action))[1:] for _ in range(4)]

    assert said[:3] == [[rest.format(3, "s")], [rest.format(1, "")], []]
    assert [len(history(job)) for job in jobs] == [1] * 5
    nothing = "Nothing was done: this list has no jobs to which it can be done."
    assert messages_of(all_of(admin_client, action)) == [nothing]


@pytest.mark.conformance
@pytest.mark.parametrize("field", ["job_key", "waiting_key"])
def test_jobs_whose_key_is_in_use_keep_no_others_from_being_requeued(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setattr(selection, "MAX_ROWS", 2)
    kind = JobTypeFactory.create()
    jobs = [job_in("final", job_type=kind, **{field: f"k{number}"}) for number in range(4)]
    for job in jobs[:2]:
        job_in("initial", job_type=kind, **{field: getattr(job, field)})

    said = messages_of(all_of(admin_client, "requeue", state="final"))

    assert said == ["Requeued: 2 jobs."]
    assert [job.successors.count() for job in jobs] == [0, 0, 1, 1]


@pytest.mark.conformance
def test_all_jobs_of_a_filtered_list_are_those_that_it_shows(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MAX_ROWS", 2)
    jobs, other = [job_in("running") for _ in range(3)], job_in("retry")

    for _ in range(2):
        all_of(admin_client, "cancel", state="running")

    assert [len(history(job)) for job in jobs] == [1] * 3
    assert history(other) == []


def test_what_cannot_be_taken_in_turn_is_refused_as_a_whole(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MAX_ROWS", 2)
    rows = [hipq.schedule(f"s{n}", hipq.NewJob("echo"), "0 * * * *") for n in range(3)]

    response = act(admin_client, "run_now", *rows, **ALL)

    assert messages_of(response) == ["Nothing was done: select at most 2 schedules at a time."]
    assert not Job.objects.exists()


@pytest.mark.parametrize("gone", [1, 2])
def test_selected_jobs_that_left_the_list_are_counted(admin_client: Client, gone: int) -> None:
    jobs = [job_in("retry", scheduled_run_time=a_week_ahead()) for _ in range(2)]
    for job in jobs[:gone]:
        hipq.cancel(job)

    url = f"{list_url(Job)}?state=retry"
    sent = {"action": "run_now", ACTION_BOX: [job.pk for job in jobs]}
    *done, said = messages_of(admin_client.post(url, sent, follow=True))

    assert len(done) == 2 - gone
    assert said == (
        "1 selected job was left as it is: it is not in this list any more."
        if gone == 1
        else "2 selected jobs were left as they are: they are not in this list any more."
    )


def test_a_button_of_a_page_that_is_out_of_date_says_what_happened(admin_client: Client) -> None:
    job = in_the_future()
    assert "Run now</button>" in html(admin_client, page_url(job))
    hipq.run_now(job)
    HandWorker().run_pass()

    response = press(admin_client, "run_now", job)

    assert f"run_now: {job} is running" in messages_of(response)[0]
    assert history(job) == []


def test_run_now_of_a_page_that_is_out_of_date_says_that_the_job_is_due(
    admin_client: Client,
) -> None:
    job = job_in("retry")

    response = press(admin_client, "run_now", job)

    assert messages_of(response) == [
        f"{job} was left as it is: it is due already, and has no time windows."
    ]
    assert history(job) == []


def test_a_button_of_a_pruned_job_leads_to_the_list(admin_client: Client) -> None:
    job = JobFactory.build(pk=4711)

    response = admin_client.post(page_url(job, "cancel"), follow=True)

    assert response.status_code == 200
    assert messages_of(response) == ["There is no job 4711."]


@pytest.mark.conformance
def test_what_cannot_be_logged_is_not_done(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in("retry")
    monkeypatch.setattr(job_actions.JobActions, "log_change", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        press(admin_client, "cancel", job)

    assert Job.objects.get(pk=job.pk).state == "retry"


# Who may, and when


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_has_a_permission_of_its_own(client: Client, action: str) -> None:
    log_in(client, "view_job", "change_job", *(set(ACTIONS.values()) - {ACTIONS[action]}))
    job = suited_to(action)

    assert LABELS[action] not in html(client, page_url(job))
    assert press(client, action, job).status_code == 403
    assert messages_of(act(client, action, job)) == ["No action selected."]
    assert (Job.objects.get(pk=job.pk).update_time, Job.objects.count()) == (job.update_time, 1)


@pytest.mark.parametrize("action", ACTIONS)
def test_its_permission_and_the_one_to_view_are_enough(client: Client, action: str) -> None:
    log_in(client, "view_job", ACTIONS[action])
    one, other = suited_to(action), suited_to(action)

    assert LABELS[action] in html(client, page_url(one))
    assert press(client, action, one).status_code == 200
    act(client, action, other, confirmed="1")
    assert len(history(one)) == len(history(other)) == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_without_the_permission_to_view_nothing_can_be_done(client: Client, action: str) -> None:
    log_in(client, ACTIONS[action])
    job = suited_to(action)

    assert press(client, action, job).status_code == 403
    assert history(job) == []


def test_a_get_changes_nothing(admin_client: Client) -> None:
    for action in ACTIONS:
        job = suited_to(action)

        asked = html(admin_client, page_url(job, action), confirmed="1")
        assert 'name="confirmed" value="1"' in asked, action
        assert history(job) == []


def test_a_post_from_another_site_changes_nothing(admin_user: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    for action in ACTIONS:
        job = suited_to(action)

        assert client.post(page_url(job, action)).status_code == 403, action
        assert history(job) == []


def test_a_page_offers_what_suits_the_state(admin_client: Client) -> None:
    expected = {
        "initial": {"cancel"},
        "running": {"cancel"},
        "error": {"cancel"},
        "retry": {"cancel"},
        "put off": {"run_now", "cancel"},
        "final": {"requeue"},
    }
    offered = {}
    for state in expected:
        job = suited_to("run_now") if state == "put off" else job_in(state)
        page = html(admin_client, page_url(job))
        offered[state] = {action for action in ACTIONS if f'id="hipq-{action}"' in page}

    assert offered == expected


# A job that waits for others


@pytest.fixture
def held() -> Job:
    first = hipq.enqueue("ask", job_key="first")
    return hipq.enqueue("echo", after=[first])


def is_held(job: Job) -> bool:
    return Job.objects.get(pk=job.pk).hold_time is not None


def test_to_run_a_held_job_now_has_to_be_confirmed_on_its_page(client: Client, held: Job) -> None:
    log_in(client, "view_job", "run_job")
    url = page_url(held, "run_now")

    assert "it does not follow them any more" in html(client, page_url(held))
    asked = client.post(url).content.decode()
    assert "it does not follow them any more" in asked
    assert is_held(held)
    assert history(held) == []

    response = client.post(url, {"confirmed": "1"}, follow=True)
    assert "its wait for other jobs dropped" in messages_of(response)[0]
    assert not is_held(held)
    assert history(held) == [
        "Set to run now, its time windows and its wait for other jobs dropped."
    ]


def test_to_run_held_jobs_now_has_to_be_confirmed_in_the_list(client: Client, held: Job) -> None:
    log_in(client, "view_job", "run_job")
    waiting = suited_to("run_now")

    asked = act(client, "run_now", held, waiting).content.decode()
    assert page_url(held) in asked
    assert page_url(waiting) not in asked  # it is not the one that is warned of
    assert is_held(held)
    assert history(waiting) == []

    act(client, "run_now", held, waiting, confirmed="1")
    assert not is_held(held)
    assert history(waiting) == ["Set to run now, its time windows dropped."]


def test_nobody_else_runs_a_held_job_now(client: Client, held: Job) -> None:
    log_in(client, "view_job", "change_job", "cancel_job", "requeue_job")

    assert client.post(page_url(held, "run_now"), {"confirmed": "1"}).status_code == 403
    act(client, "run_now", held, confirmed="1")
    assert is_held(held)


def test_a_held_job_is_listed_with_what_it_waits_for(admin_client: Client, held: Job) -> None:
    page = html(admin_client, list_url(Job))

    assert "waits for other jobs" in page
    assert "9000" not in page


# With what follows a job, and with what it has enqueued


@pytest.fixture
def broken_chain(declare: Declare) -> list[Job]:
    """A job that failed, and two that were cancelled because of it."""
    jobs = hipq.chain(*(hipq.NewJob(name) for name in ("boom", "echo", "echo")))
    run_due_jobs()
    return [Job.objects.get(pk=job.pk) for job in jobs]


@pytest.mark.conformance
@pytest.mark.parametrize("chosen", [True, False])
def test_a_job_is_requeued_with_what_it_took_down_where_that_is_chosen(
    client: Client, broken_chain: list[Job], chosen: bool
) -> None:
    log_in(client, "view_job", "requeue_job")
    failed, *cancelled = broken_chain
    url = page_url(failed, "requeue")

    assert BOX.format("dependents") in html(client, page_url(failed))
    assert BOX.format("dependents") in client.post(url).content.decode()
    assert history(failed) == []

    sent = {"confirmed": "1", **({"dependents": "1"} if chosen else {})}
    response = client.post(url, sent, follow=True)

    fresh = Job.objects.get(origin=failed)
    again = Job.objects.filter(origin__in=cancelled).order_by("pk")
    assert [job.hold_time is not None for job in again] == ([True, True] if chosen else [])
    said = "Requeued with its dependents" if chosen else "Requeued"
    assert messages_of(response) == [f"{said}: job {fresh.pk}."]
    assert history(failed) == [f"{said} as job {fresh.pk}."]
    assert history(fresh) == [f"{said} from job {failed.pk}."]


def test_several_are_requeued_with_what_they_took_down(
    client: Client, broken_chain: list[Job]
) -> None:
    log_in(client, "view_job", "requeue_job")
    failed, alone = broken_chain[0], job_in("final")

    asked = act(client, "requeue", failed, alone).content.decode()
    assert BOX.format("dependents") in asked
    assert page_url(failed) in asked
    assert page_url(alone) in asked
    assert not Job.objects.live().exists()

    said = messages_of(act(client, "requeue", failed, alone, confirmed="1", dependents="1"))
    assert said == ["Requeued with its dependents: 2 jobs."]
    assert Job.objects.live().count() == 4


@pytest.mark.parametrize("what", ["succeeded", "cancelled by hand"])
def test_a_job_that_has_nothing_to_requeue_with_it_is_requeued_at_once(
    client: Client, broken_chain: list[Job], what: str
) -> None:
    log_in(client, "view_job", "requeue_job")
    job = broken_chain[0]
    if what == "succeeded":
        job, _ = hipq.chain(hipq.NewJob("echo"), hipq.NewJob("echo"))
        run_due_jobs()
    else:
        job, follower = hipq.chain(hipq.NewJob("boom"), hipq.NewJob("echo"))
        hipq.cancel(follower)
        run_due_jobs()

    assert "dependents" not in html(client, page_url(job))
    client.post(page_url(job, "requeue"))
    assert len(history(job)) == 1


def test_what_was_requeued_with_its_dependents_offers_them_no_more(
    client: Client, broken_chain: list[Job]
) -> None:
    log_in(client, "view_job", "requeue_job")
    hipq.requeue(broken_chain[0], dependents=True)

    assert "dependents" not in html(client, page_url(broken_chain[0]))


@pytest.mark.parametrize("from_page", [True, False])
def test_what_a_page_did_not_warn_of_is_not_done(
    client: Client, broken_chain: list[Job], from_page: bool
) -> None:
    log_in(client, "view_job", "requeue_job")
    failed = broken_chain[0]
    choice: dict[str, Any] = {"action": "requeue", ACTION_BOX: [failed.pk]}
    if from_page:
        url, sent = page_url(failed, "requeue"), button_values(client, "requeue", failed)
    else:
        url = list_url(Job)
        sent = {**choice, "confirmed": "1", **warned_of(client.post(url, choice).content.decode())}
    assert sent["confirmed"] == "1"

    for number in (1, 2):
        fresh = hipq.requeue(failed)
        said = messages_of(client.post(url, sent, follow=True))

        assert f"the last time as job {fresh.pk}." in said[0]
        assert Job.objects.filter(origin=failed).count() == number
    assert history(failed) == []


@pytest.fixture
def family(declare: Declare) -> list[Job]:
    """A job that waits for its answer, one that it has enqueued, and one that this has."""

    def ask(job: Job) -> object:
        if job.job_data:
            hipq.enqueue("spread", job.job_data - 1)
        return hipq.WAIT

    declare("spread")(ask)
    hipq.enqueue("spread", 2)
    run_due_jobs()
    return list(Job.objects.order_by("pk"))


@pytest.mark.conformance
@pytest.mark.parametrize("chosen", [True, False])
def test_a_job_is_cancelled_with_what_it_has_enqueued_where_that_is_chosen(
    client: Client, family: list[Job], chosen: bool
) -> None:
    log_in(client, "view_job", "cancel_job")
    job = family[0]

    assert BOX.format("descendants") in html(client, page_url(job))
    assert BOX.format("descendants") in client.post(page_url(job, "cancel")).content.decode()
    sent = {"descendants": "1"} if chosen else {}
    response = confirm(client, "cancel", job, **sent)

    assert Job.objects.live().count() == (0 if chosen else 2)
    said = "Cancelled with its descendants" if chosen else "Cancelled"
    assert messages_of(response) == [f"{said}: job {job.pk}."]
    began = ["Began to cancel."] if chosen else []
    assert history(job) == [*began, f"{said}."]


def test_what_a_job_that_has_ended_has_enqueued_is_cancelled(
    client: Client, family: list[Job]
) -> None:
    log_in(client, "view_job", "cancel_job")
    job = family[0]
    hipq.complete(job, 1)

    page = html(client, page_url(job))
    assert re.search(f"<input {BOX.format('descendants')}[^>]* checked", page)
    assert "The job has ended, and stays as it is." in page
    said = messages_of(confirm(client, "cancel", job))
    assert said == [
        f"cancel: job {job.pk} is final (succeeded), so there is nothing to cancel; "
        "to cancel what it has enqueued, cancel it with its descendants."
    ]
    confirm(client, "cancel", job, descendants="1")

    assert not Job.objects.live().exists()
    assert Job.objects.get(pk=job.pk).outcome == "succeeded"
    assert history(job) == ["Began to cancel.", "Cancelled with its descendants."]
    assert page_url(job, "cancel") not in html(client, page_url(job))  # nothing is left to cancel


def test_several_are_cancelled_with_what_they_have_enqueued(
    client: Client, family: list[Job]
) -> None:
    log_in(client, "view_job", "cancel_job")
    chosen = [job_in("retry"), family[0]]

    assert BOX.format("descendants") in act(client, "cancel", *chosen).content.decode()
    act(client, "cancel", *chosen, confirmed="1", descendants="1")

    assert not Job.objects.live().exists()


def test_a_job_that_has_enqueued_nothing_is_cancelled_alone(client: Client) -> None:
    log_in(client, "view_job", "cancel_job")

    assert "descendants" not in html(client, page_url(job_in("running")))


@pytest.mark.parametrize(
    ("button", "choice"), [("requeue", "dependents"), ("cancel", "descendants")]
)
def test_no_choice_does_without_the_permission_of_its_button(
    client: Client, broken_chain: list[Job], family: list[Job], button: str, choice: str
) -> None:
    log_in(client, "view_job", "change_job", *(set(ACTIONS.values()) - {ACTIONS[button]}))
    job = broken_chain[0] if button == "requeue" else family[0]

    assert choice not in html(client, page_url(job))
    sent = {"confirmed": "1", choice: "1"}
    assert client.post(page_url(job, button), sent).status_code == 403
    act(client, button, job, **sent)
    assert history(job) == []
    assert Job.objects.live().count() == 3
