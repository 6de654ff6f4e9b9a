"""Fan-ins and schedules while workers are killed: each callback and each due time once."""

import time
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db.models import Count
from django.utils import timezone

import hipq_django as hipq
from hipq_django.models import Attempt, Job, Schedule, ScheduleRun, Worker
from tests.processapp.jobs import joined, member, tick
from tests.processes.conftest import Workers, eventually, nightly

pytestmark = pytest.mark.processes

MEMBERS = 5


def kill_in_turn(workers: Workers, seconds: float) -> None:
    """Kill a worker each second, and start another one for it."""
    running = [workers.start("chaos", "-v0") for _ in range(3)]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(1)  # a worker's life is what is tested
        running.pop(0).kill()
        running.append(workers.start("chaos", "-v0"))


def kill_at_work(workers: Workers, kills: int, every: float) -> None:
    """Kill workers, and start another one for each, until so many were at work when they died.

    Those are what others count as lost; a worker may also die between two claims, with none, or
    with jobs that it has claimed ahead, which are only put back.
    """
    running = [workers.start("chaos", "-v0") for _ in range(3)]
    at_work = 0
    while at_work < kills:
        time.sleep(every)  # a worker's life is what is tested
        assert Job.objects.live().exists(), "the workers were quicker than the kills"
        victim = running.pop(0)
        jobs = Job.objects.running().filter(worker__name__endswith=f":{victim.pid}")
        started = jobs.filter(prefetched=False)
        eventually(started.exists, "the worker is at work")
        victim.kill()
        victim.wait()
        at_work += started.exists()
        running.append(workers.start("chaos", "-v0"))


@pytest.mark.parametrize(("fan_ins", "kills", "every"), [(40, 1, 0), nightly(1_000, 5, 2)])
def test_each_fan_in_calls_back_once_while_workers_are_killed(
    workers: Workers, fan_ins: int, kills: int, every: float
) -> None:
    for number in range(fan_ins):
        with hipq.batch(then=joined.new()) as batch:
            batch.enqueue_many(member.new(number) for _ in range(MEMBERS))

    kill_at_work(workers, kills, every)
    eventually(lambda: not Job.objects.live().exists(), "every job is final", 240)

    lost = Attempt.objects.filter(kind__in=[Attempt.Kind.WORKER_LOST, Attempt.Kind.BYSTANDER])
    assert lost.values("worker").distinct().count() >= kills
    callbacks = Job.objects.filter(job_type__name="joined")
    assert not Job.objects.held().exists()
    assert callbacks.count() == fan_ins
    assert sorted(callbacks.values_list("result", flat=True)) == sorted(
        number * MEMBERS for number in range(fan_ins)
    )


@pytest.mark.parametrize(("schedules", "seconds"), [(3, 3), nightly(20, 12)])
def test_each_due_time_of_each_second_is_one_job(
    workers: Workers, schedules: int, seconds: int
) -> None:
    for number in range(schedules):
        spec = hipq.Every(seconds=1, overlap="allow", catch_up="all")
        hipq.schedule(f"tick {number}", tick.new(), spec)
    began = timezone.now()

    kill_in_turn(workers, seconds)
    until = timezone.now()
    fired = ScheduleRun.objects.filter(kind="fired", due_time__lte=until)
    due = int((until - began).total_seconds()) - 1
    eventually(lambda: fired.count() >= schedules * due, "all due times are fired")

    times = ScheduleRun.objects.filter(kind="fired", due_time__lt=until - timedelta(seconds=1))
    per_schedule = times.values("schedule").annotate(number=Count("due_time", distinct=True))
    for row in per_schedule:
        mine = sorted(times.filter(schedule=row["schedule"]).values_list("due_time", flat=True))
        gaps = {later - earlier for earlier, later in pairwise(mine)}
        assert gaps == {timedelta(seconds=1)}
    doubled = Job.objects.filter(schedule_id__isnull=False).values("schedule_id", "due_time")
    assert not doubled.annotate(number=Count("id")).filter(number__gt=1).exists()
    # The workers go on firing: what the jobs are for is read before and after the runs.
    jobs = Job.objects.filter(schedule_id__isnull=False).values_list("schedule_id", "due_time")
    before = set(jobs.all())
    runs = set(ScheduleRun.objects.filter(kind="fired").values_list("schedule_id", "due_time"))
    assert before <= runs <= set(jobs.all())


@pytest.mark.nightly
def test_a_schedule_that_a_deploy_removes_and_another_brings_back(workers: Workers) -> None:
    """It goes on while a worker that declares it lives, rests after that, and goes on again."""
    fired = ScheduleRun.objects.filter(kind="fired")
    rows = Schedule.objects.filter(name="each second")
    workers.start("chaos", "-v0")  # knows nothing of it, and fires it as long as the other lives
    eventually(lambda: Worker.objects.count() == 1, "the code without it runs")
    former = workers.start("chaos", "-v0", HIPQ_TEST_WITH_SCHEDULE="1")
    eventually(lambda: fired.count() >= 2, "it is fired beside that code")
    assert not rows.get().retired

    former.terminate()
    eventually(lambda: rows.filter(retired=True).exists(), "it is retired")
    rested = fired.count()
    time.sleep(2)  # a due time that passes is what is tested
    assert fired.count() == rested

    workers.start("chaos", "-v0", HIPQ_TEST_WITH_SCHEDULE="1")
    eventually(lambda: fired.count() > rested + 1, "it is brought back")
    assert not rows.get().retired
