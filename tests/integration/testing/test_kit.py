"""The test kit: what is asked of jobs, time that moves, and partners that answer."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import time_machine
from asgiref.sync import async_to_sync
from django.core.exceptions import FieldError
from django.db import connection, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries, Settings

import hipq_django as hipq
from hipq_django import testing
from hipq_django.database import clock
from hipq_django.job_types.registry import forget, get_declared, known_names
from hipq_django.models import Answer, Job, Queue
from hipq_django.scheduler import polling
from hipq_django.signals import job_finished
from hipq_django.testing import HipqTestCase
from tests.conftest import ROOT
from tests.declaring import Declare
from tests.integration.conftest import ConfigureQueue

pytestmark = pytest.mark.django_db

Partners = Callable[..., testing.Partner]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """The kit leaves nothing behind."""
    yield
    testing.reset()


@pytest.fixture
def sell(declare: Declare) -> str:
    """A job type that waits for an answer, and is tried three times, a minute apart."""
    policy = hipq.Fixed(60, max_attempts=3)
    declare("sell", timeout=600, retry=policy)(lambda job: hipq.WAIT)
    return "sell"


def fresh_of(job: Job) -> Job:
    job.refresh_from_db()
    return job


# Asking


def test_enqueued_jobs_are_listed_oldest_first() -> None:
    first, second = hipq.enqueue("echo", 1), hipq.enqueue("echo", 2, priority=5)

    assert testing.enqueued("echo") == [first, second]
    assert testing.enqueued("echo", priority=5) == [second]
    testing.refute_enqueued("echo", priority=6)


def test_what_is_not_enqueued_names_the_jobs_of_the_type_and_what_holds_them(
    declare: Declare,
) -> None:
    declare("charge", sensitive=["card"])(lambda job: None)
    done = hipq.enqueue("charge", {"card": "4711"}, job_key="order-43")
    testing.run_job(done)
    waiting = [hipq.enqueue("charge", {"card": "4711"}, delay=60) for _ in range(7)]

    with pytest.raises(AssertionError) as caught:
        testing.assert_enqueued("charge", job_key="order-43", priority=5)

    first, second, *others = str(caught.value).splitlines()
    assert first.endswith("with 'charge', job_key='order-43', priority=5; jobs of this type:")
    assert second.startswith(f"  {waiting[0]} {{'card': '•••'}}: it is initial. It is scheduled")
    assert len(others) == 4
    assert "4711" not in str(caught.value)


def test_fields_are_asked_for_as_django_names_them() -> None:
    hipq.enqueue("echo", {"name": 1})

    assert testing.enqueued("echo", job_data__name=1, queue__name="default", pk__gt=0)
    with pytest.raises(FieldError, match=r"'priorty' into field\. Choices are: .*priority"):
        testing.refute_enqueued("echo", priorty=5)


def test_a_queue_is_asked_for_by_its_name_as_it_is_given() -> None:
    job = hipq.enqueue("echo", queue="mail")

    assert testing.assert_enqueued("echo", queue="mail") == job
    assert testing.enqueued("echo", queue=job.queue) == [job]
    testing.refute_enqueued("echo", queue="default")
    with pytest.raises(AssertionError, match="no job enqueued with 'echo', queue='default'; jobs"):
        testing.assert_enqueued("echo", queue="default")


@pytest.mark.parametrize("ask", [testing.refute_enqueued, testing.enqueued, testing.partner])
def test_a_misspelt_type_is_an_error_where_silence_would_pass_the_test(
    ask: Any, declare: Declare, settings: Settings
) -> None:
    settings.HIPQ = {"default": {"STRICT": True}}
    declare("charge_card", aliases=["charge"])(lambda job: None)

    said = "no code of this process declares job type 'charge_crd', did you mean 'charge_card'"
    with pytest.raises(hipq.InvalidJobTypeError, match=said):
        ask("charge_crd")
    for known in ("charge_card", "charge", "tests.testapp.tasks.tell"):
        ask(known)


def test_names_that_are_for_the_code_of_others_are_not_held_against_this_code(
    settings: Settings,
) -> None:
    hipq.enqueue("made_up")
    assert len(testing.enqueued("made_up")) == 1
    settings.HIPQ = {"default": {"STRICT": False}}

    testing.refute_enqueued("of_others")
    testing.partner("of_others")


def test_a_task_is_asked_for_by_itself(declare: Declare) -> None:
    send = declare.task("send")(lambda number: None)
    charge = declare("charge")(lambda job: hipq.WAIT)
    tasks: Any = importlib.import_module("tests.testapp.tasks")

    testing.refute_enqueued(send)
    testing.refute_enqueued(tasks.tell)
    testing.refute_enqueued("tests.testapp.tasks.tell")
    with pytest.raises(AssertionError, match="no job enqueued with 'send'"):
        testing.assert_enqueued(send)
    job = send.enqueue(1)
    assert testing.assert_enqueued(send, priority=100) == job
    assert testing.enqueued(send) == [job]
    with pytest.raises(AssertionError, match="enqueued with 'send'"):
        testing.refute_enqueued(send)
    testing.assert_enqueued(tasks.ask, pk=int(tasks.ask.enqueue().id))
    testing.partner(charge, "paid")
    testing.partner(tasks.ask, "asked")
    charge.enqueue()
    testing.drain()
    results = Job.objects.order_by("pk").values_list("result", flat=True)
    assert {"asked", "paid"} <= set(results)


def test_jobs_of_a_former_name_are_found(declare: Declare) -> None:
    old = hipq.enqueue("send_mail", job_key="a")
    declare("send", aliases=["send_mail"])(lambda job: hipq.WAIT)

    assert testing.assert_enqueued("send") == old
    testing.partner("send", "sent")
    testing.drain()
    testing.assert_finished(old, result="sent")


def test_a_misspelt_state_is_named_with_the_nearest_one() -> None:
    with pytest.raises(hipq.InvalidJobError, match="state='intial' is none, did you mean 'initial"):
        testing.refute_enqueued("echo", state="intial")
    testing.refute_enqueued("echo", state="initial")


def test_a_misspelt_queue_is_named_with_the_nearest_one(declare: Declare) -> None:
    declare("send", queue="mail")(lambda job: None)
    for run in (testing.run_due_jobs, lambda queue: testing.immediate(queue).__enter__()):
        with pytest.raises(hipq.InvalidJobError, match="no queue 'mial', did you mean 'mail'"):
            run("mial")
    assert testing.run_due_jobs("mail") == 0


def test_a_finished_job(declare: Declare) -> None:
    declare("good")(lambda job: [1, 2])
    job = hipq.enqueue("good")

    with pytest.raises(AssertionError, match="has not succeeded: it is initial"):
        testing.assert_finished(job)
    testing.drain()

    assert testing.assert_finished(job, result=[1, 2]) == job
    with pytest.raises(AssertionError, match=r"has the result \[1, 2\], not 3"):
        testing.assert_finished(job, result=3)
    with pytest.raises(AssertionError, match="has not failed: it is final, succeeded"):
        testing.assert_finished(job, "failed")


def test_a_job_that_failed_says_why(declare: Declare) -> None:
    declare("bad")(lambda job: 1 / 0)
    job = hipq.enqueue("bad")
    testing.drain(raise_errors=False)

    with pytest.raises(AssertionError) as caught:
        testing.assert_finished(job)

    assert "ZeroDivisionError: division by zero" in str(caught.value)
    assert "lambda job: 1 / 0" in str(caught.value)
    testing.assert_finished(job, "failed")


def test_a_waiting_job(sell: str) -> None:
    job = hipq.enqueue("sell")
    testing.assert_waiting(job)
    testing.drain()

    with pytest.raises(AssertionError, match="does not wait to run: it is running"):
        testing.assert_waiting(job)


class SignalsTest(TestCase):
    """Where nothing is ever committed."""

    def test_signals_are_captured(self) -> None:
        with testing.captured_signals() as sent:
            job = hipq.enqueue("echo")
            testing.drain()

        assert [(name, signalled.pk) for name, signalled in sent] == [
            (name, job.pk) for name in ("job_enqueued", "job_started", "job_finished")
        ]

    def test_what_waits_for_the_commit_is_called_only_if_it_is_wanted(self) -> None:
        called: list[int] = []
        transaction.on_commit(lambda: called.append(1))
        testing.drain()
        assert called == []

        testing.drain(commit=True)
        assert called == [1]

    def test_what_is_enqueued_behind_a_commit_runs(self) -> None:
        after: list[int] = []

        def enqueue_one_more(job: Job, **_: Any) -> None:
            transaction.on_commit(lambda: after.append(job.job_data))
            if job.job_data:
                transaction.on_commit(lambda: hipq.enqueue("echo", job.job_data - 1))

        job_finished.connect(enqueue_one_more)
        self.addCleanup(job_finished.disconnect, enqueue_one_more)
        transaction.on_commit(lambda: hipq.enqueue("echo", 2))

        assert testing.drain(commit=True) == 3
        assert after == [2, 1, 0]
        assert not Job.objects.live().exists()

    def test_what_was_called_at_the_end_of_the_block_is_not_called_again(self) -> None:
        called: list[int] = []
        transaction.on_commit(lambda: called.append(0))
        with testing.captured_signals():
            transaction.on_commit(lambda: called.append(1))
        assert called == [1]

        testing.drain(commit=True)
        assert called == [1, 0]
        assert connection.run_on_commit == []


# One job


def test_one_job_runs_whatever_its_time(declare: Declare) -> None:
    ran: list[int] = []
    declare("note")(lambda job: ran.append(job.pk))
    other = hipq.enqueue("note", priority=1)
    later = clock.now("default") + timedelta(days=3)
    job = hipq.enqueue("note", scheduled_run_time=later, time_windows=["03:00-03:01"])

    testing.run_job(job)

    assert ran == [job.pk]
    testing.assert_finished(job)
    testing.assert_waiting(other)
    assert fresh_of(other).attempt == 0


def test_what_one_job_raises_is_raised_and_decided_about(declare: Declare) -> None:
    declare("flaky", retry=hipq.Fixed(60, max_attempts=2))(lambda job: 1 / 0)
    job = hipq.enqueue("flaky")

    with pytest.raises(ZeroDivisionError):
        testing.run_job(job)

    testing.assert_waiting(job)
    assert job.state == "retry"
    assert testing.run_job(job, raise_errors=False).outcome == "failed"


HELD = {
    "paused": ({"paused": True}, "did not run: it is initial.*paused"),
    "full": ({"throttle_limit": 1}, r"did not run: it is initial.*limit"),
}


@pytest.mark.parametrize("has_throttler", [False, True])
@pytest.mark.parametrize(("values", "why"), HELD.values(), ids=HELD)
def test_one_job_that_is_held_beside_others_that_are_due_says_why(
    values: dict[str, Any],
    why: str,
    has_throttler: bool,
    declare: Declare,
    configure_queue: ConfigureQueue,
) -> None:
    """Also where others of its queue, which the limit does not hold, come first."""
    if has_throttler:
        configure_queue(lambda *args: [hipq.Run() for _ in args[-1]], name="bank")
    declare("charge", queue="bank")(lambda job: hipq.WAIT)
    running = hipq.enqueue("charge")
    testing.run_job(running)
    others = [hipq.enqueue("charge", throttle_factor=0), hipq.enqueue("echo")]
    job = hipq.enqueue("charge")
    Queue.objects.filter(name="bank").update(**values)

    with pytest.raises(AssertionError, match=why):
        testing.run_job(job)

    assert [fresh_of(other).attempt for other in others] == [0, 0]
    assert fresh_of(running).attempt == 1


def test_one_job_is_decided_about_beside_others_that_are_not(declare: Declare) -> None:
    charge = declare("charge")(lambda job: hipq.WAIT)
    charge.on_error(lambda job: None)
    jobs = [charge.enqueue(job_key=key) for key in "ab"]
    testing.drain()
    for key in "ab":
        charge.fail(key, "stolen")

    with pytest.raises(AssertionError, match="did not run: it is final, failed"):
        testing.run_job(jobs[1])

    assert [fresh_of(job).state for job in jobs] == ["error", "final"]


# Time


def test_time_moves_from_event_to_event(declare: Declare) -> None:
    at: list[datetime] = []
    declare("note", retry=hipq.Fixed(60, max_attempts=3))(lambda job: at.append(job.start_time))
    start = clock.now("default")
    for minutes in (1, 5, 30):
        hipq.enqueue("note", delay=timedelta(minutes=minutes))

    assert testing.run_for(minutes=10) == 2

    waited = [round((moment - start).total_seconds() / 60) for moment in at]
    assert waited == [1, 5]
    gone = (clock.now("default") - start).total_seconds()
    assert gone == pytest.approx(600, abs=5)
    assert testing.run_for(minutes=30) == 1


def test_retries_and_timeouts_come_in_their_time(sell: str) -> None:
    job = hipq.enqueue("sell")
    start = clock.now("default")

    assert testing.run_for(hours=1) == 3

    assert fresh_of(job).outcome == "timed_out"
    took = (job.update_time - start).total_seconds()
    assert took == pytest.approx(3 * 600 + 2 * 60, abs=30)


def test_windows_open() -> None:
    opens = (clock.now("default") + timedelta(hours=5)).replace(minute=0)
    window = f"{opens:%H:%M}-{opens + timedelta(minutes=30):%H:%M}"
    job = hipq.enqueue("echo", time_windows=[window])

    assert testing.run_for(hours=3) == 0
    assert testing.run_for(hours=3) == 1
    assert fresh_of(job).start_time.hour == opens.hour


def test_a_due_time_costs_few_statements(declare: Declare) -> None:
    declare("note")(lambda job: None)
    hipq.schedule("hourly", hipq.NewJob("note"), "0 * * * *")
    testing.run_for(hours=1)

    with CaptureQueriesContext(connection) as asked:
        assert testing.run_for(hours=24) == 24

    own = [query for query in asked if not query["sql"].startswith(ASIDE)]
    assert len(own) / 24 < 32  # with those of flows


ASIDE = ("SAVEPOINT", "RELEASE", "UPDATE hipq_queue SET paused = paused", "SELECT set_config")
"""How statements begin that belong to transactions."""


def test_a_throttler_that_holds_is_asked_again_however_slow_that_is(
    declare: Declare, configure_queue: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "QUICK_SECONDS", -1.0)  # every scan is slow
    declare("note")(lambda job: None)
    configure_queue(hipq.RateLimit(2, per=60))
    hipq.enqueue_many([hipq.NewJob("note")] * 5)

    assert testing.run_for(seconds=30) == 2
    assert testing.run_for(minutes=3) == 3


def test_travelling_moves_the_clock_for_a_block() -> None:
    before = clock.now("default")
    with testing.travel(days=3):
        assert clock.now("default") - before >= timedelta(days=3)
        with testing.travel(to=datetime(2031, 5, 1, tzinfo=UTC)):
            assert clock.now("default").year == 2031
        assert clock.now("default") - before < timedelta(days=3, minutes=1)

    assert clock.now("default") - before < timedelta(minutes=1)


def test_moments_in_the_past_and_naive_ones_are_refused() -> None:
    """Mostly it is a moment of Django's clock, which the kit does not move."""
    begin = clock.now("default")
    testing.run_for(hours=2)

    naive = datetime(2031, 1, 1)  # noqa: DTZ001 - what is refused
    refused: dict[str, Callable[[], Any]] = {
        "in the past.*hipq's clock.*run_due_jobs": lambda: testing.run_until(
            begin + timedelta(hours=1)
        ),
        "run_for: -1 day.* lies in the past": lambda: testing.run_for(hours=-1),
        "run_until.*aware": lambda: testing.run_until(naive),
        "travel.*aware": testing.travel(to=naive).__enter__,
        "give one of them": testing.travel(to=begin, days=3).__enter__,
    }
    for why, call in refused.items():
        with pytest.raises(hipq.InvalidJobError, match=why):
            call()
    assert testing.run_until(begin + timedelta(hours=3)) == 0


# Partners


def test_a_partner_answers_by_the_signed_callback(sell: str) -> None:
    testing.partner("sell", {"ok": True}, after=60)
    job = hipq.enqueue("sell")

    testing.drain()
    assert fresh_of(job).is_awaiting_answer
    testing.run_for(seconds=59)
    assert fresh_of(job).is_awaiting_answer
    testing.run_for(seconds=2)

    testing.assert_finished(job, result={"ok": True})


def test_a_partner_answers_a_site_that_sends_everybody_to_https(
    sell: str, settings: Settings
) -> None:
    settings.SECURE_SSL_REDIRECT = True
    testing.partner("sell", 7)
    job = hipq.enqueue("sell")

    testing.drain()

    testing.assert_finished(job, result=7)


@pytest.mark.parametrize("first", [{"response": 1}, {"response": 1, "after": 60}])
def test_the_newest_partner_of_a_type_answers(sell: str, first: Any) -> None:
    testing.partner("sell", **first)
    testing.partner("sell", 2)
    job = hipq.enqueue("sell")
    testing.drain()
    testing.assert_finished(job, result=2)

    testing.partner("sell").never()
    job = hipq.enqueue("sell")
    testing.drain()
    assert fresh_of(job).is_awaiting_answer


def test_a_partner_declines(sell: str) -> None:
    testing.partner("sell").fails("declined")
    job = hipq.enqueue("sell")

    testing.run_for(minutes=5)

    testing.assert_finished(job, "failed")
    assert job.error == "declined"
    assert job.attempts.count() == 3


@pytest.mark.parametrize(
    ("make", "statuses", "outcome"),
    [
        (lambda partner: partner.twice(), ["accepted", "duplicate"], "succeeded"),
        (lambda partner: partner.early(), ["accepted"], "succeeded"),
        (lambda partner: partner.never(), [], "timed_out"),
    ],
    ids=["twice", "early", "never"],
)
def test_partners_misbehave(sell: str, make: Any, statuses: list[str], outcome: str) -> None:
    make(testing.partner("sell", "paid"))
    job = hipq.enqueue("sell", job_key="order-7")

    testing.run_for(hours=1)

    testing.assert_finished(job, outcome)
    assert list(Answer.objects.order_by("pk").values_list("status", flat=True)) == statuses


def test_a_partner_that_is_early_fails_or_answers_parts_as_any_other(
    sell: str, declare: Declare
) -> None:
    declare("print")(lambda job: hipq.WAIT_FOR("front", "back"))
    testing.partner("sell").early().fails("declined")
    testing.partner("print").early().part("front", 1).part("back", 2)
    sold, printed = hipq.enqueue("sell", job_key="s"), hipq.enqueue("print", job_key="p")

    testing.drain()

    assert fresh_of(sold).error == "declined"
    testing.assert_finished(printed, result={"front": 1, "back": 2})


def test_a_partner_that_is_early_needs_a_key(sell: str) -> None:
    testing.partner("sell", "paid").early()
    hipq.enqueue("sell")

    with pytest.raises(hipq.InvalidJobError, match="has no job_key"):
        testing.drain()


def test_a_partner_answers_parts(declare: Declare) -> None:
    declare("print")(lambda job: hipq.WAIT_FOR("front", "back"))
    testing.partner("print").part("front", 1).part("back", 2)
    job = hipq.enqueue("print")

    testing.drain()

    testing.assert_finished(job, result={"front": 1, "back": 2})


# How it is used


def test_the_fixtures(hipq_jobs: Any, hipq_partner: Partners, sell: str) -> None:
    hipq_partner("sell", response="paid", after=5)
    job = hipq.enqueue("sell")

    hipq_jobs.run_for(seconds=10)

    hipq_jobs.assert_finished(job, result="paid")


def test_what_a_test_declares_ends_with_it(
    hipq_jobs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But what a module declares stays: it is imported only once."""
    (tmp_path / "late_jobs.py").write_text(
        "import hipq_django as hipq\n@hipq.task(name='late', aliases=['later'])\ndef late(): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    hipq.task(name="before")(lambda: None)

    with testing.case.restored():
        hipq.task(name="inside", aliases=["alias"])(lambda: None)
        importlib.import_module("late_jobs")

    names = {"before", "inside", "alias", "late", "later"}
    try:
        assert known_names("default") & names == {"before", "late", "later"}
    finally:
        forget(sys.modules.pop("late_jobs").late)


def test_what_the_test_before_declared_is_gone() -> None:
    assert get_declared("default", "before") is None


class MixinTest(HipqTestCase, TestCase):
    """With unittest; the second test finds neither the partner nor the moved clock."""

    def test_a(self) -> None:
        hipq.task(name="of_a_test")(lambda: None)
        self.partner("ask", "paid")
        job = hipq.enqueue("ask")
        testing.run_for(days=2)
        testing.assert_finished(job, result="paid")

    def test_b(self) -> None:
        assert clock.shift() == timedelta()
        assert get_declared("default", "of_a_test") is None
        job = hipq.enqueue("ask")
        testing.drain()
        job.refresh_from_db()
        assert job.is_awaiting_answer


@pytest.mark.django_db(transaction=True)
def test_async_tests(sell: str) -> None:
    async def run() -> Job:
        job = await hipq.aenqueue("sell")
        await testing.adrain()
        testing.partner("sell", 1)
        await testing.arun_for(seconds=1)
        return await testing.aassert_finished(job, result=1)

    assert async_to_sync(run)().is_final


@pytest.mark.django_db(transaction=True)
def test_blocks_in_async_tests(declare: Declare) -> None:
    echo = declare.task("tell")(lambda text: text)

    async def run() -> list[str]:
        async with testing.aimmediate():
            job = await echo.aenqueue("hello")
            await testing.aassert_finished(job, result="hello")
        async with testing.acaptured_signals() as sent:
            await echo.aenqueue("you")
            with pytest.raises(ZeroDivisionError):
                async with testing.aimmediate():
                    raise ZeroDivisionError
        return [name for name, _ in sent]

    assert async_to_sync(run)() == ["job_enqueued"]


def test_other_instances(settings: Settings, declare: Declare) -> None:
    settings.HIPQ = {"default": {}, "second": {}}
    declare("note", instance="second")(lambda job: "noted")
    job = hipq.enqueue("note", instance="second", delay=60)

    testing.run_for(minutes=2)
    testing.assert_waiting(job)
    testing.run_for(minutes=2, instance="second")
    testing.assert_finished(job, result="noted")


def test_the_plugin_loads_nothing_by_itself() -> None:
    """It is found wherever the package is installed, also by projects that do not use it."""
    code = "import sys, pytest_hipq_django; print('django.db' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


ANOTHER_PROJECT = {
    "pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = shop_settings\n",
    "shop_settings.py": """
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "hipq_django"]
        USE_TZ = True
    """,
    "test_shop.py": """
        import pytest
        import hipq_django as hipq

        def test_that_comes_before_those_that_use_the_kit(db):
            with pytest.raises(hipq.InvalidJobTypeError, match="'charge_crad'"):
                hipq.enqueue("charge_crad")

        def test_that_uses_the_kit(hipq_jobs):
            assert hipq_jobs.drain() == 0
    """,
}


def run_pytest(folder: Path, files: dict[str, str]) -> str:
    """Run pytest as another project does; return what it prints."""
    for name, text in files.items():
        (folder / name).write_text(dedent(text))
    own = ("PYTEST_", "HIPQ_", "DJANGO_SETTINGS_MODULE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", folder, folder],
        cwd=folder,
        env=environment | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.processes
def test_a_misspelt_name_is_an_error_whatever_test_comes_first(tmp_path: Path) -> None:
    assert " 2 passed" in run_pytest(tmp_path, ANOTHER_PROJECT)


def test_a_job_that_does_nothing_asks_little(
    declare: Declare, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    """With the statements that begin and end transactions; about a millisecond on SQLite."""
    nothing = declare.task("nothing")(lambda: None)
    testing.drain()
    hipq.enqueue_many(nothing.new() for _ in range(100))
    of_a_job, of_the_rest = 13, 35

    with django_assert_max_num_queries(100 * of_a_job + of_the_rest):
        testing.drain()


def test_a_frozen_time_comes_past_deadlines_too(declare: Declare) -> None:
    declare("quote", timeout=60, retry=hipq.Fixed(10, max_attempts=3))(lambda job: hipq.WAIT)
    with time_machine.travel(datetime(2025, 1, 6, 12, tzinfo=UTC), tick=False):
        job = hipq.enqueue("quote")
        testing.run_for(minutes=10)

        assert testing.assert_finished(job, "timed_out").attempt == 3
        testing.reset()


def test_a_partner_may_be_late_for_a_job_that_has_ended(declare: Declare) -> None:
    declare("quote", timeout=60)(lambda job: hipq.WAIT)
    testing.partner("quote", "paid").late()
    job = hipq.enqueue("quote")

    testing.run_for(hours=1)

    testing.assert_finished(job, "timed_out")
    assert Answer.objects.get().status == "late"
