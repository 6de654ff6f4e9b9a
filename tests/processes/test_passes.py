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
from hipq_django.models import Answer, Job, Worker
from hipq_django.processes.stop_signals import ENDED_ITSELF
from tests.factories import AnswerFactory
from tests.processes.conftest import DEADLINE_SECONDS, Workers, begun, eventually
from tests.processes.forked import HEARTBEAT_MIN, LAST_RESORT, PASS

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


def use_throttler(workers: Workers, **constants: float) -> None:
    """Let a throttler of the queue `slow` not return."""
    queues = {"slow": {"THROTTLERS": ["tests.processapp.jobs.never_return"]}}
    workers.environment["HIPQ_TEST_QUEUES"] = json.dumps(queues)
    constants = {HEARTBEAT_MIN: 1.5, LAST_RESORT: 1, **constants}
    workers.environment["HIPQ_TEST_CONSTANTS"] = json.dumps(constants)


def test_a_worker_whose_pass_hangs_says_where_and_ends_and_others_go_on(
    workers: Workers, tmp_path: Path
) -> None:
    use_throttler(workers, **{PASS: 1.0})
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    running = hipq.enqueue("held", {"notes": str(notes), "gate": str(gate)})
    hanging = workers.start("slow", "held")
    eventually(lambda: begun(notes) == 1, "its handler runs")
    stuck = hipq.enqueue("quick", {"number": 1, "asked": str(tmp_path / "asked")}, queue="slow")

    assert hanging.wait(DEADLINE_SECONDS) == ENDED_ITSELF
    gate.touch()
    workers.start("held")
    eventually(lambda: Job.objects.get(pk=running.pk).is_final, "another one has its job")

    log = workers.log.read_text()
    [said] = re.findall("event=pass_hangs .*", log)
    assert "queue=slow" in said
    assert "in never_return" in log
    assert "event=database_silent" not in log
    assert not Job.objects.get(pk=stuck.pk).is_final


@pytest.mark.parametrize("options", [[], ["--drain-seconds", "0.5"]], ids=["told again", "bounded"])
def test_a_worker_that_hangs_ends_at_the_second_signal_or_at_the_end_of_its_bound(
    workers: Workers, tmp_path: Path, options: list[str]
) -> None:
    use_throttler(workers)
    asked = tmp_path / "asked"
    hipq.enqueue("quick", {"number": 1, "asked": str(asked)}, queue="slow")
    hanging = workers.start("slow", "chaos", *options)
    eventually(asked.exists, "it hangs")

    hanging.terminate()
    eventually(lambda: "event=told_to_stop" in workers.log.read_text(), "it says what helps")
    if not options:
        hanging.terminate()

    assert hanging.wait(DEADLINE_SECONDS) == 1
    assert "event=forced_exit" in workers.log.read_text()
