"""W1: enqueue one by one, and for comparison the bare insert of the same row by Django."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import hipq_django as hipq
from benchmarks.measuring import measurements
from hipq_django.models import Job

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield the rate of `enqueue` and that of `Job.objects.create` with the same values."""
    yield from measurements.enqueue(runner, sizes)
    row = hipq.enqueue("work", {"kind": "noop", "number": 0})
    fields = [field for field in Job._meta.concrete_fields if not field.primary_key]
    values = {field.attname: getattr(row, field.attname) for field in fields}
    began = time.perf_counter()
    for _ in range(sizes["jobs"]):
        Job.objects.create(**values)
    yield "bare_creates_per_second", sizes["jobs"] / (time.perf_counter() - began)
