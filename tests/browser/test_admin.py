"""An operator in a real browser: finds the stuck job, reads why, presses the button."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.models import Answer, Batch, Job, JobType, Queue, Schedule, Worker
from tests.admin_pages import history, list_url, page_url
from tests.browsing import THEMES, contrast_of, hidden, hidden_now, look
from tests.factories import (
    AnswerFactory,
    AttemptFactory,
    JobFactory,
    JobTypeFactory,
    QueueFactory,
    WorkerFactory,
)
from tests.running import run_due_jobs

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


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


def test_badges_and_blocks_can_be_read_in_both_themes(page: Page, stuck: Job) -> None:
    page.goto(page_url(stuck))

    for scheme in THEMES:
        page.emulate_media(color_scheme=scheme)
        look(page, f"8-{scheme}")
        for selector in (".hipq-badge", "pre.hipq-block", ".hipq-panel"):
            assert contrast(page, selector) >= 4.5, (selector, scheme)


def contrast(page: Page, selector: str) -> float:
    """The contrast of text and background, as WCAG 2 computes it."""
    text, background = page.locator(selector).first.evaluate(
        "e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]"
    )
    return contrast_of(text, background)


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
    page.get_by_role("button", name="Match", exact=True).click()
    expect(page.get_by_text("There is no job 4711.")).to_be_visible()
    page.get_by_label("Job id").fill(str(job.pk))
    page.get_by_label("Job id").press("Enter")
    expect(page.get_by_text("running: waits for answer")).to_be_visible()
    look(page, "10-both")
    page.get_by_role("button", name="Match", exact=True).click()

    expect(page.locator(".messagelist")).to_contain_text("Matched to job")
    look(page, "11-matched")
    job.refresh_from_db()
    assert job.result == {"paid": True, "note": "<b>bold</b>"}
    assert history(answer) == [f"Matched to job {job.pk}."]


# Widths and colours


LONG_TYPE = "shop.integrations.accounting.jobs.send_invoices_"
LONG_QUEUE = "accounting_and_tax_offices_west"


def long_names() -> Job:
    """A job that failed, whose type and queue have names as long as modules make them."""
    queue = QueueFactory.create(name=LONG_QUEUE)
    job_type = JobTypeFactory.create(name=LONG_TYPE[:47], queue=queue)
    WorkerFactory.create(name="worker-7f9c6d5b8d-x2x4k.production.example.com", queues=[LONG_QUEUE])
    AnswerFactory.create(job_type=job_type.name, job_key=f"{LONG_TYPE}key", status="unmatched")
    made: Job = JobFactory.create(
        job_type=job_type, queue=queue, job_key="an-order-with-a-long-key-0000017",
        state="retry", error=f"ConnectionError: https://tax.example.com/{'v2-' * 30}",
    )  # fmt: skip
    return made


@pytest.fixture
def everything(stuck: Job) -> dict[str, str]:
    """Rows of all kinds, also with long names; the addresses of their pages."""
    close_window(stuck)
    for number in range(3):
        hipq.enqueue("ask", job_key=f"a-rather-long-key-of-an-order-{number}")
    failed = hipq.enqueue("boom", {"order": 42})
    with hipq.batch("import 7", then=hipq.NewJob("echo")) as batch:
        batch.enqueue_many([hipq.NewJob("echo"), hipq.NewJob("boom"), hipq.NewJob("ask")])
    run_due_jobs()
    spec = hipq.Cron("0 2 * * *", zone="Europe/Paris")
    schedule = hipq.schedule("close the day", hipq.NewJob("echo", {"shop": "berlin"}), spec)
    send = hipq.NewJob(f"{LONG_TYPE}of_all_shops")
    hipq.schedule(f"{LONG_TYPE * 2}daily", send, hipq.Every(hours=36))
    hipq.run_schedule("close the day")
    old = hipq.enqueue("ask", job_key="of-a-queue-with-a-long-history")
    Job.objects.filter(pk=old.pk).update(id=123_456_789)
    long = long_names()
    answer = AnswerFactory.create(status=Answer.Status.UNMATCHED, job=None)
    return {
        "queues": list_url(Queue),
        "queue": page_url(long.queue),
        "jobs": list_url(Job),
        "job": page_url(stuck),
        "job-failed": page_url(failed),
        "job-long": page_url(long),
        "types": list_url(JobType),
        "type": page_url(long.job_type),
        "workers": list_url(Worker),
        "worker": page_url(Worker.objects.get(queues=[LONG_QUEUE])),
        "answers": list_url(Answer),
        "answer": page_url(answer),
        "answer-long": page_url(Answer.objects.get(job_type=LONG_TYPE[:47])),
        "schedules": list_url(Schedule),
        "schedule": page_url(schedule),
        "schedule-long": page_url(Schedule.objects.get(name__endswith="daily")),
        "batches": list_url(Batch),
        "batch": page_url(batch),
    }


@pytest.mark.parametrize("half", [0, 1])
def test_pages_are_whole_on_a_screen_and_on_a_phone(
    page: Page, everything: dict[str, str], half: int
) -> None:
    assert hidden(page, dict([*everything.items()][half::2])) == {}


TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/payments/jobs.py", line 41, in charge_card
    answer = client.post(f"{settings.BANK_URL}/charges/", json={"order": job.job_data["order"]})
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/payments/bank.py", line 112, in post
    raise ConnectionError(f"{url}: {error}") from error
ConnectionError: https://bank.example.com/charges/: [Errno 111] Connection refused
"""


def test_a_traceback_can_be_read_at_420_pixels(page: Page) -> None:
    error = TRACEBACK.splitlines()[-1]
    job_type = JobTypeFactory.create(name="charge_card")
    job = JobFactory.create(job_type=job_type, job_key="order-42", state="retry", error=error)
    AttemptFactory.create(job=job, attempt=1, error=error, traceback=TRACEBACK)
    page.set_viewport_size({"width": 420, "height": 900})
    page.goto(page_url(job))

    shown = page.locator("pre.hipq-block", has_text="Traceback (most recent call last)")
    page.get_by_role("heading", name="Attempts").scroll_into_view_if_needed()
    shown.scroll_into_view_if_needed()

    assert shown.inner_text().strip() == TRACEBACK.strip()
    size = shown.evaluate("e => [e.scrollWidth - e.clientWidth, e.getBoundingClientRect().right]")
    assert size[0] <= 0  # its lines are wrapped
    assert size[1] <= 420
    for scheme in THEMES:
        page.emulate_media(color_scheme=scheme)
        look(page, f"traceback-420-{scheme}")
        assert contrast(page, "pre.hipq-block") >= 4.5, scheme


def test_a_schedule_is_made_and_changed(page: Page) -> None:
    page.goto(list_url(Schedule))
    page.get_by_role("link", name="Add schedule").first.click()
    page.get_by_label("Name:").fill("nightly")
    page.get_by_label("Job type:").select_option("echo")
    page.get_by_label("Cron:").fill("61 2 * * *")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".errornote")).to_be_visible()
    assert hidden_now(page, "schedule-add") == {}
    page.get_by_label("Cron:").fill("30 2 * * *")
    page.get_by_role("button", name="Show the next due times").click()
    expect(page.get_by_text("At 02:30 every day")).to_be_visible()
    expect(page.get_by_text("Nothing is saved yet.")).to_be_in_viewport()
    assert hidden_now(page, "schedule-preview") == {}
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".messagelist")).to_contain_text("nightly")

    page.goto(page_url(Schedule.objects.get()))
    assert hidden_now(page, "schedule-edit") == {}


def test_a_schedule_is_paused_and_deleted(page: Page) -> None:
    row = hipq.schedule("nightly", hipq.NewJob("echo"), "30 2 * * *")
    page.goto(page_url(row))
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".messagelist")).to_contain_text("Paused: schedule nightly.")
    page.get_by_role("button", name="Run now").click()
    expect(page.locator(".messagelist")).to_contain_text("Run by hand as job")

    page.locator("summary", has_text="Delete").click()
    yes = page.get_by_role("button", name="Delete this schedule")
    expect(yes).to_be_visible()
    assert hidden_now(page, "schedule-delete") == {}
    yes.click()
    expect(page.locator(".messagelist")).to_contain_text("Deleted: schedule nightly.")
    assert not Schedule.objects.exists()
    assert Job.objects.count() == 1


def test_a_batch_is_cancelled_on_its_page(page: Page) -> None:
    with hipq.batch("import 7") as batch:
        batch.enqueue_many([hipq.NewJob("echo"), hipq.NewJob("echo")])
    page.goto(page_url(batch))
    cancel = page.get_by_role("button", name="Cancel the jobs of this batch")
    expect(cancel).to_be_hidden()
    page.locator("summary", has_text="Cancel").click()
    cancel.click()

    expect(page.locator(".messagelist")).to_contain_text("Cancelled 2 jobs: batch")
    page.get_by_role("link", name="All 2 jobs of this batch").click()
    expect(page.get_by_text("final: cancelled")).to_have_count(2)


def test_on_a_phone_each_value_has_the_name_of_its_column_before_it(page: Page) -> None:
    job = hipq.enqueue("boom")
    run_due_jobs()
    page.set_viewport_size({"width": 420, "height": 900})
    page.goto(page_url(job))
    cell = page.locator(".hipq-rows td[data-label]").first

    assert cell.evaluate("e => getComputedStyle(e, '::before').content") == '"Attempt: "'
    assert cell.inner_text() == "1"
