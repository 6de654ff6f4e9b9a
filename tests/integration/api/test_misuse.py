"""What is easily given by mistake is refused by an error that says what to give."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync

import hipq_django as hipq
from hipq_django import flow
from hipq_django.exceptions import HipqError, InvalidJobTypeError, UnknownOptionError
from hipq_django.models import Answer, Job
from tests.declaring import Declare

pytestmark = pytest.mark.django_db


async def new_jobs() -> AsyncIterator[hipq.NewJob]:
    yield hipq.NewJob("echo")


def in_batch(jobs: Any) -> None:
    with hipq.batch() as made:
        made.enqueue_many(jobs)


async def in_abatch(jobs: Any) -> None:
    async with hipq.abatch() as made:
        await made.aenqueue_many(jobs)


@pytest.mark.parametrize(
    ("verb", "enqueue"),
    [
        ("enqueue_many", hipq.enqueue_many),
        ("enqueue_many", async_to_sync(hipq.aenqueue_many)),
        ("batch.enqueue_many", in_batch),
        ("batch.aenqueue_many", async_to_sync(in_abatch)),
    ],
    ids=["enqueue_many", "aenqueue_many", "batch", "abatch"],
)
@pytest.mark.parametrize(
    ("jobs", "wanted"),
    [
        (
            lambda: hipq.NewJob("echo"),
            r"type NewJob is no list of jobs; give \[task\.new\(…\), …\]",
        ),
        (new_jobs, r"type async_generator is no list of jobs; give \[new async for new in …\]"),
    ],
    ids=["one", "async"],
)
def test_what_is_no_list_of_jobs(
    verb: str, enqueue: Callable[[Any], object], jobs: Callable[[], Any], wanted: str
) -> None:
    with pytest.raises(hipq.InvalidJobError, match=rf"^{verb}: an object of {wanted}"):
        enqueue(jobs())

    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("answers", "kind"), [([1], "int"), (1, "int"), ([hipq.NewJob("echo")], "NewJob")]
)
def test_what_is_no_answer(answers: Any, kind: str) -> None:
    said = rf"^receive_many: an object of type {kind} is given; give \[NewAnswer\("
    with pytest.raises(hipq.InvalidAnswerError, match=said):
        hipq.receive_many(answers)

    assert not Answer.objects.exists()


@pytest.mark.parametrize("join", ["union", "intersection", "difference"])
@pytest.mark.parametrize("verb", [hipq.cancel_many, hipq.run_now_many, hipq.requeue_many])
def test_querysets_that_are_joined(verb: Any, join: str) -> None:
    hipq.enqueue("echo")
    jobs = getattr(Job.objects.filter(job_key="a"), join)(Job.objects.filter(priority=100))

    with pytest.raises(hipq.InvalidJobError, match=rf"^{verb.__name__}: a {join} of querysets"):
        verb(jobs)


@pytest.mark.parametrize("decorator", ["on_response", "on_error"])
def test_what_is_no_handler(declare: Declare, decorator: str) -> None:
    task = declare.task("pay")(lambda order: None)

    with pytest.raises(InvalidJobTypeError, match="job type 'pay': handler 5 is not a function"):
        getattr(task, decorator)(5)


def duplicate() -> None:
    hipq.enqueue("echo", job_key="k")
    hipq.enqueue("echo", job_key="k")


def alias_taken() -> None:
    flow.start("t.double", alias="a", run=False)
    flow.start("t.double", alias="a", run=False)


ERRORS: list[Callable[[], Any]] = [
    duplicate,
    alias_taken,
    lambda: hipq.get_result(hipq.enqueue("echo")),
    lambda: hipq.get_result(hipq.cancel(hipq.enqueue("echo"))),
    lambda: hipq.enqueue("echo", prority=1),  # type: ignore[call-arg]  # misspelt
    lambda: flow.start({"nodes": {"a": {"component": "nobody.knows"}}}),
]


@pytest.mark.parametrize(
    "raise_it", ERRORS, ids=["duplicate", "alias", "not_finished", "failed", "option", "graph"]
)
def test_errors_survive_a_pickle(raise_it: Callable[[], Any]) -> None:
    with pytest.raises(HipqError) as raised:
        raise_it()
    raised.value.add_note("in the shop")
    again = pickle.loads(pickle.dumps(raised.value))

    assert (type(again), str(again)) == (raised.type, str(raised.value))
    assert again.__notes__ == ["in the shop"]
    for name in ("job", "node", "problems"):
        assert getattr(again, name, None) == getattr(raised.value, name, None)


def test_an_error_that_names_its_verb_keeps_that() -> None:
    error = UnknownOptionError("enqueue", "prority", ["priority"])
    error.args = (f"batch: {error}",)

    assert str(pickle.loads(pickle.dumps(error))) == str(error)
