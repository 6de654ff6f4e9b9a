"""What the log says of results, once they are committed.

A job that failed for good is an error, said once and with the traceback; a failure that is tried
again is a warning. What works is told to whoever listens for details.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import Error

from hipq_django import events
from hipq_django.domain.retries import Decision, GiveUp, RetryIn
from hipq_django.domain.states import NONE
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Attempt
from hipq_django.transitions.decisions import failed_as
from hipq_django.transitions.values import (
    Claim,
    Decided,
    Failed,
    Persisted,
    Released,
    Result,
    Snoozed,
    Succeeded,
    WaitsFor,
)


def log_results(persisted: Persisted) -> None:
    """Log one line for each result that was written: which job, and what became of it."""
    decided = {decision.claim.id: decision for decision in persisted.decided}
    tells_all = events.is_logged(logging.INFO)
    later = [r for r in persisted.written if isinstance(r, Decided) and _gives_up(r)]
    tracebacks = _tracebacks(later) if later else {}
    with events.together():
        for result in persisted.written:
            if isinstance(result, Failed):
                _log_failure(result, decided.get(result.claim.id))
            elif isinstance(result, Decided):
                _log_decision(result, tracebacks.get(result.claim.id, ""))
            elif tells_all:
                _log_progress(result)


def _gives_up(decided: Decided) -> bool:
    return isinstance(decided.decision, GiveUp)


def _log_failure(result: Failed, decided: Decided | None) -> None:
    fields = result.claim.fields
    fields["error"] = result.error
    raised = events.Raised(result.exception, result.traceback)
    if decided is not None and _gives_up(decided):
        _log_end(decided.claim, fields, raised)
    elif events.is_logged(logging.WARNING):
        when = _when(decided.decision) if decided else "code of the project's decides what follows"
        events.log_fields(logging.WARNING, "attempt_failed", when, fields, raised)


def _log_decision(result: Decided, traceback: str) -> None:
    if _gives_up(result):
        fields = result.claim.fields | {"error": result.claim.job.error}
        _log_end(result.claim, fields, events.Raised(traceback=traceback))
    else:
        events.info("job_retried", _when(result.decision), **result.claim.fields)


def _log_end(claim: Claim, fields: dict[str, Any], raised: events.Raised) -> None:
    """Say that a job has failed for good, and why it is not tried again."""
    if not events.is_logged(logging.ERROR):
        return
    job_type, count = claim.snapshot.job_type, claim.failure.count if claim.failure else 1
    declared = get_declared(job_type.instance, job_type.name)
    if declared is not None and declared.retry_handler is not None:
        why = "its retry handler gives up"
    elif declared is not None and declared.policy is not None:
        why = f"{declared.policy} gives up"
    else:
        why = "it has no retry policy"
    attempts = "1 failed attempt" if count == 1 else f"{count} failed attempts"
    sentence = f"final after {attempts}: {why}"
    fields["outcome"] = failed_as(claim).value
    events.log_fields(logging.ERROR, "job_failed", sentence, fields, raised)


def _when(decision: Decision) -> str:
    if isinstance(decision, RetryIn):
        return f"tried again in {decision.seconds:g} s"
    return f"tried again, as decided: {decision}"


def _log_progress(result: Result) -> None:
    fields = result.claim.fields
    if isinstance(result, Succeeded):
        events.info("job_succeeded", **fields)
    elif isinstance(result, Snoozed):
        events.info("job_snoozed", result.reason, **fields, seconds=result.seconds)
    elif isinstance(result, Released):
        events.info("job_released", result.reason, **fields)
    elif isinstance(result, WaitsFor):
        events.info("job_waits", **fields, expects=result.expects)
    else:
        events.info("job_waits", **fields)


def _tracebacks(results: Sequence[Decided]) -> Mapping[int, str]:
    """Return the tracebacks of failures that were recorded before somebody decided about them."""
    attempts = {result.claim.id: result.claim.attempt for result in results}
    rows = Attempt.objects.using(results[0].claim.job.using).filter(job__in=attempts)
    try:
        found = rows.values_list("job", "attempt", "traceback")
        return {pk: text for pk, n, text in found if attempts[pk] == n and text != NONE}
    except Error:  # what is written is written; the line is worth more than its traceback
        return {}
