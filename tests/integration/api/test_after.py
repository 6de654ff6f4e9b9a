"""Jobs that come after others: held, released, and cancelled with what they follow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.api import pages
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import recovery
from hipq_django.maintenance.retention import prune
from hipq_django.models import Batch, Job, Link
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@pytest.fixture
def step(declare: Declare) -> Any:
    """A task that notes its name, and fails where it is told to."""

    @declare.task("step")
    def step(name: str, *, fails: bool = False, inputs: list[Any] = hipq.INPUTS) -> str:
        ran.append((name, list(inputs)))
        if fails:
            raise ValueError(name)
        return name.upper()

    return step


def row(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def time_out(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(deadline=timezone.now() - timedelta(seconds=1))
    assert recovery.time_out_overdue(get_instance()) == 1


def outcomes(*jobs: Job) -> list[str]:
    return [row(job).outcome for job in jobs]


# After


@pytest.mark.conformance
def test_a_job_waits_until_the_ones_before_have_succeeded(step: Any) -> None:
    a, b = step.enqueue("a"), step.using(delay=60).enqueue("b")
    c = step.using(after=[a, b.pk, a]).enqueue("c")
    run_due_jobs()

    assert ran == [("a", [])]
    assert row(c).hold_time is not None
    assert [reason.code for reason in hipq.explain(c)][-1] == "waits_for_jobs"
    assert f"job {b.pk}" in hipq.explain(c)[-1].text
    assert f"job {a.pk}" not in hipq.explain(c)[-1].text

    hipq.run_now(b)
    run_due_jobs()

    assert ran[-1] == ("c", ["A", "B"])
    assert outcomes(a, b, c) == ["succeeded"] * 3
    assert [(job.pk, result) for job, result in row(c).inputs()] == [(a.pk, "A"), (b.pk, "B")]
    assert step.using(after=[a]).enqueue("d").hold_time is None


@pytest.mark.django_db(transaction=True)
def test_an_async_handler_reads_its_inputs(step: Any, declare: Declare) -> None:
    seen: list[Any] = []

    @declare("collect")
    async def collect(job: Job) -> None:
        seen.append([(needed.pk, result) async for needed, result in job.ainputs()])
        seen.append(await job.afirst_inputs(1))

    a, b = step.enqueue("a"), step.enqueue("b")
    hipq.enqueue("collect", after=[a, b])
    run_due_jobs()

    assert seen == [[(a.pk, "A"), (b.pk, "B")], ["A"]]


@pytest.mark.conformance
def test_what_many_jobs_follow_is_read_at_once(step: Any) -> None:
    before = [step.enqueue(f"a{number}") for number in range(4)]

    def follow(kind: str, count: int) -> list[hipq.NewJob]:
        return [
            step.using(job_key=f"{kind}{number}", after=before[number % 2 :]).new(kind)
            for number in range(count)
        ]

    def statements(new: list[hipq.NewJob]) -> int:
        with CaptureQueriesContext(connection) as asked:
            hipq.enqueue_many(new, on_conflict="return")
        return len(asked)

    statements(follow("x", 2))  # reads and stores what is read and stored only once
    few, many = follow("few", 2), follow("many", 20)
    assert statements(few) == statements(many)
    assert statements(few) == statements(many)  # once more, all are found
    assert Link.objects.filter(job__job_key__startswith="many").count() == 70


def test_one_of_many_that_could_never_begin_lets_none_be_created(step: Any) -> None:
    before, gone = step.enqueue("a"), hipq.cancel(step.enqueue("b"))

    with pytest.raises(hipq.InvalidJobError, match=f"job {gone.pk} .* was cancelled"):
        hipq.enqueue_many([step.using(after=[each]).new("c") for each in (before, gone)])

    assert Job.objects.count() == 2


def test_its_own_time_counts_from_when_it_may_go_on(step: Any) -> None:
    a = step.enqueue("a")
    b = step.using(after=[a], delay=3_600).enqueue("b")
    wanted = b.hold_time
    run_due_jobs()

    assert (row(b).scheduled_run_time, row(b).hold_time) == (wanted, None)
    assert ran == [("a", [])]


@pytest.mark.conformance
@pytest.mark.parametrize("end", ["fails", "cancelled"])
def test_what_follows_a_job_without_success_is_cancelled(step: Any, end: str) -> None:
    a = step.using(delay=60).enqueue("a", fails=True)
    b = step.using(after=[a]).enqueue("b")
    c = step.using(after=[b]).enqueue("c")
    d = step.using(after=[a], on="final").enqueue("d")
    hipq.run_now(a) if end == "fails" else hipq.cancel(a)
    run_due_jobs()

    word = "failed" if end == "fails" else "was cancelled"
    assert outcomes(b, c, d) == ["cancelled", "cancelled", "succeeded"]
    assert row(b).error == f"job {a.pk} (step) {word}, which this job was to follow"
    assert row(c).error == f"job {b.pk} (step) was cancelled, which this job was to follow"
    assert ran[-1] == ("d", [None])


def test_after_a_job_that_has_failed_nothing_is_created(step: Any) -> None:
    a = step.enqueue("a", fails=True)
    run_due_jobs()

    with pytest.raises(hipq.InvalidJobError, match=r"job \d+ \(step\) failed, which this job was"):
        step.using(after=[a]).enqueue("b")
    assert step.using(after=[a], on="final").enqueue("c").hold_time is None


@pytest.mark.conformance
@pytest.mark.parametrize("verb", [hipq.complete, hipq.fail])
def test_an_answer_lets_no_job_overtake_what_it_follows(
    step: Any, declare: Declare, verb: Any
) -> None:
    @declare("asking_after", retry=hipq.Fixed(3_600, max_attempts=2), time_windows=["03:00-03:01"])
    def asking(job: Job) -> object:
        ran.append(job.job_key)
        return hipq.WAIT

    a = step.using(delay=60).enqueue("a")
    b = asking.enqueue(job_key="b", after=[a], delay=86_400)
    answer = verb(b, "charged")
    run_due_jobs()

    assert (answer.status, row(b).state, ran) == ("early", "initial", [])
    assert [reason.code for reason in hipq.explain(b)][-1] == "waits_for_jobs"
    hipq.run_now(a)
    run_due_jobs()
    assert ran == [("a", [])]
    assert row(b).state == ("final" if verb is hipq.complete else "retry")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"after": 7}, "after=7: give a list of jobs"),
        ({"after": [2**40]}, "which instance 'default' does not have"),
        ({"after": [], "on": "done"}, "on='done' is unknown"),
        ({"on": "final"}, "on='final' without after"),
        ({"after": range(1, 1_002)}, "after names 1,001 jobs, and at most 1,000 are taken"),
        ({"batch": 7}, "instance 'default' has no batch 7; give a batch, or the id of one"),
    ],
)
def test_what_cannot_be_followed_is_refused(step: Any, options: Any, said: str) -> None:
    with pytest.raises(hipq.InvalidJobError) as raised:
        step.using(**options).enqueue("b")

    assert said in str(raised.value)
    assert not Job.objects.exists()


@pytest.mark.conformance
def test_held_jobs_are_hidden_from_claims_in_every_order(step: Any, configure_queue: Any) -> None:
    for order in ("priority", "ageing", "time"):
        configure_queue(ORDER=order)
        a = step.using(delay=60).enqueue("a")
        b = step.using(after=[a], priority=-1_000).enqueue("b")

        assert HandWorker().run_pass() == []
        assert row(b).state == "initial"
        hipq.cancel(a)
        run_due_jobs()


# Verbs on held jobs


@pytest.mark.conformance
def test_reschedule_and_reprioritize_leave_it_waiting(step: Any) -> None:
    a = step.using(delay=60).enqueue("a")
    b = step.using(after=[a]).enqueue("b")
    later = timezone.now() + timedelta(days=1)

    hipq.reschedule(b, later)
    hipq.reprioritize(b, 7)
    assert "waits_for_jobs" in [reason.code for reason in hipq.explain(b)]
    hipq.run_now(a)
    run_due_jobs()

    assert (row(b).state, row(b).scheduled_run_time) == ("initial", later)
    assert row(b).rank == row(b).queue.ordering.rank(later, 7)


@pytest.mark.conformance
def test_run_now_drops_what_a_job_waits_for(step: Any) -> None:
    a = step.using(delay=60).enqueue("a")
    b = step.using(after=[a]).enqueue("b")

    hipq.run_now(b)
    run_due_jobs()

    assert ran == [("b", [])]
    assert not Link.objects.exists()


# Chains


@pytest.mark.conformance
def test_a_chain_is_all_or_nothing(step: Any) -> None:
    with pytest.raises(hipq.InvalidJobError, match="has after= or on= of its own"):
        hipq.chain(step.new("a"), step.using(after=[]).new("b"))
    with pytest.raises(hipq.DuplicateJobKeyError):
        hipq.chain(step.using(job_key="k").new("a"), step.using(job_key="k").new("b"))
    assert not Job.objects.exists()


# Batches


@pytest.mark.conformance
def test_then_starts_once_all_have_succeeded(step: Any) -> None:
    with hipq.batch("import 7", then=step.new("then"), always=step.new("always")) as batch:
        jobs = batch.enqueue_many(step.new(f"page {n}") for n in range(3))
        jobs.append(batch.enqueue(step.new("last")))
        jobs.append(step.using(batch=batch).enqueue("very last"))

    run_due_jobs()

    results = [name.upper() for name, _ in ran[:5]]
    assert len(results) == 5
    assert sorted(ran[5:]) == [("always", results), ("then", results)]
    assert list(batch.jobs.order_by("pk")) == jobs
    assert str(batch) == f"batch {batch.pk} (import 7)"


@pytest.mark.conformance
def test_then_is_cancelled_and_always_runs_where_one_fails(step: Any) -> None:
    with hipq.batch(then=step.new("then"), always=step.new("always")) as batch:
        batch.enqueue_many([step.new("a"), step.new("b", fails=True)])
    run_due_jobs()

    then = Job.objects.get(job_data__name="then")
    assert then.outcome == "cancelled"
    assert then.error == f"batch {batch.pk} has 1 job without success, which this job was to follow"
    assert ran[-1] == ("always", ["A", None])


@pytest.mark.conformance
def test_an_empty_batch_calls_back_at_once(step: Any) -> None:
    with hipq.batch(then=step.new("then")):
        pass
    run_due_jobs()

    assert ran == [("then", [])]


def test_a_block_that_raises_creates_nothing(step: Any) -> None:
    with pytest.raises(ZeroDivisionError), hipq.batch(then=step.new("then")) as batch:  # noqa: PT012 - the block is what is tested
        batch.enqueue(step.new("a"))
        1 / 0  # noqa: B018 - it raises

    assert not Job.objects.exists()
    assert not Batch.objects.exists()


@pytest.mark.conformance
def test_a_member_may_add_to_its_batch(step: Any, declare: Declare) -> None:
    @declare.task("split")
    def split(parts: int, *, job: Job = hipq.JOB) -> None:
        assert job.batch is not None
        job.batch.enqueue_many(step.new(f"part {n}") for n in range(parts))

    with hipq.batch(then=step.new("then")) as batch:
        batch.enqueue(split.new(2))
    run_due_jobs()

    assert [name for name, _ in ran] == ["part 0", "part 1", "then"]
    assert batch.jobs.count() == 3


@pytest.mark.django_db(transaction=True)
def test_a_member_may_add_to_its_batch_in_async_code(step: Any, declare: Declare) -> None:
    seen: list[Any] = []

    @declare("lead")
    async def lead(job: Job) -> None:
        batch = await job.abatch()
        if batch is None:
            seen.append(batch)
        else:
            await batch.aenqueue(step.new("member"))

    hipq.enqueue("lead")
    with hipq.batch(then=step.new("then")) as batch:
        batch.enqueue(hipq.NewJob("lead"))
    run_due_jobs()

    assert seen == [None]
    assert ran == [("member", []), ("then", [None, "MEMBER"])]


def test_nobody_else_may_add(step: Any, declare: Declare) -> None:
    @declare.task("intruder")
    def intruder(batch_id: int) -> None:
        step.using(batch=batch_id).enqueue("stray")

    with hipq.batch(then=step.new("then")) as batch:
        batch.enqueue(step.using(delay=60).new("a"))

    with pytest.raises(hipq.InvalidJobError, match="takes members from its own jobs only"):
        batch.enqueue(step.new("b"))
    job = intruder.enqueue(batch.pk)
    run_due_jobs()
    assert "takes members from its own jobs only" in row(job).error
    hipq.cancel_batch(batch)
    with pytest.raises(hipq.InvalidJobError, match="has ended; begin another one"):
        batch.enqueue(step.new("b"))


def test_what_cannot_follow_a_batch_is_refused_before_its_jobs_are_made(step: Any) -> None:
    new = step.using(after=[step.enqueue("a")]).new("b")

    with pytest.raises(hipq.InvalidJobError), hipq.batch(then=new):
        pytest.fail("the block was reached")


@pytest.mark.django_db(transaction=True)
def test_an_async_batch_enqueues_what_its_jobs_were_when_they_were_added(step: Any) -> None:
    async def load() -> None:
        chunk, windows = [1, 2], ["mon 08:00-09:00"]
        first = await step.aenqueue("a")
        after = [first]
        async with hipq.abatch() as batch:
            new = step.using(after=after, time_windows=windows).new(chunk)
            await batch.aenqueue(new)
            await batch.aenqueue_many([hipq.NewJob("step", {"name": chunk})])
            new.priority = 7
            for given in (chunk, windows, after):
                given.clear()

    async_to_sync(load)()

    bound, plain = Job.objects.exclude(batch=None).order_by("pk")
    assert bound.job_data == plain.job_data == {"name": [1, 2]}
    assert (bound.time_windows, bound.priority) == (["mon 08:00-09:00"], 100)
    assert bound.hold_time


@pytest.mark.parametrize("over", [hipq.cancel, time_out])
def test_a_handler_whose_attempt_is_over_adds_nothing(
    step: Any, declare: Declare, over: Callable[[Job], object]
) -> None:
    refused: list[str] = []

    @declare.task("slow", retry=hipq.Fixed(0))
    def slow(*, job: Job = hipq.JOB) -> None:
        assert job.batch is not None
        with pytest.raises(hipq.InvalidJobError) as raised:
            job.batch.enqueue(step.new("late"))
        refused.append(str(raised.value))

    with hipq.batch(then=step.new("then")) as batch:
        job = batch.enqueue(slow.new())
    worker = HandWorker()
    worker.run_pass()

    over(row(job))
    worker.execute()

    said = f"batch {batch.pk} takes no more jobs from job {job.pk}, whose attempt is over."
    assert refused == [said]
    assert list(batch.jobs.all()) == [job]


@pytest.mark.conformance
def test_a_batch_is_cancelled_with_what_was_to_follow(step: Any) -> None:
    with hipq.batch("b", then=step.new("then"), always=step.new("always")) as batch:
        batch.enqueue_many([step.new("a"), step.using(delay=60).new("b")])
    HandWorker().run_pass()

    assert hipq.cancel_batch(batch, "not wanted") == 3
    run_due_jobs()

    assert set(batch.jobs.values_list("outcome", "error")) == {("cancelled", "not wanted")}
    assert Job.objects.get(job_data__name="then").error == "not wanted"
    assert ran == [("always", [None, None])]
    assert hipq.cancel_batch(batch.pk) == 0
    with pytest.raises(hipq.InvalidJobError, match=f"has no batch {batch.pk + 1}"):
        hipq.cancel_batch(batch.pk + 1)
    with pytest.raises(hipq.InvalidJobError, match="give a batch, or the id of one"):
        hipq.cancel_batch("x")  # type: ignore[arg-type]  # what is refused


def test_a_batch_with_a_name_that_cannot_be_stored_is_refused(step: Any) -> None:
    with (
        pytest.raises(hipq.InvalidJobError, match="give text of at most 200"),
        hipq.batch("x" * 201),
    ):
        pass


def test_a_batch_takes_jobs_of_its_own_instance_only(step: Any, settings: Settings) -> None:
    settings.HIPQ = {"default": {}, "mailing": {}}

    with (
        pytest.raises(hipq.InvalidJobError, match="instance 'mailing' has no batch"),
        hipq.batch() as batch,
    ):
        hipq.enqueue("step", {"name": "a"}, batch=batch, instance="mailing")


# Once more


@pytest.mark.conformance
def test_a_chain_goes_on_from_the_failed_step(step: Any) -> None:
    a, b, c, d = hipq.chain(step.new("a"), step.new("b", fails=True), step.new("c"), step.new("d"))
    run_due_jobs()
    Job.objects.filter(pk=b.pk)
    ran.clear()

    fresh = hipq.requeue(row(b), dependents=True)
    Job.objects.filter(pk=fresh.pk).update(job_data={"name": "b2"})
    run_due_jobs()

    assert ran == [("b2", ["A"]), ("c", ["B2"]), ("d", ["C"])]
    assert outcomes(c, d) == ["cancelled", "cancelled"]
    assert row(c).successors.get().outcome == "succeeded"
    assert a.successors.count() == 0


def test_of_very_many_inputs_the_first_ten_thousand_are_an_argument(
    step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others can still be read from the job."""
    assert Job.first_inputs.__defaults__ == (10_000,)
    monkeypatch.setattr(Job.first_inputs, "__defaults__", (2,))
    job = step.using(after=[step.enqueue(name) for name in "abc"]).enqueue("after")

    run_due_jobs()

    assert ran[-1] == ("after", ["A", "B"])
    assert [result for _, result in row(job).inputs()] == ["A", "B", "C"]


def test_a_requeued_job_follows_what_was_requeued_before_it(step: Any) -> None:
    a = hipq.cancel(step.enqueue("a"))
    b = step.using(after=[a], on="final").enqueue("b", fails=True)
    run_due_jobs()
    ran.clear()
    hipq.requeue(hipq.cancel(hipq.requeue(a)))

    again = hipq.requeue(row(b))
    assert [reason.code for reason in hipq.explain(again)][-1] == "waits_for_jobs"
    run_due_jobs()

    assert ran == [("a", []), ("b", ["A"])]
    assert [result for _, result in row(again).inputs()] == ["A"]


@pytest.mark.conformance
@pytest.mark.parametrize(("succeeds", "page_size"), [(False, 1), (True, 300)])
def test_a_chain_whose_jobs_are_requeued_together_is_a_chain_again(
    step: Any, monkeypatch: pytest.MonkeyPatch, *, succeeds: bool, page_size: int
) -> None:
    monkeypatch.setattr(pages, "PAGE_SIZE", page_size)
    jobs = hipq.chain(step.new("a"), step.new("b"), step.new("c"))
    if not succeeds:
        hipq.cancel(jobs[0])
    run_due_jobs()
    ran.clear()

    done = hipq.requeue_many(Job.objects.filter(pk__in=[job.pk for job in jobs]))
    assert [job.hold_time is None for job in Job.objects.live()] == [True, False, False]
    run_due_jobs()

    assert done.done == 3
    assert ran == [("a", []), ("b", ["A"]), ("c", ["B"])]


def test_a_requeued_job_waits_for_the_live_although_others_have_failed(step: Any) -> None:
    """Who requeues it knows of the failure; it is not cancelled because of that once more."""
    a, b = step.enqueue("a", fails=True), step.using(delay=60).enqueue("b")
    c = step.using(after=[a, b]).enqueue("c")
    run_due_jobs()
    ran.clear()

    again = hipq.requeue(row(c))
    run_due_jobs()
    assert (ran, outcomes(again)) == ([], ["NONE"])

    hipq.run_now(b)
    run_due_jobs()
    assert ran == [("b", []), ("c", [None, "B"])]


def test_what_somebody_cancelled_is_not_done_again(step: Any) -> None:
    a, b, c = hipq.chain(step.new("a", fails=True), step.new("b"), step.new("c"))
    hipq.cancel(c, "by hand")
    run_due_jobs()

    hipq.requeue(row(a), dependents=True)

    assert row(b).successors.count() == 1
    assert row(c).successors.count() == 0


def test_a_member_done_again_lets_then_start(step: Any) -> None:
    with hipq.batch(then=step.new("then"), always=step.new("always")) as batch:
        _, b = batch.enqueue_many([step.new("a"), step.new("b", fails=True)])
    run_due_jobs()
    ran.clear()

    fresh = hipq.requeue(row(b), dependents=True)
    Job.objects.filter(pk=fresh.pk).update(job_data={"name": "b2"})
    run_due_jobs()

    assert fresh.batch == batch
    assert ran == [("b2", []), ("then", ["A", "B2"])]


# Descendants


@pytest.mark.conformance
def test_a_job_is_cancelled_with_all_that_it_enqueued(step: Any, declare: Declare) -> None:
    @declare.task("spread")
    def spread(depth: int) -> None:
        step.using(delay=60).enqueue(f"leaf {depth}")
        if depth:
            spread.enqueue(depth - 1)

    top = spread.enqueue(2)
    other = step.using(delay=60).enqueue("other")
    run_due_jobs()

    with pytest.raises(hipq.InvalidJobError, match="is final"):
        hipq.cancel(row(top))
    hipq.cancel(row(top), "all of it", descendants=True)

    leaves = Job.objects.filter(job_data__name__startswith="leaf")
    assert set(leaves.values_list("outcome", "error")) == {("cancelled", "all of it")}
    assert row(top).outcome == "succeeded"
    assert row(other).state == "initial"


# Pruning


@pytest.mark.conformance
def test_what_a_live_job_waits_for_is_kept(step: Any) -> None:
    a = step.enqueue("a")
    b = step.using(delay=60).enqueue("b")
    c = step.using(after=[a, b]).enqueue("c")
    with hipq.batch(then=step.using(delay=60).new("then")) as batch:
        member = batch.enqueue(step.new("m"))
    run_due_jobs()

    prune(get_instance(), days=0)
    assert {job.pk for job in Job.objects.all()} >= {a.pk, b.pk, c.pk, member.pk}

    hipq.run_now(b)
    hipq.run_now(Job.objects.get(job_data__name="then"))
    run_due_jobs()
    prune(get_instance(), days=0)
    assert not Job.objects.exists()
    assert not Link.objects.exists()


def test_nothing_comes_after_a_job_of_another_instance(settings: Settings) -> None:
    settings.HIPQ = {"default": {}, "mailing": {}}
    foreign = hipq.enqueue("echo", instance="mailing")

    for named in (foreign, foreign.pk):
        with pytest.raises(hipq.InvalidJobError, match="which instance 'default' does not have"):
            hipq.enqueue("echo", after=[named])


@pytest.mark.django_db(databases=["default", "other"])
def test_nothing_comes_after_a_job_of_another_database() -> None:
    """There its id is that of another job."""
    own, foreign = hipq.enqueue("echo"), hipq.enqueue("echo", instance="other")
    foreign.pk = own.pk

    with pytest.raises(hipq.InvalidJobError, match="or is of another instance"):
        hipq.enqueue("echo", after=[foreign])

    assert Job.objects.count() == 1
