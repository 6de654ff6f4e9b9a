"""When a job that waits for others may go on. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from hipq_django.domain.states import ENDED, NONE, Outcome, State

On = Literal["succeeded", "final"]

ON: Final[tuple[str, ...]] = ("succeeded", "final")
"""How the jobs that another waits for have to end."""

PART: Final = "part"
"""Says of a link that the needed job's end answers a part of the job, which is not held."""

HELD_UNTIL: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""The time of a job that waits for others: it never comes, so no claim ever sees the job."""

MAX_AFTER: Final = 1_000
"""How many jobs one job may wait for; for more there are batches."""

MAX_INPUTS: Final = 10_000
"""How many results the parameter `inputs` has at most."""


class Need(NamedTuple):
    """The state of one need of a job: another job, or a batch."""

    on: str
    name: str
    """Its text for people: "job 7 (extract)"."""
    is_live: bool
    problem: str = ""
    """How it failed; empty if it succeeded."""


class Verdict(NamedTuple):
    """Whether a job may go on; if it never can, why."""

    may_go: bool
    problem: str = ""
    batch: int | None = None
    """The batch that it follows, if it follows one: others may put jobs back into it."""


WAIT: Final = Verdict(may_go=False)
GO: Final = Verdict(may_go=True)


def verdict(needs: Iterable[Need]) -> Verdict:
    """Return whether a job may go on, given its needs; one failure is enough to end it."""
    waits = False
    for need in needs:
        if need.problem and need.on == "succeeded":
            return Verdict(may_go=False, problem=f"{need.name} {need.problem}")
        waits |= need.is_live
    return WAIT if waits else GO


def need_of_job(on: str, pk: int, job_type: str | None, state: str, outcome: str) -> Need:
    """Return the state of a job that another waits for; without a type it was deleted."""
    if job_type is None:
        return Need(on, f"job {pk}", is_live=False, problem="does not exist any more")
    name = f"job {pk} ({job_type})"
    if state != State.FINAL:
        return Need(on, name, is_live=True)
    return Need(on, name, is_live=False, problem=ENDED.get(Outcome(outcome), ""))


def need_of_batch(on: str, pk: int, batch: str, *, is_live: bool, failed: int) -> Need:
    """Return the state of a batch of which `failed` jobs ended without success."""
    name = f"batch {pk}" if batch == NONE else f"batch {pk} ({batch})"
    if is_live:
        return Need(on, name, is_live=True)
    jobs = "1 job" if failed == 1 else f"{failed:,} jobs"
    return Need(on, name, is_live=False, problem=f"has {jobs} without success" if failed else "")


FOLLOWED: Final = ", which this job was to follow"
"""The end of the error of a job that was cancelled because of one that it waited for."""


_ENDED_BY = re.compile(rf"(job|batch) ([0-9]{{1,19}}) .*{re.escape(FOLLOWED)}", re.DOTALL)


def was_ended_by(error: object, jobs: Collection[int], batches: Collection[int]) -> bool:
    """Return whether the error of a cancelled job says that one of these was its end."""
    found = _ENDED_BY.fullmatch(error) if isinstance(error, str) else None
    if found is None:
        return False
    kind, pk = found.groups()
    return int(pk) in (jobs if kind == "job" else batches)
