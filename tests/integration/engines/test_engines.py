"""All engines say the same on the same rows."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, transaction
from django.forms import model_to_dict
from django.test import override_settings
from django.utils import timezone
from hypothesis import HealthCheck, given, settings, strategies as st

import hipq_django as hipq
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.ordering import MAX_RANK, Order
from hipq_django.domain.states import NONE
from hipq_django.domain.throttling import RunningJob, admit_by_weight
from hipq_django.engines import engine_for
from hipq_django.engines.base import Engine
from hipq_django.engines.sql import SqlEngine
from hipq_django.engines.values import ClaimRequest, Concluded, Failing, ScanBounds, Which
from hipq_django.models import (
    Answer,
    Attempt,
    Job,
    JobType,
    Queue,
    Schedule,
    ScheduleRun,
    Worker,
)
from tests.factories import AnswerFactory, ScheduleFactory
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


@pytest.fixture(params=["orm", pytest.param("sql", marks=pytest.mark.fast)])
def engine(request: pytest.FixtureRequest) -> Engine:
    """The implementation under test."""
    made = engine_for("default") if request.param == "sql" else Engine("default")
    assert isinstance(made, SqlEngine if request.param == "sql" else Engine)
    return made


@pytest.fixture
def worker() -> Worker:
    return Worker.objects.create(name="w")


def add(number: int = 1, **options: object) -> list[Job]:
    """Enqueue jobs of a type that nobody declares."""
    return [hipq.enqueue("anything", {"n": n}, **options) for n in range(number)]  # type: ignore[arg-type]  # any options


def looked(engine: Engine, queue: Queue, *, is_strict: bool = False) -> tuple[bool, bool, bool]:
    """Return what a look sees in a queue that it knows."""
    now = timezone.now()
    known = ScanBounds(queue.ordering.high_water_mark(now), is_strict, -MAX_RANK)
    [busy] = engine.probe_queues(Worker(queues=[queue.name]), now, {queue.pk: known})
    return busy.first_rank is not None, bool(busy.has_response), bool(busy.has_error)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({}, ["a", "b", "c"]),
        ({"queues": ["c", "a"]}, ["a", "c"]),
        ({"queues": ["none"]}, []),
        ({"excluded_queues": ["b"]}, ["a", "c"]),
        ({"excluded_queues": ["a", "b", "c"]}, []),
    ],
)
def test_a_look_is_at_the_queues_that_the_worker_serves(
    engine: Engine, choice: dict[str, list[str]], names: list[str]
) -> None:
    queues = [Queue.objects.create(name=name) for name in ("a", "b", "c")]
    Queue.objects.create(name="a", instance="other")
    worker = Worker(**choice)

    found = engine.probe_queues(worker, timezone.now(), {})

    assert [work.queue.name for work in found] == names
    assert [queue.name for queue in queues if worker.serves(queue)] == names


@pytest.mark.parametrize("order", Order.values)
def test_a_look_sees_due_jobs_and_no_future_ones(engine: Engine, order: str) -> None:
    queue = Queue.objects.create(name="q", order=order)
    add(queue="q", scheduled_run_time=timezone.now() + timedelta(hours=1), priority=-1_000_000)

    before = looked(engine, queue)
    add(queue="q", priority=1_000_000)

    assert (before[0], looked(engine, queue)[0]) == (False, True)


def test_a_look_and_what_is_due_begin_at_the_front(engine: Engine) -> None:
    queue, now = Queue.objects.create(name="q"), timezone.now()
    early, late = (
        hipq.enqueue("anything", queue="q", scheduled_run_time=now - timedelta(hours=hours))
        for hours in (2, 1)
    )

    [busy] = engine.probe_queues(Worker(queues=["q"]), now, {})
    before = engine.due(queue, now, 9)
    queue.low_water_mark = early.rank + 1

    assert busy.first_rank is not None
    assert busy.first_rank <= early.rank
    assert before == [early, late]
    assert engine.due(queue, now, 9) == [late]
    if engine.claims_in_sql:
        with transaction.atomic():
            wanted = ClaimRequest(9, 9, [early.job_type_id])
            claimed = engine.claim_due([queue], Worker.objects.create(name="w"), now, wanted)
        assert claimed == [late]


@pytest.mark.parametrize("limit", [{"throttle_limit": 2}, {"throttle_limit": 9, "share": 2}])
def test_a_full_queue_has_nothing_due_but_critical_jobs(
    engine: Engine, worker: Worker, limit: dict[str, int]
) -> None:
    queue = Queue.objects.create(name="q", **limit)
    jobs = add(3, queue="q", throttle_factor=1)
    claim(engine, jobs[:2], worker)

    full = looked(engine, queue)
    add(queue="q", throttle_factor=0)

    assert (full[0], looked(engine, queue)[0]) == (False, True)
    assert engine.first_page(queue, timezone.now(), 1).load == 2


def own_throttler(queue: Any, now: Any, running: Any, candidates: Any) -> list[Any]:
    """See all data of the jobs: it is code of the project."""
    return []


@pytest.mark.parametrize(
    ("throttlers", "keys"),
    [
        ([hipq.KeyLimit("of", 1), own_throttler], {"of", "on", "large"}),
        ([hipq.KeyLimit('a "key"', 1)], {"of", "on", "large"}),
        ([hipq.KeyLimit("of", 1), hipq.ShareLimit("on", {}), hipq.RateLimit(1, 1)], {"of", "on"}),
        ([hipq.KeyLimit("on", 1)], {"on"}),
    ],
)
def test_throttlers_see_the_running_jobs_of_one_queue(
    engine: Engine, worker: Worker, throttlers: list[Any], keys: set[str]
) -> None:
    """Of their data shipped throttlers read only what they look at."""
    queue, data = Queue.objects.create(name="q"), {"of": ["ä", 1], "on": True, "large": "x" * 99}
    jobs = [
        hipq.enqueue("anything", data, job_key="k", queue="q", throttle_factor=2.5),
        hipq.enqueue("another", [1], queue="q", throttle_factor=0),
        hipq.enqueue("anything", queue="elsewhere"),
    ]
    claim(engine, jobs, worker)
    hipq.enqueue("anything", queue="q")
    seen = data if type(engine) is Engine else {key: data[key] for key in keys}
    nothing = [1] if len(seen) == len(data) else dict.fromkeys(keys)

    running = engine.running(queue, throttlers)

    assert sorted(running, key=lambda load: load.job_type) == [
        RunningJob("another", "NONE", nothing, Decimal(0)),
        RunningJob("anything", "k", seen, Decimal("2.5")),
    ]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("running", "head", "fits", "share"),
    [([2.9], 0.1, True, None), ([2.9], 0.101, False, None), ([0.1] * 9, 2.1, True, None),
     ([1], 7, False, None), ([], 7, True, None), ([4], 0.1, False, None), ([4], 0, True, None),
     ([], 0.1, False, 0), ([], 0, True, 0), ([1], 1, True, 2), ([1], 1.1, False, 2),
     ([], 7, False, 2.9), ([], 7, True, 3)],
)  # fmt: skip
def test_in_a_strict_queue_the_first_due_job_must_fit(
    worker: Worker, running: list[float], head: float, fits: bool, share: float | None
) -> None:
    """As `throttling.fits` says; where others may start before it, any room will do."""
    engine = engine_for("default")
    queue = Queue.objects.create(name="q", throttle_limit=3, share=share)
    claim(engine, [add(queue="q", throttle_factor=factor)[0] for factor in running], worker)
    add(queue="q", throttle_factor=head)
    add(queue="q", throttle_factor=0.001)

    has_room = sum(running) < (3 if share is None else share) or head == 0
    assert looked(engine, queue, is_strict=True)[0] is fits
    assert looked(engine, queue)[0] is has_room


@pytest.mark.parametrize(
    ("limit", "share", "is_hungry"), [(3, 2, False), (3, 1, True), (3, None, False), (0, 0, False)]
)
def test_a_look_sees_a_shard_that_needs_a_larger_share(
    engine: Engine, worker: Worker, limit: int, share: int | None, is_hungry: bool
) -> None:
    Queue.objects.create(name="q", throttle_limit=limit, share=share)
    first, _ = add(2, queue="q")

    def hunger() -> bool:
        [work] = engine.probe_queues(Worker(queues=["q"]), timezone.now(), {})
        return work.is_hungry

    claim(engine, [first], worker)
    with_due = hunger()
    add(queue="q", throttle_factor=0)
    with_critical = hunger()
    Job.objects.waiting().delete()

    assert (with_due, with_critical, hunger()) == (is_hungry, False, False)


def test_a_look_sees_responses_and_errors_in_nobodys_hands(engine: Engine, worker: Worker) -> None:
    queue = Queue.objects.create(name="q")
    answered, failed = add(2, queue="q")
    claim(engine, [answered, failed], worker)
    Job.objects.filter(pk=answered.pk).update(has_pending_answer=True)
    Job.objects.filter(pk=failed.pk).update(state="error", error="broken", phase="decision")
    in_flight = looked(engine, queue)

    Job.objects.update(worker=None, phase="NONE")

    assert (in_flight, looked(engine, queue)) == ((False, False, False), (False, True, True))


def test_due_jobs_come_in_their_order_behind_a_place_without_some_types(engine: Engine) -> None:
    queue = Queue.objects.create(name="q")
    jobs = add(5, queue="q")
    jobs[3:] = [hipq.enqueue("other", queue="q", priority=1)]
    first, *rest = sorted(Job.objects.all(), key=lambda j: (j.rank, j.pk))

    now = timezone.now() + timedelta(seconds=1)
    everything = engine.due(queue, now, 10)
    behind = engine.due(queue, now, 2, Which(after=(first.rank, first.pk)))
    known = engine.due(queue, now, 10, Which(without_types=[jobs[3].job_type_id]))

    assert everything == [first, *rest]
    assert behind == rest[:2]
    assert jobs[3] not in known
    assert [job.job_data for job in everything if job in jobs[:3]] == [{"n": n} for n in range(3)]


def test_a_claim_writes_what_the_copies_say(engine: Engine, worker: Worker) -> None:
    jobs = [*add(2, timeout=10), *add(1, timeout=20)]
    now = timezone.now()

    claim(engine, jobs, worker, prefetched={jobs[1].pk})

    rows = Job.objects.order_by("pk")
    assert [(r.state, r.attempt, r.worker, r.error) for r in rows] == [
        ("running", 1, worker, "NONE")
    ] * 3
    assert [r.prefetched for r in rows] == [False, True, False]
    assert [round((r.deadline - now).total_seconds()) for r in rows] == [10, 10, 20]


def claim_due(worker: Worker, types: Sequence[int] | None = None, *, limit: int = 4) -> list[Job]:
    """Claim what needs no look, up to four of the default queue, two of them ahead."""
    known = JobType.objects.values_list("pk", flat=True) if types is None else types
    return claim_from(Queue.objects.get(name="default"), worker, list(known), limit)


def claim_from(queue: Queue, worker: Worker, types: Sequence[int], limit: int = 4) -> list[Job]:
    now, engine = timezone.now() + timedelta(seconds=1), engine_for("default")
    wanted = ClaimRequest(2, limit, types)
    if not queue.is_limited:
        return engine.claim_due([queue], worker, now, wanted)
    return engine.finish_and_claim([], queue, worker, now, wanted)[1]


def limit_queue(limit: float | Decimal, share: Decimal | None = None) -> None:
    values = {"throttle_limit": limit, "share": share}
    Queue.objects.update_or_create(name="default", defaults=values)


@pytest.mark.fast
@pytest.mark.postgres
@pytest.mark.parametrize("limit", [0, 100])
def test_due_jobs_that_need_no_look_are_claimed_at_once_in_their_order(
    worker: Worker, limit: float
) -> None:
    limit_queue(limit)
    now = timezone.now()  # for all: priorities count among the jobs of one second
    late, *jobs, early = [
        *add(1, priority=200, scheduled_run_time=now),
        *add(4, timeout=0.25, scheduled_run_time=now),
        *add(1, priority=1, scheduled_run_time=now),
    ]
    add(1, scheduled_run_time=now + timedelta(hours=1))

    claimed = claim_due(worker)

    assert claimed == [early, *jobs[:3]]
    assert [(job.state, job.attempt, job.job_data) for job in claimed[1:]] == [
        ("running", 1, {"n": n}) for n in range(3)
    ]
    rows = Job.objects.running().order_by("rank", "pk")
    assert [(r.worker, r.phase, r.attempt, r.prefetched) for r in rows] == [
        (worker, "request", 1, place > 2) for place in range(1, 5)
    ]
    assert {row.deadline - row.update_time for row in rows[1:]} == {timedelta(seconds=0.25)}
    assert late in Job.objects.waiting()


factors = st.decimals("0.001", 5, places=3)


@pytest.mark.fast
@pytest.mark.postgres
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    running=st.lists(factors, max_size=3),
    waiting=st.lists(factors | st.just(Decimal(0)), min_size=1, max_size=9),
    limit=st.decimals(1, 9, places=3),
    part=st.none() | st.sampled_from(["0", "0.5", "1"]),
)
def test_of_a_limited_queue_the_first_that_fit_are_claimed_at_once(
    worker: Worker,
    running: list[Decimal],
    waiting: list[Decimal],
    limit: Decimal,
    part: str | None,
) -> None:
    """As `admit_by_weight` says of them; what is rare is left."""
    share = None if part is None else (limit * Decimal(part)).quantize(Decimal("0.001"))
    with transaction.atomic():
        limit_queue(limit, share)
        before = hipq.enqueue_many(hipq.NewJob("echo", throttle_factor=f) for f in running)
        claim(engine_for("default"), before, worker)
        jobs = hipq.enqueue_many(hipq.NewJob("echo", throttle_factor=f) for f in waiting)

        claimed = claim_due(worker, limit=8)
        transaction.set_rollback(True)

    admitted = admit_by_weight(waiting[:8], sum(running, Decimal(0)), limit, share)
    is_rare = 0 in waiting or waiting[0] > limit
    assert claimed == ([] if is_rare else [jobs[index] for index in admitted])


@pytest.mark.fast
@pytest.mark.postgres
def test_queues_without_a_limit_are_claimed_from_in_turn(worker: Worker) -> None:
    """Each up to the first job that needs a look, until there are enough."""
    names = ("paused", "b", "held", "a", "limited", "last")
    for name in names:
        Queue.objects.create(
            name=name, paused=name == "paused", throttle_limit=9 if name == "limited" else 0
        )
        add(2, queue=name)
    Job.objects.filter(queue__name="held", job_data={"n": 1}).update(time_windows=["00:00-24:00"])
    queues = [Queue.objects.get(name=name) for name in names]
    wanted = ClaimRequest(1, 6, list(JobType.objects.values_list("pk", flat=True)))

    claimed = engine_for("default").claim_due(queues, worker, timezone.now(), wanted)

    assert [(job.queue.name, job.job_data["n"]) for job in claimed] == [
        ("b", 0), ("b", 1), ("held", 0), ("a", 0), ("a", 1)
    ]  # fmt: skip
    running = Job.objects.running()
    assert set(running) == set(claimed)
    assert running.get(prefetched=False) == claimed[0]


@pytest.mark.fast
@pytest.mark.postgres
@pytest.mark.parametrize("limit", [0, 100])
def test_a_job_whose_answer_came_early_is_not_claimed_at_once(worker: Worker, limit: float) -> None:
    limit_queue(limit)
    first, second = (hipq.enqueue("anything", job_key=key) for key in "ab")
    AnswerFactory.create(job_type="anything", job_key="b")
    AnswerFactory.create(job_type="anything", job_key="a", instance="another")
    AnswerFactory.create(job_type="another", job_key="a")

    assert claim_due(worker) == [first]
    assert second in Job.objects.waiting()


def failed_once(error: str, **changes: Any) -> list[dict[str, Any]]:
    """Return the changes that make a waiting job one that failed before."""
    return [{"state": "running"}, {"state": "error", "error": error}, {"state": "retry", **changes}]


@pytest.mark.fast
@pytest.mark.postgres
@pytest.mark.parametrize("limit", [0, 100])
def test_a_job_that_is_tried_again_is_claimed_at_once(worker: Worker, limit: float) -> None:
    limit_queue(limit)
    first, second = add(2)
    for values in failed_once("OSError: no route"):
        Job.objects.filter(pk=second.pk).update(**values)

    claimed = claim_due(worker)

    assert claimed == [first, second]
    second.refresh_from_db()
    assert (second.state, second.error, second.attempt) == ("running", "NONE", 1)
    assert claimed[1].error == "NONE"


@pytest.mark.fast
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("job_type", "changes"),
    [
        ("anything", [{"time_windows": ["00:00-24:00"]}]),
        ("anything", failed_once("WorkerLost: worker w stopped")),
        ("anything", failed_once("broken", has_pending_answer=True)),
        ("unknown here", []),
    ],
    ids=["windows", "lost its worker", "has_pending_answer", "type without code"],
)
@pytest.mark.parametrize("limit", [0, 100])
def test_such_a_claim_ends_before_a_job_that_needs_a_look(
    worker: Worker, job_type: str, changes: list[dict[str, Any]], limit: float
) -> None:
    limit_queue(limit)
    [first], second, _ = add(1), hipq.enqueue(job_type), add(1)
    for values in changes:
        Job.objects.filter(pk=second.pk).update(**values)
    known = [first.job_type_id]

    assert (claim_due(worker, known), claim_due(worker, known)) == ([first], [])


@pytest.mark.fast
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("limit", "change"),
    [(0, {"throttle_limit": 1}), (9, {"paused": True}), (9, {"throttle_limit": 0})],
)
def test_such_a_claim_sees_what_became_of_the_queue(
    worker: Worker, limit: float, change: dict[str, Any]
) -> None:
    limit_queue(limit)
    add(2)
    queue = Queue.objects.get(name="default")
    Queue.objects.update(**change)

    assert claim_from(queue, worker, [Job.objects.all()[0].job_type_id]) == []


@pytest.mark.fast
def test_only_jobs_still_owned_are_finished_or_parked(worker: Worker) -> None:
    engine, other = engine_for("default"), Worker.objects.create(name="other")
    jobs = add(5)
    claim(engine, jobs, worker)
    Job.objects.filter(pk=jobs[1].pk).update(has_pending_answer=True)
    Job.objects.filter(pk=jobs[2].pk).update(worker=other)
    done = [(j.pk, 1, {"ok": [None, 1.5]}, True) for j in jobs[:3]]

    finished = engine.finish([*done, (jobs[3].pk, 2, None, True)], worker, timezone.now())
    waiting = engine.park([(jobs[4].pk, 1), (jobs[2].pk, 1)], worker, timezone.now())

    assert (finished, waiting) == ({jobs[0].pk}, {jobs[4].pk})
    jobs[0].refresh_from_db()
    assert (jobs[0].outcome, jobs[0].result) == ("succeeded", {"ok": [None, 1.5]})


def failing(job: Job, **values: Any) -> Failing:
    row = Failing(
        job.pk, 1, True, "error", "NONE", False, "boom", ("A", "B"), "tb", timezone.now(), 0
    )
    return row._replace(**values)


@pytest.mark.fast
def test_failures_and_what_follows_them_are_written(worker: Worker) -> None:
    engine, now = engine_for("default"), timezone.now()
    given_up, again, left, decided, before = add(5)
    claim(engine, [given_up, again, left, decided, before], worker)
    engine.fail([failing(decided, is_kept=True), failing(before)], [], worker, now)
    later = now + timedelta(minutes=1)

    ids = engine.fail(
        [
            failing(given_up, state="final", outcome="timed_out", error={"code": 7}),
            failing(again, is_kept=True, start_time=now - timedelta(seconds=9)),
            failing(left),
        ],
        [
            Concluded(again.pk, 1, "retry", "NONE", later, 77),
            Concluded(decided.pk, 1, "final", "failed", None, None),
            Concluded(before.pk, 1, "final", "failed", None, None),
        ],
        worker,
        now,
    )

    assert ids == {given_up.pk, again.pk, left.pk, decided.pk}
    found: list[Any] = list(
        Job.objects.order_by("pk").values_list("state", "outcome", "phase", "worker", "error")
    )
    assert found == [
        ("final", "timed_out", "NONE", None, {"code": 7}),
        ("retry", "NONE", "NONE", None, "boom"),
        ("error", "NONE", "NONE", None, "boom"),
        ("final", "failed", "NONE", None, "boom"),
        ("error", "NONE", "NONE", None, "boom"),
    ]
    again.refresh_from_db()
    assert (again.scheduled_run_time, again.rank) == (later, 77)
    attempt = again.attempts.get()
    assert (attempt.attempt, attempt.kind, attempt.worker) == (1, "raised", worker.name)
    assert (attempt.error, attempt.exception_classes, attempt.traceback) == (
        "boom",
        ["A", "B"],
        "tb",
    )
    assert (attempt.start_time, attempt.end_time) == (now - timedelta(seconds=9), now)
    assert given_up.attempts.get().error == {"code": 7}


@pytest.mark.fast
def test_only_failures_of_jobs_still_in_flight_are_written(worker: Worker) -> None:
    engine, now = engine_for("default"), timezone.now()
    mine, others, answered, response, old = jobs = add(5)
    claim(engine, jobs, worker)
    Job.objects.filter(pk=others.pk).update(worker=Worker.objects.create(name="other"))
    Job.objects.filter(pk__in=[answered.pk, response.pk]).update(has_pending_answer=True)
    rows = [
        failing(mine),
        failing(others),
        failing(answered),
        failing(response, is_request=False),
        failing(old, attempt=2),
    ]
    kept = [row._replace(is_kept=True) for row in rows]
    follows = [Concluded(row.id, row.attempt, "retry", "NONE", now, 1) for row in rows]

    ids = engine.fail(kept, follows, worker, now)

    assert ids == {mine.pk, response.pk}
    assert set(Job.objects.filter(state="retry")) == {mine, response}
    assert set(Attempt.objects.values_list("job_id", flat=True)) == ids
    response.refresh_from_db()
    assert response.has_pending_answer


@pytest.mark.fast
def test_failures_are_counted_in_their_rows(engine: Engine, worker: Worker) -> None:
    sql, now, [job, other] = engine_for("default"), timezone.now(), add(2)
    counts = []
    for _ in range(3):
        claim(sql, [job], worker)
        job.refresh_from_db()
        row = failing(job, attempt=job.attempt, is_kept=True)
        sql.fail([row], [Concluded(job.pk, job.attempt, "retry", "NONE", now, 1)], worker, now)
        counts.append(engine.failures([job.pk, other.pk]))

    assert counts == [{job.pk: n, other.pk: 0} for n in (1, 2, 3)]
    assert list(job.attempts.values_list("failures", flat=True)) == [1, 2, 3]


def responses(jobs: list[Job], **values: Any) -> list[IncomingAnswer]:
    return [
        IncomingAnswer("default", "anything", job.job_key, "response", {"n": n}, f"m-{n}", **values)
        for n, job in enumerate(jobs)
    ]


@pytest.mark.fast
@pytest.mark.parametrize(("number", "handled"), [(1, False), (3, True)])
def test_responses_settle_the_jobs_that_wait_for_them(
    worker: Worker, number: int, handled: bool
) -> None:
    engine, jobs = engine_for("default"), waiting(worker, number + 1)
    now = timezone.now()

    settled = engine.settle(responses(jobs[:-1]), now, handled=handled)

    rows = Answer.objects.order_by("pk").values_list(
        "pk", "job", "job_key", "attempt", "job__queue", "payload", "message_id", "status", "kind"
    )
    assert [row[:5] for row in rows] == sorted(settled)
    assert [row[5:] for row in rows] == [
        ({"n": n}, f"m-{n}", "accepted", "response") for n in range(number)
    ]
    assert set(Answer.objects.values_list("instance", "job_type", "part", "problem")) == {
        ("default", "anything", "", "NONE")
    }
    end = ("running", "NONE", None, True) if handled else ("final", "succeeded", {"n": 0}, False)
    states = Job.objects.order_by("pk").values_list(
        "state", "outcome", "result", "has_pending_answer"
    )
    assert (states[0], states[number]) == (end, ("running", "NONE", None, False))
    assert {row.receive_time for row in Answer.objects.all()} == {now}


@pytest.mark.fast
def test_a_response_by_url_settles_its_attempt_alone(worker: Worker) -> None:
    engine, [job] = engine_for("default"), waiting(worker, 1)
    [old], [message] = responses([job], attempt=0), responses([job], attempt=1)

    before = engine.settle([old], timezone.now(), handled=False, job_id=job.pk)
    settled = engine.settle([message], timezone.now(), handled=False, job_id=job.pk)

    assert (before, [done.job_id for done in settled]) == ([], [job.pk])
    assert engine.type_and_key_of(job.pk) == ("anything", job.job_key)
    assert engine.type_and_key_of(0) is None


UNUSUAL: dict[str, dict[str, Any]] = {
    "with an answer": {"has_pending_answer": True},
    "in flight": {"phase": "request"},
    "of several answers": {"expects": ["front"]},
    "in error": {"state": "error", "error": "broken"},
}


@pytest.mark.fast
@pytest.mark.parametrize("values", UNUSUAL.values(), ids=UNUSUAL)
@pytest.mark.parametrize("number", [1, 2])
def test_every_other_job_is_left_alone(worker: Worker, number: int, values: dict[str, Any]) -> None:
    engine, jobs = engine_for("default"), waiting(worker, number)
    in_flight = {"worker": worker} if "phase" in values else {}
    Job.objects.update(**values, **in_flight)

    settled = engine.settle(responses(jobs), timezone.now(), handled=False)

    assert (settled, Answer.objects.count()) == ([], 0)


@pytest.mark.fast
def test_a_job_that_was_answered_once_is_left_alone(worker: Worker) -> None:
    engine, jobs = engine_for("default"), waiting(worker, 2)
    AnswerFactory.create(job=jobs[0], status="late", job_key=jobs[0].job_key)

    settled = engine.settle(responses(jobs), timezone.now(), handled=False)

    assert [done.job_id for done in settled] == [jobs[1].pk]


@pytest.mark.fast
def test_a_message_id_that_is_known_settles_nothing(worker: Worker) -> None:
    engine, jobs = engine_for("default"), waiting(worker, 2)
    engine.settle(responses(jobs)[:1], timezone.now(), handled=False)

    with pytest.raises(IntegrityError), transaction.atomic():
        engine.settle([replace(m, message_id="m-0") for m in responses(jobs)[1:]], timezone.now(),
                    handled=False)  # fmt: skip

    assert Job.objects.final().count() == 1


def waiting(worker: Worker, number: int) -> list[Job]:
    """Return jobs with keys that wait for their answer."""
    jobs = [hipq.enqueue("anything", job_key=f"k-{n}") for n in range(number)]
    claim(engine_for("default"), jobs, worker)
    engine_for("default").park([(job.pk, 1) for job in jobs], worker, timezone.now())
    return jobs


def test_the_sum_of_factors_is_exact(engine: Engine, worker: Worker) -> None:
    queue = Queue.objects.create(name="q", throttle_limit=1)
    claim(engine, add(10, queue="q", throttle_factor=0.1), worker)
    add(queue="q")

    assert engine.first_page(queue, timezone.now(), 1).load == Decimal(1)


@override_settings(HIPQ={"default": {"ENGINE": "orm"}})
def test_the_orm_alone_runs_jobs_to_their_end() -> None:
    assert type(engine_for("default")) is Engine
    jobs = hipq.enqueue_many(hipq.NewJob("echo", {"n": n}) for n in range(20))

    hipq.enqueue("boom")

    assert run_due_jobs() == len(jobs) + 1
    assert Job.objects.filter(outcome="succeeded").count() == len(jobs)
    assert Job.objects.filter(outcome="failed").count() == 1


def test_runs_of_schedules_are_stored_as_they_are(engine: Engine) -> None:
    schedule, now, east = ScheduleFactory.create(), timezone.now(), ZoneInfo("Asia/Tokyo")
    due = now.replace(microsecond=0).astimezone(east)
    kinds = ScheduleRun.Kind
    runs = [
        ScheduleRun(schedule=schedule, due_time=due, kind=kinds.FIRED, job_id=7, create_time=now),
        ScheduleRun(
            schedule=schedule, due_time=due + timedelta(seconds=0.5), kind=kinds.MISSED, count=3,
            until=now, reason="it's \"late\": 100 %s ü", create_time=now,
        ),
    ]  # fmt: skip
    names = [field.attname for field in ScheduleRun._meta.concrete_fields if field.name != "id"]

    engine.insert_runs([])
    engine.insert_runs(runs)

    stored = ScheduleRun.objects.order_by("pk").values_list(*names)
    assert [*stored] == [tuple(getattr(run, name) for name in names) for run in runs]
    with pytest.raises(IntegrityError), transaction.atomic():
        engine.insert_runs(runs[:1])


@pytest.mark.parametrize("next_time", [timezone.now(), None])
def test_only_the_given_schedules_move_on(engine: Engine, next_time: datetime | None) -> None:
    now = timezone.now() + timedelta(minutes=1)
    before = [ScheduleFactory.create(problem="it's broken") for _ in range(3)]

    engine.move_on([before[0].pk, before[2].pk], next_time, now)

    first, other, last = Schedule.objects.order_by("pk")
    for row in (first, last):
        assert (row.next_time, row.problem, row.update_time) == (next_time, NONE, now)
    assert model_to_dict(other) == model_to_dict(before[1])
    assert (other.problem, other.update_time) == ("it's broken", before[1].update_time)


def claim(
    engine: Engine, jobs: list[Job], worker: Worker, *, prefetched: Collection[int] = ()
) -> None:
    """Claim jobs as the scheduler does."""
    now = timezone.now()
    for job in jobs:
        job.deadline = now + timedelta(seconds=job.timeout)
        job.prefetched = job.pk in prefetched
    engine.claim(jobs, worker, now)
