"""Fields that must not be shown: in the admin, in the log, in errors. Handlers get them whole."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from html import unescape
from traceback import format_exception
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DataError, IntegrityError
from django.test import Client
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.api import answer_callback
from hipq_django.answers.callback_urls import Token
from hipq_django.domain.throttling import candidate_of, running_job_of
from hipq_django.exceptions import InvalidJobTypeError
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.models import Answer, Attempt, Job, JobType, Queue
from hipq_django.models.catalog import get_job_type
from hipq_django.scheduler.executor import execute
from hipq_django.signals import job_finished
from hipq_django.testing import assert_enqueued, travel
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
DATA = {"card": CARD, "order": 42, "customer": {"iban": IBAN, "name": "Ada"}}

Charge = Callable[[Callable[[Job], Any]], JobTypeSpec]


@pytest.fixture
def charge(declare: Declare) -> Charge:
    return declare("charge", sensitive=["card", "customer.iban"])


def run(declared: JobTypeSpec) -> Job:
    job = declared.enqueue(DATA, job_key="k")
    run_due_jobs()
    job.refresh_from_db()
    return job


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


def shows_nothing(text: str) -> bool:
    return CARD not in text and IBAN not in text


def every_page(client: Client, job: Job) -> str:
    rows = [job, *Answer.objects.all()]
    pages = [html(client, page_url(row)) for row in rows]
    pages += [html(client, list_url(model)) for model in (Job, Answer, Queue)]
    pages.append(html(client, list_url(Job), q="k"))
    return "\n".join(pages)


def test_the_handler_gets_the_data_whole_and_it_is_stored_whole(charge: Charge) -> None:
    seen: list[Any] = []
    job = run(charge(lambda job: seen.append(job.job_data)))

    assert seen == [DATA]
    assert job.job_data == DATA


@pytest.mark.conformance
def test_the_admin_masks_data_result_and_answers(charge: Charge, admin_client: Client) -> None:
    job = run(charge(waits))
    hipq.complete("charge", "k", {"card": CARD, "note": f"charged {CARD}", "receipt": 4711})
    AnswerFactory.create(job_type="charge", status="unmatched", payload={"card": CARD, "n": "2nd"})

    pages = every_page(admin_client, job)

    job.refresh_from_db()
    assert job.result["card"] == CARD
    assert shows_nothing(pages)
    assert all(shown in pages for shown in ("•••", "4711", "Ada", "charged •••", "2nd"))


def test_an_error_is_masked_before_it_is_stored(
    charge: Charge, admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    job = run(charge(fails))

    attempt = Attempt.objects.get()
    assert job.error == (
        "ValueError: {'card': '•••', 'order': 42, 'customer': {'iban': '•••', 'name': 'Ada'}} "
        "was refused"
    )
    assert attempt.error == job.error
    assert "no route to •••" in attempt.traceback
    assert shows_nothing(attempt.traceback + caplog.text + every_page(admin_client, job))
    assert "event=job_failed " in caplog.text


def test_what_a_retry_handler_raises_is_masked_in_the_log(
    charge: Charge, caplog: pytest.LogCaptureFixture
) -> None:
    declared = charge(fails)
    declared.on_error(fails)

    job = run(declared)

    assert job.outcome == "failed"
    assert "its retry handler raised ValueError: " in caplog.text
    assert "no route to •••" in caplog.text
    assert shows_nothing(caplog.text)


def test_what_a_response_handler_raises_is_masked_by_the_response_too(charge: Charge) -> None:
    declared = charge(waits)

    @declared.on_response
    def charged(job: Job, response: Any) -> None:
        raise ValueError(f"no such receipt: {response}")

    job = run(declared)
    hipq.complete("charge", "k", {"card": "5500000000000004", "receipt": 1})
    run_due_jobs()

    job.refresh_from_db()
    assert job.error == "ValueError: no such receipt: {'card': '•••', 'receipt': 1}"


@pytest.mark.parametrize("is_task", [False, True])
@pytest.mark.parametrize("kind", [ValueError, InUseError])
def test_what_a_response_handler_takes_out_of_the_response_is_masked(
    declare: Declare, caplog: pytest.LogCaptureFixture, kind: type[Exception], is_task: bool
) -> None:
    caplog.set_level(logging.DEBUG)

    def taken(response: Any) -> None:
        raise kind(f"cannot charge {response.pop('card')}")

    if is_task:
        pay = declare.task("charge", sensitive=["card"])(lambda: hipq.WAIT)
        pay.on_response(taken)
        pay.using(job_key="k").enqueue()
    else:
        charge = declare("charge", sensitive=["card"])(waits)
        charge.on_response(lambda job, response: taken(response))
        charge.enqueue(job_key="k")
    run_due_jobs()
    hipq.complete("charge", "k", {"card": CARD})
    run_due_jobs()

    stored = f"{Job.objects.get().error}{list(Attempt.objects.values('error', 'traceback'))}"
    assert "cannot charge •••" in stored
    assert CARD not in stored + caplog.text


@pytest.mark.parametrize(
    ("error", "stored"),
    [
        (f"card {CARD} declined", "card ••• declined"),
        ({"card": CARD, "why": f"{CARD} expired"}, {"card": "•••", "why": "••• expired"}),
    ],
)
def test_an_error_answer_is_masked_and_kept_whole_in_the_inbox(
    charge: Charge, error: Any, stored: Any
) -> None:
    run(charge(waits))

    answer = hipq.fail("charge", "k", error)

    job = Job.objects.get()
    assert (job.error, Attempt.objects.get().error) == (stored, stored)
    answer.refresh_from_db()
    assert answer.payload == error
    assert hipq.fail("charge", "k", error).status == "duplicate"


def test_a_message_of_progress_is_masked(charge: Charge) -> None:
    job = run(charge(waits))

    hipq.progress("charge", "k", 40, "x" * 490 + f" {CARD}")

    job.refresh_from_db()
    assert job.progress_message == "x" * 490 + " •••"


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
    assert str(result.exception) == result.error


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


def test_a_throttler_that_quotes_the_data_is_masked(
    charge: Charge, configure_queue: ConfigureQueue, caplog: pytest.LogCaptureFixture
) -> None:
    def throttler(queue: Any, now: Any, running: Any, candidates: Any) -> Any:
        raise KeyError(str(candidates[0].job_data))

    queue = configure_queue(throttler)
    job = run(charge(waits))

    queue.refresh_from_db()
    reasons = [reason.text for reason in hipq.explain(job)]
    assert "Ada" in queue.throttler_problem
    assert shows_nothing(f"{queue.throttler_problem} {reasons} {caplog.text}")


def test_a_value_of_two_lines_is_masked_before_one_line_of_a_throttlers_error_is_shown(
    charge: Charge, configure_queue: ConfigureQueue, caplog: pytest.LogCaptureFixture
) -> None:
    def throttler(queue: Any, now: Any, running: Any, candidates: Any) -> Any:
        raise ValueError(f"cannot read {candidates[0].job_data['card']}\nat all")

    queue = configure_queue(throttler)
    job = charge(waits).enqueue({"card": "BEGIN S3CRET\nS3CRET END"})
    run_due_jobs()

    queue.refresh_from_db()
    reasons = str([reason.text for reason in hipq.explain(job)])
    assert queue.throttler_problem.endswith("raised ValueError: cannot read •••")
    assert "raised ValueError: cannot read •••" in reasons
    assert "S3CRET" not in queue.throttler_problem + reasons + caplog.text


LIMITS: dict[str, Callable[[str], Any]] = {
    "KeyLimit": lambda name: hipq.KeyLimit(name, 1),
    "ShareLimit": lambda name: hipq.ShareLimit(name, {}),
}
SHORT = {"card": CARD, "pin": "7", "cvv": 12, "is_vip": True, "nobody": None, "tax": "o'b"}
SPELLED = {
    "card": "4111",
    "pin": "7",
    "cvv": "12",
    "is_vip": "True",
    "nobody": "None",
    "tax": "o'b",
}


@pytest.mark.parametrize(
    ("limit", "name"), [*(("KeyLimit", name) for name in SHORT), ("ShareLimit", "card")]
)
def test_the_reason_of_a_limit_is_masked_however_short_the_value(
    declare: Declare,
    configure_queue: ConfigureQueue,
    admin_client: Client,
    caplog: pytest.LogCaptureFixture,
    limit: str,
    name: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    configure_queue(LIMITS[limit](name), THROTTLE_LIMIT=5)
    declared = declare("charge", sensitive=list(SHORT))(waits)
    jobs = [declared.enqueue({name: SHORT[name]}) for _ in range(2)]
    run_due_jobs()

    reasons = " ".join(r.text for job in jobs for r in hipq.explain(job) if r.code == "throttler")
    page = html(admin_client, page_url(jobs[1]))
    panel = page.partition("Why it is not running")[2].partition("</section>")[0]

    assert SPELLED[name] not in reasons
    assert reasons.split("throttler holds it: ")[-1] in unescape(panel)
    assert CARD not in caplog.text
    assert "•••" in reasons or SHORT[name] is None


def test_the_reason_of_a_limit_names_what_is_not_sensitive(
    declare: Declare, configure_queue: ConfigureQueue
) -> None:
    configure_queue(hipq.KeyLimit("tenant", 1))
    declared = declare("charge", sensitive=["card"])(waits)
    jobs = [declared.enqueue({"tenant": "acme", "card": CARD}) for _ in range(2)]
    run_due_jobs()

    assert "A throttler holds it: tenant 'acme' has 1 of 1 running." in [
        reason.text for reason in hipq.explain(jobs[1])
    ]


@pytest.mark.parametrize("verdict", ["Hold", "Reschedule"])
def test_a_throttlers_reason_that_quotes_a_job_is_masked(
    charge: Charge,
    configure_queue: ConfigureQueue,
    caplog: pytest.LogCaptureFixture,
    verdict: str,
) -> None:
    def throttler(queue: Any, now: Any, running: Any, candidates: Any) -> Any:
        reasons = [f"{c.job_data} beside {[load.job_data for load in running]}" for c in candidates]
        if not running:
            return [hipq.Run() for _ in reasons]
        if verdict == "Hold":
            return [hipq.Hold(reason) for reason in reasons]
        return [hipq.Reschedule(now + timedelta(hours=1), reason) for reason in reasons]

    caplog.set_level(logging.DEBUG)
    configure_queue(throttler)
    declared = charge(waits)
    declared.enqueue({"card": "5500000000000004"})
    run_due_jobs()
    job = run(declared)

    reasons = [reason.text for reason in hipq.explain(job)]
    assert any("Ada" in text for text in (caplog.text, *reasons))
    assert shows_nothing(f"{reasons}{caplog.text}")
    assert "5500000000000004" not in str(reasons)


def test_a_throttlers_error_that_quotes_what_runs_is_masked(
    charge: Charge,
    configure_queue: ConfigureQueue,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def throttler(queue: Any, now: Any, running: Any, candidates: Any) -> Any:
        if running:
            raise KeyError(str(running[0].job_data))
        return [hipq.Run() for _ in candidates]

    queue = configure_queue(throttler)
    declared = charge(waits)
    run(declared)
    waiting = declared.enqueue({"order": 43})
    run_due_jobs()

    queue.refresh_from_db()
    reasons = [reason.text for reason in hipq.explain(waiting)]
    for command in ("hipq_status", "hipq_doctor"):
        with suppress(SystemExit):
            call_command(command)
    printed = capsys.readouterr().out
    assert queue.throttler_problem in printed
    assert "Ada" in queue.throttler_problem
    assert shows_nothing(f"{queue.throttler_problem} {reasons} {caplog.text} {printed}")


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


def test_the_row_knows_the_fields_where_the_code_is_gone(
    declare: Declare, admin_client: Client
) -> None:
    job = run(declare("charge", sensitive=["card", "customer.iban"])(waits))
    declare.forget_all()

    assert shows_nothing(every_page(admin_client, job))


def test_the_code_knows_the_fields_before_the_row_does(
    declare: Declare, admin_client: Client
) -> None:
    job = run(declare("charge")(waits))
    declare.forget_all()
    declare("charge", sensitive=["card", "customer.iban"])(waits)

    assert JobType.objects.get(name="charge").sensitive == []
    assert shows_nothing(every_page(admin_client, job))


def test_an_error_from_before_its_field_was_sensitive_is_masked_too(
    declare: Declare, admin_client: Client
) -> None:
    declared = declare("charge")(fails)
    job = run(declared)
    JobFactory.create(
        job_type=job.job_type, queue=job.queue, state="retry", attempt=1,
        error={"card": CARD, "why": "expired"},
    )  # fmt: skip
    in_error = JobFactory.create(
        job_type=job.job_type, queue=job.queue, state="error", attempt=1, job_data=DATA,
        error=f"no funds on {CARD}",
    )  # fmt: skip
    declare.forget_all()
    declare("charge", sensitive=["card", "customer.iban"])(waits)

    pages = every_page(admin_client, job) + html(admin_client, page_url(in_error))
    reasons = str(hipq.explain(in_error))

    assert "was refused" in pages
    assert "no funds on •••" in reasons
    assert shows_nothing(pages + reasons)


@pytest.mark.conformance
@pytest.mark.parametrize("large", ["job_data", "error"])
def test_the_list_reads_no_large_values_to_mask_the_head_of_an_error(
    charge: Charge, admin_client: Client, large: str
) -> None:
    values: dict[str, dict[str, Any]] = {"job_data": DATA, "error": {"why": f"no funds on {CARD}"}}
    values[large] = {**values[large], "more": "x" * 65_536}
    job_type = run(charge(waits)).job_type
    job = JobFactory.create(
        job_type=job_type, queue=job_type.queue, state="final", outcome="failed", attempt=1,
        **values,
    )  # fmt: skip
    size = sum(len(json.dumps(value)) for value in values.values())

    page = html(admin_client, list_url(Job))

    assert f">{size:,} characters, too many for a preview<" in page
    assert shows_nothing(page)
    assert "no funds on •••" in html(admin_client, page_url(job))


@pytest.mark.parametrize("status", ["unmatched", "accepted"])
def test_what_an_answer_quotes_of_its_own_fields_is_masked(
    charge: Charge, admin_client: Client, status: str
) -> None:
    job = run(charge(waits))
    payload = {"card": "5500000000000004", "note": "charged 5500000000000004"}
    owner = job if status == "accepted" else None
    answer = AnswerFactory.create(job_type="charge", status=status, payload=payload, job=owner)

    page = html(admin_client, page_url(answer))

    assert "charged •••" in page
    assert "5500000000000004" not in page


def test_an_answer_whose_job_was_pruned_is_masked(charge: Charge, admin_client: Client) -> None:
    job = run(charge(waits))
    pk = job.pk
    job.delete()

    answer = answer_callback(Token("default", pk, 1), Answer.Kind.RESPONSE, DATA)

    assert answer.job_type == "pruned job"
    page = html(admin_client, page_url(answer))
    assert "Ada" in page
    assert shows_nothing(page)


@pytest.mark.parametrize("is_known", [True, False])
def test_an_answer_of_an_unknown_type_may_have_the_fields_of_any(
    declare: Declare, admin_client: Client, is_known: bool
) -> None:
    charge = declare("charge", sensitive=["card"])(waits)
    if not is_known:  # but its row is
        run(charge)
        declare.forget_all()
    answer = AnswerFactory.create(
        job_type="chrage", status="unmatched", payload={"card": CARD, "note": f"for {CARD}"}
    )

    page = html(admin_client, page_url(answer))

    assert "for •••" in page
    assert shows_nothing(page)


def test_the_row_follows_the_code(declare: Declare) -> None:
    declare("charge", sensitive=["card", "pin"])(waits)
    assert get_job_type("default", "charge").sensitive == ["card", "pin"]
    declare.forget_all()

    declare("charge", sensitive=["card"])(waits)

    assert get_job_type("default", "charge").sensitive == ["card"]


@pytest.mark.parametrize("names", ["card", [7], [""]])
def test_a_type_whose_fields_are_no_list_of_names_is_refused(names: Any) -> None:
    with pytest.raises(InvalidJobTypeError, match="job type 'never': sensitive="):
        hipq.job_type("never", sensitive=names)(waits)


def test_what_refuses_arguments_quotes_no_sensitive_one(
    declare: Declare, settings: Settings
) -> None:
    settings.HIPQ = {"default": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"}}

    @declare.task("pay", sensitive=["iban", "card"])
    def pay(iban: int, card: dict[str, int] | None = None) -> None: ...

    given: Any = IBAN
    said = "pay: argument iban: Input should be a valid integer, unable to parse string"
    with pytest.raises(hipq.ArgumentsError, match=said) as raised:
        pay.enqueue(given)
    assert IBAN not in str(raised.value)
    with pytest.raises(hipq.ArgumentsError, match=r"argument card\.number: Input") as raised:
        pay.enqueue(7, {"number": given})
    assert IBAN not in str(raised.value)


def test_what_is_said_of_stored_arguments_that_do_not_fit_is_masked(
    declare: Declare, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings.HIPQ = {"default": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"}}

    @declare.task("pay", sensitive=["pin"], retry=hipq.Never())
    def pay(pin: int) -> None: ...

    job = pay.enqueue(1)
    Job.objects.filter(pk=job.pk).update(job_data={"pin": "secretpin99"})

    run_due_jobs()

    job.refresh_from_db()
    assert job.outcome == "failed"
    assert "pay: argument pin: Input should be a valid integer" in job.error
    assert "secretpin99" not in job.error + caplog.text


LONG = "S3CR" + "0123456789" * 12


@pytest.mark.parametrize(
    "value", [LONG, 2 * LONG, ["S3CRET-0", LONG]], ids=["long", "longer", "list"]
)
def test_no_part_of_a_long_argument_is_quoted(
    declare: Declare,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    admin_client: Client,
    value: Any,
) -> None:
    caplog.set_level(logging.DEBUG)
    settings.HIPQ = {"default": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"}}

    @declare.task("pay", sensitive=["token"], retry=hipq.Never())
    def pay(token: int) -> None: ...

    with pytest.raises(hipq.ArgumentsError, match="argument token: Input should be") as raised:
        pay.enqueue(value)
    job = pay.enqueue(1)
    Job.objects.filter(pk=job.pk).update(job_data={"token": value})
    with travel(hours=1):
        run_due_jobs()

    job.refresh_from_db()
    attempt = Attempt.objects.get()
    stored = f"{job.error}{attempt.error}{attempt.traceback}"
    assert "argument token: Input should be a valid integer" in job.error
    assert "event=job_failed" in caplog.text
    assert "S3CR" not in "".join(format_exception(raised.value))
    assert "S3CR" not in stored + caplog.text + html(admin_client, page_url(job))


def test_why_a_job_is_put_back_is_masked(charge: Charge, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def later(job: Job) -> None:
        raise InUseError(f"{CARD} is in use")

    job = run(charge(later))

    assert (job.state, job.error) == ("retry", "••• is in use")
    assert CARD not in caplog.text


def test_why_a_job_is_cancelled_is_masked(charge: Charge, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    declared = charge(waits)
    parent, other = declared.enqueue(DATA), JobFactory.create()
    child = declared.enqueue(DATA)
    Job.objects.filter(pk=child.pk).update(parent=parent)
    with hipq.batch() as group:
        member = group.enqueue(hipq.NewJob("charge", DATA))

    hipq.cancel(parent, f"{CARD} was stolen", descendants=True)
    hipq.cancel(other, f"{CARD} was stolen")
    hipq.cancel_batch(group, f"{CARD} was stolen")

    errors = dict(Job.objects.values_list("pk", "error"))
    assert {errors[job.pk] for job in (parent, child, member)} == {"••• was stolen"}
    assert errors[other.pk] == f"{CARD} was stolen"  # its type has no sensitive fields
    assert CARD not in caplog.text


def test_what_refuses_data_without_what_is_compared_quotes_no_sensitive_field(
    declare: Declare,
) -> None:
    declare("charge", sensitive=["card"], unique="live", unique_on=["order"])(lambda job: None)

    with pytest.raises(hipq.InvalidJobError, match="unique_on names order") as raised:
        hipq.enqueue("charge", {"card": CARD})
    assert CARD not in str(raised.value)


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


@pytest.mark.parametrize("fields", [["CARD", "iban"], ["card", "customer.iban", "pin"]])
def test_a_gathering_job_with_their_sensitive_fields_masks_what_it_has_gathered(
    charge: Charge, declare: Declare, fields: list[str], admin_client: Client
) -> None:
    new = charge(lambda job: job.job_data)
    order = declare("order", sensitive=fields)(lambda job: job.gather([new.new(DATA)]))
    job = order.enqueue({"order": 42})

    run_due_jobs()

    job.refresh_from_db()
    assert job.result["1"]["result"] == DATA
    assert shows_nothing(every_page(admin_client, job))
