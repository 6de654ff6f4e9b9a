"""What follows an error, as a row; decided at once if no code of the project decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from hipq_django import events
from hipq_django.domain.retries import (
    Decision,
    Failure,
    GiveUp,
    RetryPolicy,
    decide,
    has_chance,
    is_shipped,
    retry_time,
)
from hipq_django.domain.states import NONE, Outcome, Phase, State
from hipq_django.engines.values import Concluded
from hipq_django.exceptions import JobTimeout
from hipq_django.job_types.declaration import Declaration
from hipq_django.job_types.registry import get_declared
from hipq_django.models import JobType
from hipq_django.transitions.edits import next_time
from hipq_django.transitions.history import failures_before
from hipq_django.transitions.values import Claim, Decided, Failed


def decide_at_once(results: Sequence[Failed], using: str) -> list[Decided]:
    """Return the decisions of shipped policies about failures that are about to be written.

    A retry handler, or the project's own policy, is asked later: in a worker's thread, once the
    failure is committed.
    """
    types = [(result, result.claim.snapshot.job_type) for result in results]
    asked = [(result, declared) for result, row in types if (declared := decides_alone(row))]
    before = failures_before({r.claim.id: r.claim.attempt for r, _ in asked}, using)
    alike = _Alike()
    decided: list[Decided] = []
    for result, declared in asked:
        claim = result.claim
        claim.failure = alike.failure(before[claim.id] + 1, result.classes)
        try:
            decided.append(Decided(claim, alike.decision(declared.policy, claim.failure)))
        except Exception as error:  # classes in `only` may not be comparable; logged later
            events.debug("policy_raised", row=claim, exception=error)
    return decided


class _Alike:
    """Failures of one batch, of which most are alike: those are described and decided once."""

    def __init__(self) -> None:
        self._failures: dict[tuple[int, tuple[str, ...]], Failure] = {}
        self._decisions: dict[tuple[int, int], Decision] = {}

    def failure(self, count: int, classes: tuple[str, ...]) -> Failure:
        """Return the failure with this count and of these classes."""
        failure = self._failures.get((count, classes))
        if failure is None:
            failure = self._failures[count, classes] = Failure(count, 0, classes)
        return failure

    def decision(self, policy: RetryPolicy | None, failure: Failure) -> Decision:
        """Return what a policy decides about a failure of this batch."""
        key = (id(policy), id(failure))
        decision = self._decisions.get(key)
        if decision is None:
            decision = decide(policy, failure)
            if not has_chance(policy):
                self._decisions[key] = decision
        return decision


def decides_alone(job_type: JobType) -> Declaration | None:
    """Return the declaration of a job type if a shipped policy decides, and no other code."""
    declared = get_declared(job_type.instance, job_type.name)
    if declared is None or declared.retry_handler or not is_shipped(declared.policy):
        return None
    return declared


def is_plain(decided: Decided) -> bool:
    """Return whether a decision changes nothing of the job but its time, and needs no reason."""
    is_silent = decided.why == NONE
    return is_silent and not decided.changes and not getattr(decided.decision, "resend", False)


def conclusions(decided: Iterable[Decided], now: datetime) -> dict[int, Concluded]:
    """Return what follows by plain decisions, by the ids of the jobs."""
    places: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    return {d.claim.id: _conclusion(d, now, places) for d in decided}


def _conclusion(
    decided: Decided, now: datetime, places: dict[tuple[Any, ...], Mapping[str, Any]]
) -> Concluded:
    """Return what follows one; `places` has those of jobs that are alike in all that counts."""
    claim, decision = decided.claim, decided.decision
    if isinstance(decision, GiveUp):
        return Concluded(claim.id, claim.attempt, State.FINAL, failed_as(claim), None, None)
    job, answered = claim.snapshot, _is_answered(claim)
    rows = id(decision), id(job.queue), id(job.job_type)
    alike = (*rows, job.priority, job.time_windows, answered)
    if alike not in places:
        moment = retry_time(decision, now)
        places[alike] = next_time(job, moment, has_pending_answer=answered)
    return Concluded(claim.id, claim.attempt, State.RETRY, Outcome.NONE, **places[alike])


def failed_as(claim: Claim) -> Outcome:
    """Return the outcome of a job that is given up."""
    timed_out = claim.failure is not None and claim.failure.is_a(JobTimeout)
    return Outcome.TIMED_OUT if timed_out else Outcome.FAILED


def _is_answered(claim: Claim) -> bool:
    return (
        claim.job.has_pending_answer
        if claim.phase is Phase.DECISION
        else claim.phase is Phase.RESPONSE
    )
