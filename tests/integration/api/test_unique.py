"""At most one job with the same arguments: live, waiting, or kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from asgiref.sync import async_to_sync

import hipq_django as hipq
from hipq_django.models import Batch, Job, Link
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

SCOPES = ["live", "waiting", "kept"]


def index(shop: str, page: int = 1) -> None:
    """Index a page of a shop."""


def start(job: Job) -> None:
    HandWorker().run_pass()


def remove(job: Job) -> None:
    job.delete(using=job.using)


@pytest.mark.conformance
@pytest.mark.parametrize("scope", SCOPES)
def test_the_second_enqueue_returns_the_first_job(declare: Declare, scope: Any) -> None:
    task = declare.task("index", unique=scope)(index)

    first = task.enqueue("berlin")
    second = task.enqueue(shop="berlin")
    other = task.enqueue("paris")

    assert (second, second.conflict) == (first, True)
    assert (other.conflict, first.conflict) == (False, False)
    assert Job.objects.count() == 2


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("scope", "end"),
    [
        ("live", hipq.cancel),
        ("waiting", start),
        ("kept", remove),
    ],
)
def test_the_place_is_free_when_its_job_is_over(declare: Declare, scope: Any, end: Any) -> None:
    task = declare.task("index", unique=scope)(index)
    first = task.enqueue("berlin")

    end(first)
    second = task.enqueue("berlin")

    assert second.pk != first.pk
    assert not second.conflict


def test_only_some_arguments_may_count(declare: Declare) -> None:
    task = declare.task("index", unique="live", unique_on=["shop"])(index)

    assert task.enqueue("berlin", 1) == task.enqueue("berlin", 2)
    assert task.enqueue("paris", 1) != task.enqueue("berlin", 2)


def test_a_key_may_be_given_in_place_of_the_arguments(declare: Declare) -> None:
    task = declare.task("index", unique="kept")(index)

    first = task.using(unique_key="2026-11-22").enqueue("berlin")
    second = task.using(unique_key="2026-11-22").enqueue("paris")

    assert second == first
    assert task.using(unique_key="2026-11-23").enqueue("paris") != first


def test_an_own_job_key_wins(declare: Declare) -> None:
    task = declare.task("index", unique="live")(index)

    one = task.using(job_key="a").enqueue("berlin")
    other = task.using(job_key="b").enqueue("berlin")
    again = task.using(job_key="a").enqueue("berlin")

    assert one != other
    assert again == one


@pytest.mark.conformance
@pytest.mark.parametrize("scope", SCOPES)
def test_many_that_are_requeued_leave_out_those_whose_place_is_taken(
    declare: Declare, scope: Any
) -> None:
    task = declare.task("index", unique=scope)(index)
    task.enqueue("berlin")
    run_due_jobs()
    if scope != "kept":
        task.enqueue("berlin")
        run_due_jobs()

    result = hipq.requeue_many(Job.objects.filter(state="final"))

    left_out = {} if scope == "kept" else {"its key is in use": 1}
    assert (result.done, result.skipped) == (1, left_out)


@pytest.mark.conformance
@pytest.mark.parametrize("scope", ["live", "waiting"])
def test_the_waiting_job_may_be_replaced(declare: Declare, scope: Any) -> None:
    task = declare.task("index", unique=scope)(index)
    first = task.enqueue("berlin")

    second = task.using(on_conflict="replace", priority=5).enqueue("berlin")

    first.refresh_from_db()
    assert (first.outcome, second.priority) == ("cancelled", 5)


def test_a_kept_job_is_not_replaced(declare: Declare) -> None:
    task = declare.task("index", unique="kept")(index)
    task.enqueue("berlin")

    with pytest.raises(hipq.InvalidJobError, match="'replace' is not for unique='kept'"):
        task.using(on_conflict="replace").enqueue("berlin")


@pytest.mark.conformance
@pytest.mark.parametrize("scope", SCOPES)
def test_many_raise_or_return(declare: Declare, scope: Any) -> None:
    task = declare.task("index", unique=scope)(index)
    first = task.enqueue("berlin")
    new = [task.new(shop) for shop in ("paris", "berlin", "rome", "paris")]

    with pytest.raises(hipq.DuplicateJobKeyError):
        hipq.enqueue_many(new)
    assert Job.objects.count() == 1

    paris, berlin, rome, again = hipq.enqueue_many(new, on_conflict="return")

    assert (berlin, again) == (first, paris)
    assert berlin.conflict
    assert not rome.conflict
    assert Job.objects.count() == 3
    with pytest.raises(hipq.InvalidJobError, match="give 'raise' or 'return'"):
        hipq.enqueue_many(new, on_conflict="replace")


# Together with after and batch


def enqueue_one(using: Any) -> Job:
    job: Job = using.enqueue("berlin")
    return job


def enqueue_among_many(using: Any) -> list[Job]:
    return hipq.enqueue_many([hipq.NewJob("ask"), using.new("berlin")], on_conflict="return")


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("scope", "existing"),
    [("live", {}), ("waiting", {"after": "one"}), ("kept", {"after": "both", "on": "final"})],
)
@pytest.mark.parametrize(
    "enqueue",
    [enqueue_one, enqueue_among_many],
    ids=["one", "many"],
)
def test_a_job_that_does_not_follow_them_is_not_returned(
    declare: Declare, scope: Any, existing: dict[str, Any], enqueue: Any
) -> None:
    """Who gets it would take it for one that waits for them."""
    task = declare.task("index", unique=scope)(index)
    one, other = hipq.enqueue("ask"), hipq.enqueue("ask")
    after = {"one": [one], "both": [one, other]}
    had = {name: after.get(value, value) for name, value in existing.items()}
    first = task.using(**had).enqueue("berlin")
    wanted = task.using(after=[one, other], on="succeeded")
    links = Link.objects.count()

    with pytest.raises(hipq.DuplicateJobKeyError) as raised:
        enqueue(wanted)

    missing = other if existing == {"after": "one"} else one
    assert f"does not follow job {missing.pk} with on='succeeded'" in str(raised.value)
    assert raised.value.job == first
    assert (Job.objects.count(), Link.objects.count()) == (3, links)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_batch_returns_the_member_that_is_there(declare: Declare, scope: Any) -> None:
    task = declare.task("index", unique=scope)(index)
    outside = task.enqueue("berlin")

    with hipq.batch(then=hipq.NewJob("echo")) as batch:
        member = batch.enqueue(task.new("paris"))
        again = batch.enqueue(task.new("paris"))
        many = batch.enqueue_many([task.new("paris")] * 2, on_conflict="return")
        with pytest.raises(hipq.DuplicateJobKeyError) as raised:
            batch.enqueue(task.new("berlin"))
        assert raised.value.job == outside
        assert f"is no job of batch {batch.pk}, so it cannot be returned" in str(raised.value)

    assert (again, again.conflict) == (member, True)
    assert many == [member, member]
    assert [*batch.jobs.all()] == [member]


@pytest.mark.django_db(transaction=True)
def test_a_batch_in_async_code_returns_the_member_that_is_there(declare: Declare) -> None:
    task = declare.task("index", unique="live")(index)
    outside = task.enqueue("rome")

    async def load() -> None:
        async with hipq.abatch("load", then=hipq.NewJob("ask")) as batch:
            await batch.aenqueue(task.new("paris"))
            await batch.aenqueue(task.new("paris"))
            await batch.aenqueue_many([task.new("berlin"), hipq.NewJob("echo")])
            await batch.aenqueue(task.new("rome"), on_conflict="replace")

    async_to_sync(load)()

    batch = Batch.objects.get(name="load")
    data = batch.jobs.order_by("pk").values_list("job_data", flat=True)
    assert list(data) == [{"shop": "paris"}, {"shop": "berlin"}, {}, {"shop": "rome"}]
    assert Job.objects.filter(job_type__name="ask").exclude(hold_time=None).count() == 1
    outside.refresh_from_db()
    assert outside.outcome == "cancelled"


def batch_then(new: hipq.NewJob) -> None:
    with hipq.batch(then=new):
        pass


def batch_of(new: Sequence[hipq.NewJob]) -> None:
    with hipq.batch() as batch:
        batch.enqueue_many(new)


CALLS: dict[str, Any] = {
    "enqueue": lambda new: hipq.enqueue("index", new.job_data, on_conflict="raise"),
    "enqueue_many": lambda new: hipq.enqueue_many([new]),
    "chain": hipq.chain,
    "batch": batch_then,
    "batch.enqueue_many": lambda new: batch_of([new]),
}


@pytest.mark.parametrize(
    ("scope", "word"), [("live", "a live job"), ("waiting", "a job that waits"), ("kept", "a job")]
)
def test_what_refuses_a_second_one_says_what_is_the_same(
    declare: Declare, scope: Any, word: str
) -> None:
    """Not the digest, which nobody has ever seen."""
    task = declare.task("index", unique=scope)(index)
    holder = task.enqueue("berlin")

    for verb, call in CALLS.items():
        text = said(lambda call=call: call(task.new("berlin")))
        same = f"{verb}: job type 'index' has {word} with the same arguments: job {holder.pk} is"
        assert text.startswith(same)


def test_two_alike_in_one_call_are_named_by_what_was_called(declare: Declare) -> None:
    task = declare.task("index", unique="live")(index)
    two = [task.new("berlin"), task.new("berlin")]
    same = "two of the jobs of type 'index' have the same arguments; nothing was created."

    assert said(lambda: hipq.enqueue_many(two)).startswith(f"enqueue_many: {same}")
    assert said(lambda: hipq.chain(*two)).startswith(f"chain: {same}")
    assert said(lambda: batch_of(two)).startswith(f"batch.enqueue_many: {same}")
    assert not Job.objects.exists()


def said(call: Any) -> str:
    with pytest.raises(hipq.DuplicateJobKeyError) as raised:
        call()
    return str(raised.value)


def test_a_requeued_kept_job_leaves_the_place_to_the_first(declare: Declare) -> None:
    task = declare.task("index", unique="kept")(index)
    first = task.enqueue("berlin")
    run_due_jobs()

    fresh = hipq.requeue(first)

    assert fresh.kept_key is None
    assert task.enqueue("berlin") == first


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unique": "lives"}, "unique='lives' is unknown, did you mean 'live'"),
        ({"unique_on": ["shop"]}, "without unique; add unique='live'"),
        ({"unique": "live", "unique_on": "shop"}, 'give a list of names, ["shop"]'),
        ({"unique": "live", "unique_on": ["shp"]}, "'shp', which is no argument, did you mean"),
    ],
)
def test_what_cannot_be_unique_is_refused(declare: Declare, options: Any, said: str) -> None:
    with pytest.raises(hipq.InvalidJobTypeError) as raised:
        declare.task("index", **options)(index)

    assert said in str(raised.value)


def test_a_unique_key_is_for_unique_jobs(declare: Declare) -> None:
    plain = declare.task("index")(index)
    unique = declare.task("index_once", unique="kept")(index)

    with pytest.raises(hipq.InvalidJobError, match="unique_key is given, but its jobs are not"):
        plain.using(unique_key="a").enqueue("berlin")
    with pytest.raises(hipq.InvalidJobError, match="unique_key 7: give text"):
        unique.using(unique_key=7).enqueue("berlin")  # type: ignore[arg-type]  # what is refused
    assert not Job.objects.exists()


@pytest.mark.parametrize("data", [[1], {"shp": 1}])
def test_data_without_what_is_compared_do_not_all_count_as_one_job(
    declare: Declare, data: Any
) -> None:
    declare("sync", unique=True, unique_on=["shop"])(lambda job: None)

    with pytest.raises(hipq.InvalidJobError, match="has none of them"):
        hipq.enqueue("sync", data)
    first = hipq.enqueue("sync", data, unique_key="first")
    second = hipq.enqueue("sync", data, unique_key="second")
    assert first != second


def test_a_process_without_its_code_returns_the_unique_job_that_there_is(
    declare: Declare,
) -> None:
    declare("sync", unique="live", unique_on=["shop"])(lambda job: None)
    first = hipq.enqueue("sync", {"shop": 1, "by": "a"})
    declare.forget_all()

    second = hipq.enqueue("sync", {"shop": 1, "by": "b"})
    assert (second.pk, second.conflict) == (first.pk, True)
    assert hipq.enqueue("sync", {"shop": 2}).pk != first.pk
    with pytest.raises(hipq.DuplicateJobKeyError, match="the same arguments"):
        hipq.enqueue("sync", {"shop": 1}, on_conflict="raise")
    with pytest.raises(hipq.InvalidJobError, match="unique_on names shop"):
        hipq.enqueue("sync", {"by": "b"})
