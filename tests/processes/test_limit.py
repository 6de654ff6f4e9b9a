"""The throttle limit over several worker processes, measured by the handlers themselves."""

from pathlib import Path

import pytest

import hipq_django as hipq
from hipq_django.models import Job, Queue
from tests.processes.conftest import Workers, nightly

pytestmark = pytest.mark.processes

LIMIT = 10
FACTORS = (1, 2, 3, 1, 2)


def loads(notes: Path) -> list[float]:
    """Return the sum of the factors in flight after each begin and end, in the order of time."""
    load, history = 0.0, []
    for line in sorted(notes.read_text().splitlines(), key=lambda line: float(line.split()[0])):
        _, what, _, factor, _ = line.split()
        load += float(factor) if what == "begin" else -float(factor)
        history.append(load)
    return history


@pytest.mark.parametrize(("jobs", "processes"), [(100, 3), nightly(1_000, 4)])
@pytest.mark.usefixtures("no_silence")
def test_worker_processes_never_exceed_the_limit(
    workers: Workers, tmp_path: Path, jobs: int, processes: int
) -> None:
    """T22: a limit of 10, jobs of mixed factors, several processes."""
    notes = tmp_path / "notes"
    Queue.objects.create(name="limited", throttle_limit=LIMIT)
    hipq.enqueue_many(
        hipq.NewJob(
            "measured",
            {"notes": str(notes), "seconds": 0.02},
            throttle_factor=FACTORS[number % len(FACTORS)],
        )
        for number in range(jobs)
    )

    running = [workers.start("limited", "-v0", "--until-idle") for _ in range(processes)]
    assert [process.wait(timeout=300) for process in running] == [0] * processes

    history = loads(notes)
    assert Job.objects.filter(outcome="succeeded").count() == jobs
    assert (len(history), history[-1]) == (2 * jobs, 0)
    assert max(history) == LIMIT
