"""No value of a sensitive field is on a page, in a reply, in a signal or in the log.

The database has everything as it came and as it was raised; whoever reads it gets it masked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from html import unescape
from traceback import format_exception
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command
from django.db import DataError, IntegrityError
from django.test import Client
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.callback_urls import Token
from hipq_django.conf.instances import get_instance
from hipq_django.domain.throttling import candidate_of, running_job_of
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.maintenance import recovery
from hipq_django.models import Answer, Attempt, Batch, Job, JobType, Queue, Schedule, Worker
from hipq_django.scheduler.executor import execute
from hipq_django.signals import job_enqueued, job_failed, job_finished, job_started
from hipq_django.testing import assert_enqueued
from hipq_django.transitions.values import Failed, refused
from hipq_django.web import callback_view
from tests.admin_pages import html, list_url, page_url
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

CARD = "4111111111111111"
IBAN = "DE02120300000000202051"
ANSWERED = "5500000000000004"
DATA = {"card": CARD, "order": 42, "customer": {"iban": IBAN, "name": "Ada"}}
SECRETS = (CARD, IBAN, ANSWERED)

Charge = Callable[[Callable[[Job], Any]], JobTypeSpec]


@pytest.fixture
def charge(declare: Declare) -> Charge:
    return declare("charge", sensitive=["card", "customer.iban"])


def run(declared: JobTypeSpec) -> Job:
    job = declared.enqueue(DATA, job_key="k")
    run_due_jobs()
    job.refresh_from_db()
    return job


def shows_nothing(text: str) -> bool:
    return not [secret for secret in SECRETS if secret in text]


def every_page(client: Client) -> str:
    """Return all lists of the admin, and the page of each row."""
    models = (Job, Answer, Queue, JobType, Schedule, Batch, Worker)
    pages = [html(client, list_url(model)) for model in models]
    pages += [html(client, page_url(row)) for model in models for row in model.objects.all()]
    pages.append(html(client, list_url(Job), q="k"))
    return unescape("\n".join(pages))


class Said(logging.Handler):
    """Keeps what a formatter or an error tracker may make of our lines."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write down a line, its fields and its exception."""
        line = logging.Formatter().format(record)
        self.texts += [line, repr(vars(record))]
        if record.exc_info and record.exc_info[1] is not None:
            self.texts += format_exception(record.exc_info[1])


@pytest.fixture
def log() -> Iterator[Said]:
    said, logger = Said(), logging.getLogger("hipq_django")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(said)
    yield said
    logger.removeHandler(said)
    logger.setLevel(before)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What receivers of signals are told of errors."""
    texts: list[str] = []

    def hear(job: Job, exception: BaseException | None = None, **_: Any) -> None:
        texts.extend([str(job.error), *(format_exception(exception) if exception else [])])

    signals = (job_enqueued, job_started, job_failed, job_finished)
    for signal in signals:
        signal.connect(hear)
    yield texts
    for signal in signals:
        signal.disconnect(hear)


def told_of(job: Job) -> Iterator[str]:
    """Yield why a job does not run, and what is raised for its result."""
    yield from (reason.text for reason in hipq.explain(job))
    if job.is_final and job.outcome != "succeeded":
        with pytest.raises(hipq.JobFailedError) as failed:
            hipq.get_result(job)
        yield str(failed.value)


@pytest.fixture
def readers(
    admin_client: Client, capsys: pytest.CaptureFixture[str], log: Said, heard: list[str]
) -> Callable[[], str]:
    """Return all that people read: pages, commands, reasons, errors, signals and the log."""

    def read() -> str:
        texts = [every_page(admin_client), *heard, *log.texts]
        texts += [text for job in Job.objects.all() for text in told_of(job)]
        for command in (["hipq_status"], ["hipq_doctor"], ["hipq_schedules", "list"]):
            with suppress(SystemExit):
                call_command(*command)
        return "\n".join([*texts, capsys.readouterr().out])

    return read


# What code raises, and others send


def fails(job: Job) -> Any:
    data = job.job_data
    job.job_data = {}  # what a handler does to its copy hides nothing from us
    try:
        raise OSError(f"no route to {data['customer']['iban']}")
    except OSError as error:
        raise ValueError(f"{data} was refused") from error


def waits(job: Job) -> Any:
    return hipq.WAIT


class InUseError(hipq.Snooze):
    """Says which card."""

    def __init__(self, said: str) -> None:
        super().__init__(60)
        self.said = said

    def __str__(self) -> str:
        return self.said


class Life(NamedTuple):
    """What happens to jobs, by the function that makes it happen."""

    live: Callable[[Charge], Any]
    stored: str
    """What the database has of it."""


def raise_it(charge: Charge) -> None:
    run(charge(fails))


def raise_it_twice(charge: Charge) -> None:
    """The retry handler raises too."""
    declared = charge(fails)
    declared.on_error(fails)
    run(declared)


def raise_at_the_response(charge: Charge) -> None:
    declared = charge(waits)
    declared.on_response(lambda job, response: fails_at(response))
    declared.on_error(lambda job: None)
    answered(declared)


def fails_at(response: Any) -> None:
    raise ValueError(f"no such receipt: {response.pop('card')}")


def answered(declared: JobTypeSpec) -> None:
    run(declared)
    hipq.complete("charge", "k", {"card": ANSWERED, "note": f"paid by {ANSWERED}", "receipt": 4711})
    run_due_jobs()


def snooze_at_the_response(charge: Charge) -> None:
    declared = charge(waits)

    @declared.on_response
    def later(job: Job, response: Any) -> None:
        raise InUseError(f"{response.pop('card')} is in use")

    answered(declared)


def lose_the_decision(charge: Charge) -> None:
    """The retry handler kills each worker that asks it."""
    declared = charge(waits)
    declared.on_response(lambda job, response: fails_at(response))
    declared.on_error(lambda job: None)
    run(declared)
    hipq.complete("charge", "k", {"card": ANSWERED})
    HandWorker().work()
    for _ in range(3):
        HandWorker.crashed()
        recovery.recover_lost(get_instance())


def return_it(charge: Charge) -> None:
    answered(charge(waits))
    AnswerFactory.create(job_type="charge", status="unmatched", payload={"card": CARD, "n": "2nd"})


def send_an_error(charge: Charge) -> None:
    run(charge(waits))
    hipq.fail("charge", "k", {"card": ANSWERED, "why": f"{ANSWERED} and {CARD} expired"})


def report_progress(charge: Charge) -> None:
    run(charge(waits))
    hipq.progress("charge", "k", 40, f"asked for {CARD}")


def cancel_it(charge: Charge) -> None:
    declared = charge(waits)
    parent, child = declared.enqueue(DATA), declared.enqueue(DATA)
    Job.objects.filter(pk=child.pk).update(parent=parent)
    with hipq.batch() as group:
        group.enqueue(hipq.NewJob("charge", DATA))
    hipq.cancel(parent, f"{CARD} was stolen", descendants=True)
    hipq.cancel_batch(group, f"{CARD} was stolen")


def schedule_it(charge: Charge) -> None:
    charge(waits)
    hipq.schedule("daily", hipq.NewJob("charge", DATA), hipq.Cron("0 6 * * *", "UTC"))


LIVES = {
    "raised": Life(raise_it, f"no route to {IBAN}"),
    "retry handler": Life(
        raise_it_twice, f"its retry handler raised ValueError: {{'card': '{CARD}"
    ),
    "response": Life(raise_at_the_response, f"no such receipt: {ANSWERED}"),
    "snooze": Life(snooze_at_the_response, f"{ANSWERED} is in use"),
    "lost decision": Life(lose_the_decision, f"no such receipt: {ANSWERED}"),
    "values": Life(return_it, f"paid by {ANSWERED}"),
    "error answer": Life(send_an_error, f"{ANSWERED} and {CARD} expired"),
    "progress": Life(report_progress, f"asked for {CARD}"),
    "cancelled": Life(cancel_it, f"{CARD} was stolen"),
    "schedule": Life(schedule_it, CARD),
}


def all_that_is_stored() -> str:
    rows = [
        *Job.objects.values_list("job_data", "result", "error", "progress_message"),
        *Attempt.objects.values_list("error", "traceback", "why_not_again"),
        *Answer.objects.values_list("payload"),
        *Schedule.objects.values_list("job_data"),
    ]
    return str([str(value) for row in rows for value in row])


@pytest.mark.conformance
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", LIVES)
def test_nobody_reads_a_secret_that_is_stored(
    name: str, charge: Charge, readers: Callable[[], str]
) -> None:
    life = LIVES[name]

    life.live(charge)

    read, shown = readers(), life.stored
    for secret in SECRETS:
        shown = shown.replace(secret, "•••")
    assert life.stored in all_that_is_stored().replace("\\", "")
    assert shown in read
    assert shows_nothing(read)


@pytest.mark.conformance
def test_what_the_database_refuses_is_masked(charge: Charge) -> None:
    declared = charge(lambda job: {"card": "5500000000000004"})
    declared.enqueue(DATA)
    worker = HandWorker()
    worker.run_pass()
    returned = execute(worker.claims[0])

    quoted = f"out of range: {CARD} 5500000000000004\nDETAIL: Failing row contains ({CARD[:12]}..."
    result = refused(returned, DataError(quoted))

    assert isinstance(result, Failed)
    assert result.error == "DataError: out of range: ••• •••"
    # What the log gets as its cause, and a receiver of `job_failed`.
    assert type(result.exception).__name__ == "DataError"
    assert str(result.exception) == "out of range: ••• •••"


@pytest.mark.conformance
def test_what_the_database_says_of_an_answer_is_not_in_the_log(
    charge: Charge,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(*_: Any) -> Any:
        raise IntegrityError(f"refused: card {CARD}")

    url = f"/hipq/callback/{Token('default', run(charge(waits)).pk, 1).sign()}/"
    monkeypatch.setattr(callback_view, "answer_callback", refuses)

    response = client.post(url, {"response": 1}, content_type="application/json")

    assert response.status_code == 503
    assert "event=request_put_off" in caplog.text
    assert "the database failed: IntegrityError" in caplog.text
    assert shows_nothing(caplog.text)


# What throttlers say


def says_of_candidates(queue: Any, now: Any, running: Any, candidates: Any) -> Any:
    raise KeyError(str(candidates[0].job_data))


def says_of_running(queue: Any, now: Any, running: Any, candidates: Any) -> Any:
    if running:
        raise KeyError(str(running[0].job_data))
    return [hipq.Run() for _ in candidates]


def holds(queue: Any, now: Any, running: Any, candidates: Any) -> Any:
    said = [f"{c.job_data} beside {[one.job_data for one in running]}" for c in candidates]
    return [hipq.Hold(reason) if running else hipq.Run() for reason in said]


def moves(queue: Any, now: Any, running: Any, candidates: Any) -> Any:
    said = [f"{c.job_data}" for c in candidates]
    later = now + timedelta(hours=1)
    return [hipq.Reschedule(later, reason) if running else hipq.Run() for reason in said]


@pytest.mark.parametrize("throttler", [says_of_candidates, says_of_running, holds, moves])
def test_what_a_throttler_says_of_jobs_is_masked(
    throttler: Any, charge: Charge, configure_queue: ConfigureQueue, readers: Callable[[], str]
) -> None:
    queue = configure_queue(throttler)
    declared = charge(waits)
    for _ in range(2):
        declared.enqueue(DATA)
        run_due_jobs()

    queue.refresh_from_db()
    assert "Ada" in f"{queue.throttler_problem}{[hipq.explain(job) for job in Job.objects.all()]}"
    assert shows_nothing(queue.throttler_problem + readers())


@pytest.mark.parametrize("limit", [hipq.KeyLimit("pin", 1), hipq.ShareLimit("pin", {})])
def test_the_reason_of_a_limit_is_masked_however_short_the_value(
    declare: Declare,
    configure_queue: ConfigureQueue,
    admin_client: Client,
    limit: Any,
) -> None:
    configure_queue(limit, THROTTLE_LIMIT=5)
    declared = declare("charge", sensitive=["pin"])(waits)
    jobs = [declared.enqueue({"pin": "7"}) for _ in range(2)]
    run_due_jobs()

    [reason] = [r.text for r in hipq.explain(jobs[1]) if r.code == "throttler"]

    assert "•••" in reason
    assert "7" not in reason
    assert reason in unescape(html(admin_client, page_url(jobs[1])))


# Other readers


def test_no_repr_holds_data(charge: Charge) -> None:
    declared = charge(waits)
    job = declared.enqueue(DATA, job_key="k")
    worker = HandWorker()
    worker.run_pass()
    answer = hipq.complete("charge", "k", {"card": CARD})

    shown = [
        job,
        answer,
        hipq.NewJob("charge", DATA),
        hipq.NewAnswer("charge", "k", response=DATA, error=DATA),
        hipq.Response(DATA),
        hipq.ErrorResponse(DATA),
        *worker.claims,
        running_job_of(job),
        candidate_of(job),
        job.job_type.redactor.knowing(DATA),
    ]

    assert worker.claims
    assert shows_nothing(repr(shown))
    assert shows_nothing(str(shown))


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_quotes_the_data_is_masked(
    charge: Charge, caplog: pytest.LogCaptureFixture
) -> None:
    def receiver(job: Job, **_: Any) -> None:
        raise KeyError(str(job.job_data))

    job_finished.connect(receiver)
    try:
        run(charge(lambda job: None))
    finally:
        job_finished.disconnect(receiver)

    # Django logs the exception of a receiver under its own name, whatever we do.
    ours = "".join(r.getMessage() for r in caplog.records if r.name == "hipq_django")
    assert "Ada" in ours
    assert shows_nothing(ours)


def test_the_test_kit_masks_the_jobs_that_it_lists(charge: Charge) -> None:
    charge(waits).enqueue(DATA, job_key="k")

    with pytest.raises(AssertionError, match="Ada") as caught:
        assert_enqueued("charge", job_key="another")

    assert shows_nothing(str(caught.value))


# Which fields they are


@pytest.mark.parametrize("ahead", ["the row", "the code"])
def test_the_row_or_the_code_may_know_the_fields(
    ahead: str, declare: Declare, admin_client: Client
) -> None:
    """Errors from before they were sensitive are masked too."""
    fields = {"sensitive": ["card", "customer.iban"]}
    job = run(declare("charge", **(fields if ahead == "the row" else {}))(fails))
    JobFactory.create(
        job_type=job.job_type, queue=job.queue, state="retry", attempt=1,
        error={"card": CARD, "why": "expired"},
    )  # fmt: skip
    declare.forget_all()
    if ahead == "the code":
        declare("charge", **fields)(waits)

    pages = every_page(admin_client)

    assert bool(JobType.objects.get(name="charge").sensitive) == (ahead == "the row")
    assert "was refused" in pages
    assert shows_nothing(pages)


@pytest.mark.conformance
@pytest.mark.parametrize("large", ["error", "answer"])
def test_the_list_reads_no_large_values_to_mask_the_head_of_an_error(
    charge: Charge, admin_client: Client, large: str
) -> None:
    values: dict[str, dict[str, Any]] = {"job_data": DATA, "error": {"why": f"no funds on {CARD}"}}
    more = {"more": "x" * 65_536}
    values[large] = {**values.get(large, {}), **more}
    values.pop("answer", None)
    job_type = run(charge(waits)).job_type
    job = JobFactory.create(
        job_type=job_type, queue=job_type.queue, state="final", outcome="failed", attempt=1,
        **values,
    )  # fmt: skip
    if large == "answer":
        AnswerFactory.create(job_type="charge", status="accepted", job=job, payload=more)

    page = html(admin_client, list_url(Job))

    assert ">too large for this list<" in page
    assert shows_nothing(page)
    assert "no funds on •••" in html(admin_client, page_url(job))


@pytest.mark.parametrize("known", ["its job", "the row", "the code", "nobody"])
def test_an_answer_is_masked_whether_its_job_or_type_is_known_or_not(
    known: str, charge: Charge, declare: Declare, admin_client: Client
) -> None:
    """One of a type that nobody knows may have the fields of any."""
    job = run(charge(waits))
    owner, name = (job, "charge") if known == "its job" else (None, "charge")
    if known == "the row":
        declare.forget_all()
    if known == "nobody":
        name = "chrage"
    status = "accepted" if owner else "unmatched"
    payload = {"card": ANSWERED, "note": f"charged {ANSWERED}"}
    answer = AnswerFactory.create(job_type=name, status=status, payload=payload, job=owner)

    page = html(admin_client, page_url(answer))

    assert "charged •••" in page
    assert shows_nothing(page)


@pytest.mark.parametrize("value", [IBAN, "S3CR" + "0123456789" * 12, ["S3CRET-0", 7]])
def test_what_refuses_arguments_quotes_no_sensitive_one(
    declare: Declare,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    admin_client: Client,
    value: Any,
) -> None:
    settings.HIPQ = {"default": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"}}

    @declare.task("pay", sensitive=["token"], retry=hipq.Never())
    def pay(token: int) -> None: ...

    with pytest.raises(hipq.ArgumentsError, match="argument token: Input should be") as raised:
        pay.enqueue(value)
    job = pay.enqueue(1)
    Job.objects.filter(pk=job.pk).update(job_data={"token": value})
    run_due_jobs()

    read = "".join(format_exception(raised.value)) + html(admin_client, page_url(job)) + caplog.text
    assert "argument token: Input should be a valid integer" in html(admin_client, page_url(job))
    assert "event=job_failed" in caplog.text
    assert "S3CR" not in read
    assert IBAN not in read


def test_jobs_with_a_field_that_the_gathering_job_would_show_are_not_gathered(
    charge: Charge, declare: Declare
) -> None:
    """They answer it with their results, which are masked as its own."""
    new = charge(lambda job: job.job_data)
    order = declare("order", retry=hipq.Never())(lambda job: job.gather([new.new(DATA)]))
    job = order.enqueue({"order": 42})

    run_due_jobs()

    job.refresh_from_db()
    assert job.error == (
        "InvalidJobError: gather: jobs of type 'charge' have the sensitive field 'card', which "
        "'order' would show with their results; add it to its sensitive=."
    )
    assert list(Job.objects.all()) == [job]


@pytest.mark.parametrize("handler", [lambda job: job.job_data, fails])
def test_a_gathering_job_with_their_sensitive_fields_masks_what_it_has_gathered(
    handler: Any, charge: Charge, declare: Declare, admin_client: Client
) -> None:
    new = charge(handler)
    order = declare("order", sensitive=["CARD", "iban"])(lambda job: job.gather([new.new(DATA)]))
    job = order.enqueue({"order": 42})

    run_due_jobs()

    job.refresh_from_db()
    assert "Ada" in str(job.result["1"])
    assert shows_nothing(every_page(admin_client))
