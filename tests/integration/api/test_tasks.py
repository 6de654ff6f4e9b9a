"""Plain functions as tasks: enqueued by arguments, called by a worker with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.exceptions import UnknownOptionError
from hipq_django.models import Job, JobType
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

calls: list[Any] = []


@pytest.fixture
def declare() -> Iterator[Declare]:
    calls.clear()
    declare = Declare()
    yield declare
    declare.forget_all()


def send(invoice_id: int, *, copy_to: list[str] | None = None) -> dict[str, Any]:
    """Send an invoice."""
    calls.append((invoice_id, copy_to))
    return {"sent": invoice_id}


def row(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


@pytest.mark.conformance
def test_a_task_runs_with_its_arguments(declare: Declare) -> None:
    task = declare.task("shop.send")(send)

    job = task.enqueue(42, copy_to=["a@b.example"])
    run_due_jobs()

    assert job.job_data == {"invoice_id": 42, "copy_to": ["a@b.example"]}
    assert calls == [(42, ["a@b.example"])]
    assert row(job).result == {"sent": 42}


def test_a_task_has_the_name_of_its_function() -> None:
    declared = hipq.task(send)
    try:
        assert declared.name == "tests.integration.api.test_tasks.send"
        assert declared.__doc__ == "Send an invoice."
    finally:
        hipq_forget(declared)


def hipq_forget(declared: Any) -> None:
    from hipq_django.job_types.registry import forget

    forget(declared)


def each(number: int) -> Iterator[int]:
    yield number


async def each_later(number: int) -> Any:
    yield number


def inside_a_function() -> Callable[[], None]:
    def inner() -> None:
        """Not found by its path."""

    return inner


def hidden(*args: Any) -> None: ...


hidden.__qualname__ = "wraps.<locals>.hidden"


def of_a_script() -> None: ...


of_a_script.__module__ = "__main__"


@pytest.mark.parametrize(
    ("function", "name", "said"),
    [
        (inside_a_function(), None, "is defined inside a function.*give it a name"),
        (hidden, None, r"use functools\.wraps"),
        (of_a_script, None, "move it to the module jobs of an app"),
        (7, None, "is not a function"),
        (each, "each", "is a generator, none of whose code runs"),
        (each_later, "each", "is a generator, none of whose code runs"),
    ],
)
def test_what_no_worker_could_call_is_no_task(function: Any, name: Any, said: str) -> None:
    with pytest.raises(hipq.InvalidJobTypeError, match=said):
        hipq.task(name=name)(function)


def test_calling_a_task_calls_the_function_and_nothing_else(declare: Declare) -> None:
    @declare.task("whoami")
    def whoami(name: str, job: Any = hipq.JOB, inputs: Any = hipq.INPUTS) -> Any:
        return name, job, inputs

    assert whoami("me") == ("me", None, [])
    assert whoami("me", job=7)[1] == 7
    assert whoami("me", 7, [8]) == ("me", 7, [8])
    assert not Job.objects.exists()


def test_a_task_that_is_called_gets_the_inputs_that_are_given_or_else_those_of_the_job(
    declare: Declare,
) -> None:
    @declare.task("total")
    def total(inputs: list[int] = hipq.INPUTS, job: Job = hipq.JOB) -> Any:
        return [sum(inputs), job.pk]

    @declare.task("atotal")
    async def atotal(inputs: list[int] = hipq.INPUTS, job: Job = hipq.JOB) -> Any:
        return total(inputs, job=job)

    @declare("acalls")
    async def acalls(job: Job) -> Any:
        return [await atotal(), await atotal([7]), await atotal(inputs=[8])]

    job = hipq.enqueue("acalls", after=[hipq.enqueue("echo", 5)])
    run_due_jobs()

    assert row(job).result == [[5, job.pk], [7, job.pk], [8, job.pk]]


def test_job_is_passed_because_it_is_asked_for(declare: Declare) -> None:
    @declare.task("whoami")
    def whoami(name: str, *, job: Job = hipq.JOB) -> Any:
        current = hipq.current_job()
        assert current is not None
        return [name, job.pk, current.pk]

    @declare.task("asks_whoami")
    def asks_whoami() -> Any:
        return whoami("you")  # a function's call: nothing is enqueued, and the job is the same

    job, other = whoami.enqueue("me"), asks_whoami.enqueue()
    run_due_jobs()

    assert row(job).result == ["me", job.pk, job.pk]
    assert row(other).result == ["you", other.pk, other.pk]
    assert hipq.current_job() is None


def test_an_async_task_runs_with_its_arguments_and_knows_its_job(declare: Declare) -> None:
    @declare.task("double")
    async def double(number: int) -> Any:
        current = hipq.current_job()
        return [2 * number, current.pk if current else None]

    job = async_to_sync(double.aenqueue)(21)
    run_due_jobs()

    assert row(job).result == [42, job.pk]


def test_options_of_a_job_go_by_using(declare: Declare) -> None:
    task = declare.task("shop.send")(send)

    job = task.using(priority=3, job_key="i-42", delay=3_600).enqueue(42)
    again = task.using(job_key="i-42", on_conflict="return").enqueue(42)

    assert (job.priority, job.job_key) == (3, "i-42")
    assert job.scheduled_run_time > job.create_time
    assert again == job
    with pytest.raises(UnknownOptionError, match="did you mean 'priority'"):
        task.using(priorty=3)  # type: ignore[call-arg]  # what is refused
    with pytest.raises(hipq.InvalidJobError, match="on_conflict= belongs to the call"):
        task.using(on_conflict="return").new(42)


def test_new_jobs_of_tasks_and_job_types_are_enqueued_together(declare: Declare) -> None:
    task, plain = declare.task("shop.send")(send), declare("charge_card")(lambda job: 1)

    jobs = hipq.enqueue_many(
        [task.new(1), task.using(priority=5).new(2), plain.new({"a": 1}), plain.using().new()]
    )
    run_due_jobs()

    assert [job.job_data for job in jobs] == [{"invoice_id": 1}, {"invoice_id": 2}, {"a": 1}, {}]
    assert sorted(calls) == [(1, None), (2, None)]
    twice = plain.using(priority=2, queue="slow").using(priority=3).enqueue({"b": 1}, job_key="k")
    assert (twice.priority, twice.queue.name, twice.job_key) == (3, "slow", "k")
    assert task.using(priority=2, delay=60).using(priority=3).enqueue(1).priority == 3


def test_options_are_no_arguments(declare: Declare) -> None:
    task = declare.task("shop.send")(send)

    with pytest.raises(hipq.ArgumentsError, match=r"option: send\.using\(job_key=…\)"):
        task.enqueue(1, job_key="k")


def test_arguments_are_converted_as_the_setting_says(declare: Declare, settings: Settings) -> None:
    pytest.importorskip("pydantic", reason="needs the extra pydantic")
    settings.HIPQ = {"default": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"}}

    @declare.task("wait")
    def wait(days: timedelta) -> float:
        return days.total_seconds()

    job = wait.enqueue(timedelta(days=1))
    by_name = hipq.enqueue("wait", {"days": "P2D"})
    run_due_jobs()

    assert job.job_data == {"days": "P1D"}
    assert (row(job).result, row(by_name).result) == (86_400.0, 172_800.0)
    with pytest.raises(hipq.ArgumentsError, match=r"wait: argument days: .*, not 'soon'"):
        hipq.enqueue("wait", {"days": "soon"})


# Response and retry handlers


def test_a_response_handler_takes_what_it_asks_for(declare: Declare) -> None:
    @declare.task("ask_bank")
    def ask_bank(order: int, note: str = "none") -> Any:
        return hipq.WAIT

    @ask_bank.on_response
    def store(response: Any, note: str, job: Job) -> Any:
        return [response, note, job.job_key]

    ask_bank.using(job_key="o-1").enqueue(1)
    run_due_jobs()
    ask_bank.complete("o-1", {"ok": True})
    run_due_jobs()

    assert Job.objects.get().result == [{"ok": True}, "none", "o-1"]


def test_a_retry_handler_takes_job_and_arguments(declare: Declare) -> None:
    @declare.task("fetch")
    def fetch(url: str) -> Any:
        raise OSError(url)

    @fetch.on_error
    def decide(job: Job, url: str) -> Any:
        calls.append((job.error, url))
        return hipq.GiveUp()

    fetch.enqueue("http://x.example")
    run_due_jobs()

    assert calls == [("OSError: http://x.example", "http://x.example")]


def test_a_handler_that_asks_for_what_is_not_there_is_refused(declare: Declare) -> None:
    task = declare.task("shop.send")(send)

    with pytest.raises(hipq.InvalidJobTypeError, match=r"respones.*did you mean 'response"):

        @task.on_response
        def store(respones: Any) -> None:
            """Misspelt."""

    assert task.response_handler is None


# Stored arguments that do not fit


def stored(data: Any) -> Job:
    """Return a job of the task as another release stored it."""
    job = hipq.enqueue("shop.send", {"invoice_id": 7})
    Job.objects.filter(pk=job.pk).update(job_data=data)
    return job


def asked_in_vain(invoice_id: int) -> None:
    calls.append(invoice_id)


@pytest.mark.parametrize(
    ("policy", "handler", "attempts"),
    [
        (None, None, 1),
        (hipq.Fixed(0, max_attempts=3), None, 3),
        (hipq.Fixed(0, max_attempts=3), asked_in_vain, 3),
    ],
)
def test_an_attempt_whose_arguments_do_not_fit_fails_and_the_policy_decides(
    declare: Declare, policy: hipq.Fixed | None, handler: Any, attempts: int
) -> None:
    """Also where the retry handler does not take the arguments."""
    task = declare.task("shop.send", retry=policy)(send)
    if handler:
        task.on_error(handler)
    job = stored({"invoce_id": 7})

    run_due_jobs()

    assert (row(job).outcome, row(job).attempt, calls) == ("failed", attempts, [])
    assert "takes no argument 'invoce_id'" in row(job).error


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "send_invoice: argument invoice_id is missing."),
        (
            {"invoce_id": 7},
            "send_invoice takes no argument 'invoce_id', did you mean 'invoice_id'?",
        ),
    ],
)
def test_bad_arguments_are_named_with_the_way_out(
    declare: Declare, given: dict[str, Any], said: str
) -> None:
    @declare.task("shop.jobs.send_invoice")
    def send_invoice(invoice_id: int, *, user: Any = None, at: Any = None) -> None: ...

    calls: list[Any] = [
        lambda: send_invoice.enqueue(**given),
        lambda: send_invoice.new(**given),
        lambda: async_to_sync(send_invoice.aenqueue)(**given),
        lambda: hipq.enqueue("shop.jobs.send_invoice", given),
    ]
    for call in calls:
        with pytest.raises(hipq.ArgumentsError) as raised:
            call()
        assert str(raised.value) == said
    assert {hipq.InvalidJobError, TypeError} <= set(hipq.ArgumentsError.__mro__)
    assert not Job.objects.exists()


# Parents


def test_a_job_that_is_enqueued_by_another_one_has_it_as_parent(declare: Declare) -> None:
    task = declare.task("shop.send")(send)

    @declare.task("fan_out")
    def fan_out() -> None:
        task.enqueue(1)
        hipq.enqueue_many([task.new(2), task.new(3)])
        task.using(job_key="k").enqueue(4)

    parent = fan_out.enqueue()
    run_due_jobs()

    children = Job.objects.filter(parent=parent).order_by("pk")
    assert [child.job_data["invoice_id"] for child in children] == [1, 2, 3, 4]
    assert row(parent).parent is None
    assert list(row(parent).children.order_by("pk")) == list(children)


# Aliases


def test_jobs_of_a_former_name_are_run_by_the_new_code(declare: Declare) -> None:
    before = declare.task("shop.old", sensitive=["invoice_id"])(send)
    job = before.enqueue(1)
    declare.forget_all()

    task = declare.task("shop.send", aliases=["shop.old"], sensitive=["invoice_id"])(send)
    new = task.enqueue(2)
    run_due_jobs()

    assert sorted(calls) == [(1, None), (2, None)]
    assert row(job).outcome == row(new).outcome == "succeeded"
    assert JobType.objects.get(name="shop.old").signature == task.signature


def test_answers_and_verbs_find_jobs_of_either_name(declare: Declare) -> None:
    for name in ("ask_old", "ask_older"):
        declare(name)(lambda job: hipq.WAIT)
        hipq.enqueue(name, job_key=name)
    declare.forget_all()
    declare("ask_new", aliases=["ask_old", "ask_older"])(lambda job: hipq.WAIT)
    run_due_jobs()

    by_new = hipq.complete("ask_new", "ask_old", 1)
    [by_old] = hipq.receive_many([hipq.NewAnswer("ask_old", "ask_older", response=2)])

    assert (by_new.status, by_old.status) == ("accepted", "accepted")
    assert set(Job.objects.values_list("outcome", flat=True)) == {"succeeded"}
    assert hipq.requeue("ask_new", "ask_old").job_type.name == "ask_old"
    assert hipq.cancel("ask_new", "ask_old").outcome == "cancelled"


def test_two_declarations_of_one_name_are_refused(declare: Declare) -> None:
    declare("quiz", aliases=["asked"])(lambda job: 1)

    cases: list[tuple[str, Any, str]] = [
        ("asked", [], "'asked' is declared twice"),
        ("other", ["quiz"], "'quiz' is declared twice"),
        ("other", ["asked"], "'asked' is declared twice"),
        ("other", ["other"], "has its own name as an alias"),
        ("other", "asked", r"give a list of names, \['asked'\]"),
    ]
    for name, aliases, said in cases:
        with pytest.raises(hipq.InvalidJobTypeError, match=said):
            declare(name, aliases=aliases)(send)


@pytest.mark.django_db(databases=["default", "other"])
def test_a_new_job_of_a_task_is_stored_in_the_instance_of_the_task(declare: Declare) -> None:
    @declare.task("foreign", instance="other")
    def foreign(number: int) -> None: ...

    for store in (
        lambda: hipq.enqueue_many([foreign.new(1)]),
        lambda: hipq.chain(foreign.new(1), foreign.new(2)),
        lambda: hipq.schedule("s", foreign.new(1), "0 2 * * *"),
    ):
        with pytest.raises(
            (hipq.InvalidJobError, hipq.InvalidScheduleError), match="instance 'other'"
        ):
            store()
    assert hipq.enqueue_many([foreign.new(1)], instance="other")
    assert not Job.objects.exists()
