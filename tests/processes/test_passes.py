"""A pass fails again and again, or takes long: the worker does what it can, and says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

import hipq_django as hipq
from hipq_django.models import Answer, Job, Queue, Worker
from tests.factories import AnswerFactory
from tests.processes.conftest import DEADLINE_SECONDS, Workers, eventually
from tests.processes.forked import HEARTBEAT_MIN, LAST_RESORT

pytestmark = [pytest.mark.processes, pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


ENDS = "hipq_job FOR EACH ROW WHEN (NEW.state = 'final' AND NEW.job_key = 'stuck')"
EXPIRES = "hipq_answer FOR EACH ROW WHEN (NEW.status = 'unmatched')"


@contextmanager
def failing(code: str, what: str) -> Iterator[None]:
    """Let some updates of a table fail."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"RAISE EXCEPTION USING ERRCODE = '{code}'; END $$"
        )
        cursor.execute(f"CREATE TRIGGER fail BEFORE UPDATE ON {what} EXECUTE FUNCTION fail()")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION fail() CASCADE")


def test_while_passes_fail_the_duties_are_done(workers: Workers) -> None:
    """Here a result cannot be written, through no fault of its job."""
    workers.start("chaos")
    with failing("undefined_function", ENDS):
        stuck = hipq.enqueue("quick", {"number": 1}, job_key="stuck")
        eventually(lambda: workers.log.read_text().count("event=back_off") > 1, "passes fail")
        hipq.schedule("each_second", hipq.NewJob("quick", {"number": 2}), hipq.Every(seconds=1))
        eventually(lambda: Job.objects.exclude(pk=stuck.pk).exists(), "the schedule has made a job")
        eventually(lambda: set(troubles()) == {"pass"}, "the worker's row says so")
    eventually(lambda: Job.objects.get(pk=stuck.pk).is_final, "the result is written")

    stuck.refresh_from_db()
    assert (stuck.outcome, stuck.attempt) == ("succeeded", 1)
    eventually(lambda: not troubles(), "nothing is in trouble any more")


def test_a_duty_that_fails_is_shown_until_it_succeeds(workers: Workers) -> None:
    AnswerFactory.create(job_type="quick", receive_time=timezone.now() - timedelta(days=2))
    with failing("undefined_function", EXPIRES):
        workers.start("chaos")
        eventually(troubles, "the worker's row says so")
        found = troubles()
    eventually(lambda: not troubles(), "the duty has succeeded")

    assert set(found) == {"expire_early"}
    assert found["expire_early"]["reason"].startswith("ProgrammingError")
    assert Answer.objects.get().status == "unmatched"


def troubles() -> Any:
    return next((worker.troubles for worker in Worker.objects.all()), {})


def use_throttler(workers: Workers, name: str) -> None:
    queues = {"slow": {"THROTTLERS": [f"tests.processapp.jobs.{name}"]}}
    workers.environment["HIPQ_TEST_QUEUES"] = json.dumps(queues)
    constants = {HEARTBEAT_MIN: 1.5, LAST_RESORT: 1}
    workers.environment["HIPQ_TEST_CONSTANTS"] = json.dumps(constants)


def ran(queue: str) -> bool:
    """Whether a job of a queue that is enqueued now runs."""
    job = hipq.enqueue("quick", {"number": 1}, queue=queue)
    eventually(lambda: Job.objects.get(pk=job.pk).is_final, f"a job of {queue} has run")
    return True


def test_a_throttler_that_hangs_holds_its_queue_only(workers: Workers, tmp_path: Path) -> None:
    """Its worker interrupts it, and serves the other queues."""
    use_throttler(workers, "wait_for_gate")
    gate = tmp_path / "gate"
    job = hipq.enqueue("quick", {"number": 1, "gate": str(gate)}, queue="slow")
    worker = workers.start()

    eventually(lambda: Queue.objects.get(name="slow").throttler_problem != "NONE", "it is blocked")
    assert ran("chaos")
    blocked = Queue.objects.get(name="slow").throttler_problem
    gate.touch()
    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "the job has run")
    worker.terminate()

    log = workers.log.read_text()
    assert worker.wait(DEADLINE_SECONDS) == 0
    assert blocked.startswith("throttler wait_for_gate did not return within")
    assert f'event=queue_blocked queue=slow msg="{blocked}"\n' in log
    assert "time.sleep(POLL_SECONDS)" in log  # the stack
    assert "event=back_off" not in log


def test_a_worker_ends_while_a_throttler_hangs(workers: Workers, tmp_path: Path) -> None:
    use_throttler(workers, "wait_for_gate")
    hipq.enqueue("quick", {"number": 1, "gate": str(tmp_path / "gate")}, queue="slow")
    worker = workers.start()
    eventually((tmp_path / "gate.asked").exists, "the throttler is asked")
    worker.terminate()

    assert worker.wait(DEADLINE_SECONDS) == 0


def test_a_throttler_that_cannot_be_interrupted_is_named_and_holds_only_its_worker(
    workers: Workers,
) -> None:
    use_throttler(workers, "never_return")
    job = hipq.enqueue("quick", {"number": 1}, queue="slow")
    workers.start("slow", "chaos")
    eventually(lambda: "event=pass_hangs" in workers.log.read_text(), "the log names it")
    eventually(lambda: "pass" in troubles(), "the worker's row says so")
    reason = troubles()["pass"]["reason"]
    workers.start("chaos")

    assert ran("chaos")
    log = workers.log.read_text()
    [said] = re.findall("event=pass_hangs .*", log)
    assert "queue=slow" in said
    assert "queue slow, never_return in " in reason
    assert "event=database_silent" not in log
    assert not Job.objects.get(pk=job.pk).is_final


@pytest.mark.parametrize("options", [[], ["--drain-seconds", "0.5"]], ids=["told again", "bounded"])
def test_its_worker_ends_at_the_second_signal_or_at_the_end_of_its_bound(
    workers: Workers, options: list[str]
) -> None:
    """The signals that shall interrupt it, which come again and again, count for neither."""
    use_throttler(workers, "never_return")
    hipq.enqueue("quick", {"number": 1}, queue="slow")
    hanging = workers.start("slow", "chaos", *options)
    eventually(lambda: "event=pass_hangs" in workers.log.read_text(), "it hangs")
    assert "event=told_to_stop" not in workers.log.read_text()

    hanging.terminate()
    eventually(lambda: "event=told_to_stop" in workers.log.read_text(), "it says what helps")
    if not options:
        hanging.terminate()

    assert hanging.wait(DEADLINE_SECONDS) == 1
    assert "event=killed_itself" in workers.log.read_text()
    workers.start("chaos")
    assert ran("chaos")
