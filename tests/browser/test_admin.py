"""An operator in a real browser: finds the stuck job, reads why, presses the button."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Browser, Page, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.models import Answer, Job, Queue
from hipq_django.testing import run_due_jobs
from tests.admin_pages import history, list_url, page_url
from tests.conftest import CHROMIUM
from tests.factories import AnswerFactory, JobFactory, WorkerFactory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

# Set to a folder to look at the pages that the tests walk through.
SCREENSHOTS = os.environ.get("HIPQ_TEST_SCREENSHOTS")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests: its start takes longer than what they do in it."""
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as environment:
        # Playwright keeps an event loop in this thread, which Django takes for an async caller.
        environment.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        connections.close_all()  # beside that loop the thread had connections of its own


@pytest.fixture
def page(browser: Browser, live_server: LiveServer) -> Iterator[Page]:
    """A page in which an operator has logged in, without the cookies of earlier ones."""
    User.objects.create_superuser("operator", password="3 a.m.")
    page = browser.new_page(base_url=live_server.url, viewport={"width": 1400, "height": 900})
    page.set_default_timeout(20_000)
    log_in(page)
    yield page
    page.close()


def log_in(page: Page) -> None:
    page.goto(list_url(Queue))
    page.get_by_label("Username").fill("operator")
    page.get_by_label("Password").fill("3 a.m.")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Queues", level=1)).to_be_visible()


def look(page: Page, name: str) -> None:
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")


def panel(page: Page) -> str:
    return page.get_by_label("Where the job stands").inner_text()


def message(page: Page) -> str:
    return page.locator(".messagelist").inner_text()


@pytest.fixture
def stuck() -> Job:
    """A job that has been due for three hours and is held by its windows."""
    WorkerFactory.create()
    return hipq.enqueue(
        "echo",
        {"order": 42, "note": "<script>document.title = 'hacked'</script>"},
        job_key="order-42",
        scheduled_run_time=clock.now("default") - timedelta(hours=3),
    )


def close_window(job: Job) -> None:
    """Give the job a window that is closed now, and leave its time as it is."""
    opens = clock.now("default") + timedelta(hours=12)
    window = f"{opens:%H:%M}-{opens + timedelta(minutes=1):%H:%M}"
    Job.objects.filter(pk=job.pk).update(time_windows=[window])


def test_from_the_queue_to_the_stuck_job_to_run_now(page: Page, stuck: Job) -> None:
    close_window(stuck)
    page.goto(list_url(Queue))
    expect(page.get_by_text("3 h", exact=False).first).to_be_visible()
    look(page, "1-queues")

    page.get_by_role("row", name="default").get_by_role("link", name="1").first.click()
    expect(page.get_by_text("due for 3 h")).to_be_visible()
    look(page, "2-due-jobs")
    page.get_by_role("link", name=str(stuck.pk), exact=True).click()

    assert "Its time windows" in panel(page)
    assert "are closed until" in panel(page)
    assert "“Run now” drops the windows." in panel(page)
    assert "hacked" not in page.title()
    look(page, "3-why")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("Nothing holds it")).to_be_visible()
    assert "Set to run now, its time windows dropped: job" in message(page)
    look(page, "4-run-now")
    assert run_due_jobs() == 1


def test_cancel_asks_once_more_and_requeue_leads_to_the_fresh_job(page: Page, stuck: Job) -> None:
    page.goto(page_url(stuck))
    cancel = page.get_by_role("button", name="Cancel this job")
    expect(cancel).to_be_hidden()

    page.locator("summary", has_text="Cancel").click()
    expect(cancel).to_be_visible()
    look(page, "5-sure")
    cancel.click()
    expect(page.get_by_text("final: cancelled")).to_be_visible()
    assert f"Cancelled: job {stuck.pk} (order-42)." in message(page)
    look(page, "6-cancelled")

    page.get_by_role("button", name="Requeue").click()
    expect(page.get_by_text("Nothing holds it")).to_be_visible()
    fresh = Job.objects.live().get()
    assert f"Requeued: job {fresh.pk} (order-42)." in message(page)
    assert page.url.endswith(page_url(fresh))
    look(page, "7-requeued")
    assert history(stuck) == ["Cancelled.", f"Requeued as job {fresh.pk}."]


def test_enter_in_a_field_saves_the_form_and_presses_no_button(page: Page, stuck: Job) -> None:
    close_window(stuck)
    page.goto(page_url(stuck))

    page.get_by_label("Priority").fill("7")
    page.get_by_label("Priority").press("Enter")
    expect(page.locator(".messagelist")).to_contain_text("was changed successfully")

    stuck.refresh_from_db()
    assert (stuck.priority, len(stuck.time_windows)) == (7, 1)
    assert history(stuck) == ["Changed priority from 100 to 7."]


def test_a_time_in_the_future_is_set_with_the_browsers_own_fields(page: Page, stuck: Job) -> None:
    page.goto(page_url(stuck))

    page.locator("#id_scheduled_run_time_0").fill("2035-05-01")
    page.locator("#id_scheduled_run_time_1").fill("12:30")
    page.get_by_role("button", name="Save and continue editing").click()

    expect(page.get_by_text("It is scheduled for 2035-05-01 12:30:00 UTC")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_badges_and_blocks_can_be_read_in_both_themes(page: Page, stuck: Job, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(page_url(stuck))
    look(page, f"8-{scheme}")

    for selector in (".hipq-badge", "pre.hipq-block", ".hipq-panel"):
        assert contrast(page, selector) >= 4.5, selector


def contrast(page: Page, selector: str) -> float:
    """The contrast of text and background, as WCAG 2 computes it."""
    text, background = page.locator(selector).first.evaluate(
        "e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]"
    )
    return contrast_of(text, background)


def contrast_of(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    parts = [int(part) / 255 for part in color.removeprefix("rgb(").rstrip(")").split(",")]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_page_says_how_far_the_other_system_is(page: Page) -> None:
    job = hipq.enqueue("ask", {"order": 42}, job_key="order-42", timeout=3600)
    run_due_jobs()
    hipq.progress("ask", "order-42", 40, "page 4 of 10 <b>soon</b>")
    hipq.extend("ask", "order-42", 600)

    page.goto(list_url(Job))
    expect(page.get_by_text("40 % done, times out in")).to_be_visible()
    page.goto(page_url(job))
    look(page, "13-progress")

    assert "The other system says: 40 %: page 4 of 10 <b>soon</b>" in panel(page)
    expect(page.get_by_text("3600 s for each attempt, 600 s more for this one")).to_be_visible()


# The inbox


@pytest.fixture
def inbox() -> tuple[Answer, Job]:
    """An answer under the wrong key among those of two weeks, and the job that waits for it."""
    job = hipq.enqueue("ask", {"order": 42}, job_key="order-42")
    run_due_jobs()
    final = JobFactory.create(state="final")
    statuses = ["accepted", "early", "duplicate", "late", "unmatched"]
    for day in range(14):
        then = clock.now("default") - timedelta(days=day)
        for index, status in enumerate(statuses):
            has_job = {} if status in Answer.JOBLESS else {"job": final, "kind": "error"}
            for _ in range((day * 3 + index * 5) % 7 + 4 * (index == 0)):
                AnswerFactory.create(status=status, receive_time=then, **has_job)
    answer = AnswerFactory.create(
        job_key="0rder-42", status="unmatched", payload={"paid": True, "note": "<b>bold</b>"}
    )
    return answer, job


def test_an_unmatched_answer_is_matched_to_its_job(page: Page, inbox: tuple[Answer, Job]) -> None:
    answer, job = inbox
    page.goto(list_url(Answer))
    page.get_by_role("link", name="unmatched: no such job in time").click()
    page.get_by_role("link", name=str(answer.pk), exact=True).click()
    expect(page.get_by_text("No job has this answer.")).to_be_visible()
    look(page, "9-unmatched")
    page.get_by_role("link", name="Match it to a job").click()

    page.get_by_label("Job id").fill("4711")
    page.get_by_role("button", name="Look at it").click()
    expect(page.get_by_text("There is no job 4711.")).to_be_visible()
    page.get_by_label("Job id").fill(str(job.pk))
    page.get_by_label("Job id").press("Enter")
    expect(page.get_by_text("running: waits for answer")).to_be_visible()
    look(page, "10-both")
    page.get_by_role("button", name=f"Match answer {answer.pk} to job {job.pk}").click()

    expect(page.locator(".messagelist")).to_contain_text("it was matched to job")
    look(page, "11-matched")
    job.refresh_from_db()
    assert job.result == {"paid": True, "note": "<b>bold</b>"}
    assert history(answer) == [f"Matched to job {job.pk}."]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_chart_can_be_read_in_both_themes(
    page: Page, inbox: tuple[Answer, Job], scheme: str
) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(list_url(Answer))
    look(page, f"12-inbox-{scheme}")

    chart = page.get_by_role("img", name="Answers of each of the last 14 days by status")
    expect(chart).to_be_visible()
    background = page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    fills = chart.locator("rect").evaluate_all("es => es.map(e => getComputedStyle(e).fill)")
    assert len(set(fills)) == 5
    for fill in set(fills):
        assert contrast_of(fill, background) >= 3, (fill, background)
    page.get_by_text("As a table").click()
    expect(page.get_by_role("columnheader", name="unmatched")).to_be_visible()
