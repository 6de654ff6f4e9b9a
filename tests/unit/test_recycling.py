"""When a worker makes way for a new one."""

from __future__ import annotations

from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.recycling import Recycling, resident_megabytes


def first_after(options: WorkerOptions) -> int:
    """Return after how many jobs a worker with these options ends."""
    recycling = Recycling(options)
    return next(number for number in range(2_000) if recycling.reason(number))


def test_it_ends_with_the_job_that_reaches_the_bound() -> None:
    assert first_after(WorkerOptions(max_jobs=1)) == 1
    assert first_after(WorkerOptions(max_jobs=1_000)) == 1_000


def test_several_children_end_at_different_times_none_of_them_late() -> None:
    ends = [first_after(WorkerOptions(max_jobs=1_000, parent=1)) for _ in range(20)]

    assert 900 <= min(ends) < max(ends) <= 1_000


def test_memory_counts_once_a_job_has_started() -> None:
    much, little = (WorkerOptions(max_memory=megabytes) for megabytes in (1_000_000, 1))

    assert Recycling(much).reason(1) == ""
    assert Recycling(little).reason(0) == ""
    assert Recycling(little).reason(1).startswith("it has ")
    assert 5 < resident_megabytes() < 10_000
