"""W27: what `hipq_prune` takes for each ended job, of which there are millions."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from benchmarks.measuring.measurements import check_equal
from benchmarks.measuring.postgres import analyze
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance.retention import prune
from hipq_django.models import Answer, Attempt, Job
from hipq_django.models.catalog import get_job_type

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

BATCH = 1_000


def measure(_: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield the time of a job, and the client's part of it: without children, and with them."""
    _fill(sizes["warm_up"], has_children=True)
    prune(get_instance("default"))
    for suffix, has_children in (("", False), ("_with_children", True)):
        _fill(sizes["jobs"], has_children=has_children)
        analyze()
        began, used = time.perf_counter(), time.process_time()
        counts = prune(get_instance("default"))
        took, used = time.perf_counter() - began, time.process_time() - used
        check_equal("jobs pruned", counts["default"], sizes["jobs"])
        yield f"job_us{suffix}", 1e6 * took / sizes["jobs"]
        yield f"client_us{suffix}", 1e6 * used / sizes["jobs"]


def _fill(number: int, *, has_children: bool) -> None:
    """Insert jobs that ended long ago, each with an attempt and an answer if it has children."""
    work, then = get_job_type("default", "work"), timezone.now() - timedelta(days=100)
    for start in range(0, number, BATCH):
        jobs = Job.objects.bulk_create(
            Job(
                queue=work.queue,
                job_type=work,
                job_data={"kind": "noop", "number": n},
                state="final",
                outcome="succeeded",
                attempt=1,
                update_time=then + timedelta(milliseconds=n),
            )
            for n in range(start, min(start + BATCH, number))
        )
        if has_children:
            Attempt.objects.bulk_create(Attempt(job=job, attempt=1, error="x") for job in jobs)
            Answer.objects.bulk_create(
                Answer(job=job, job_type="work", kind="response", payload=1, status="accepted")
                for job in jobs
            )
