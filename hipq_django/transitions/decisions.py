"""What follows an error, as a row; decided at once if no code of the project decides."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from hipq_django import events
from hipq_django.domain.retries import Failure, GiveUp, decide, is_shipped, retry_time
from hipq_django.domain.states import Outcome, Phase, State
from hipq_django.engines.values import Concluded
from hipq_django.exceptions import JobTimeout
from hipq_django.job_types.declaration import Declaration
from hipq_django.job_types.registry import get_declared
from hipq_django.transitions.edits import next_time
from hipq_django.transitions.history import failures_before
from hipq_django.transitions.values import Claim, Decided, Failed


def decide_at_once(results: Sequence[Failed], using: str) -> list[Decided]:
    """Return the decisions of shipped policies about failures that are about to be written.

    A retry handler, or the project's own policy, is asked later: in a worker's thread, once the
    failure is committed.
    """
    asked = [(result, declared) for result in results if (declared := _declared(result))]
    before = failures_before({r.claim.id: r.claim.attempt for r, _ in asked}, using)
    decided: list[Decided] = []
    for result, declared in asked:
        claim = result.claim
        claim.failure = Failure(before[claim.id] + 1, 0, result.classes)
        try:
            decided.append(Decided(claim, decide(declared.policy, claim.failure)))
        except Exception as error:  # classes in `only` may not be comparable; logged later
            events.debug("policy_raised", **claim.fields, exception=error)
    return decided


def _declared(result: Failed) -> Declaration | None:
    """Return the job's type if a shipped policy decides alone."""
    job_type = result.claim.snapshot.job_type
    declared = get_declared(job_type.instance, job_type.name)
    if declared is None or declared.retry_handler or not is_shipped(declared.policy):
        return None
    return declared


def is_plain(decided: Decided) -> bool:
    """Return whether a decision changes nothing of the job but its time."""
    return not decided.changes and not getattr(decided.decision, "resend", False)


def conclusion(decided: Decided, now: datetime) -> Concluded:
    """Return what follows by a plain decision."""
    claim, decision = decided.claim, decided.decision
    if isinstance(decision, GiveUp):
        return Concluded(claim.id, claim.attempt, State.FINAL, failed_as(claim), None, None)
    moment = retry_time(decision, now)
    place = next_time(claim.snapshot, moment, has_pending_answer=_is_answered(claim))
    return Concluded(claim.id, claim.attempt, State.RETRY, Outcome.NONE, **place)


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
