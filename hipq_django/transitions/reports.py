"""What the log says about results, once they are committed.

A job that failed for good is one error, with its traceback; an attempt that is tried again is one
warning. All else is logged at level INFO: successes, and failures about which is not decided yet.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db import Error
from django.utils import translation
from django.utils.translation import gettext as _

from hipq_django import events
from hipq_django.domain.class_names import stored_exception
from hipq_django.domain.retries import GiveUp, RetryAt, RetryIn
from hipq_django.domain.states import NONE
from hipq_django.exceptions import WorkerLost
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Attempt, Job, JobType
from hipq_django.transitions.decisions import failed_as
from hipq_django.transitions.values import (
    Decided,
    Ended,
    Failed,
    Persisted,
    Released,
    Result,
    Snoozed,
    Succeeded,
    WaitsFor,
)


class Raised(NamedTuple):
    """The cause of an event, and its traceback as text if that is known already."""

    exception: BaseException | None = None
    traceback: str = ""


def log_results(persisted: Persisted) -> None:
    """Log one line for each written result: the job, and what became of it."""
    tells_all = events.is_logged(logging.INFO)
    if not tells_all and not {Failed, Decided} & set(map(type, persisted.written)):
        return
    at_once = {decision.claim.id: decision for decision in persisted.decided}
    later = [result for result in persisted.written if isinstance(result, Decided)]
    tracebacks = _tracebacks(later) if later and events.is_logged(logging.ERROR) else {}
    with events.together():
        for result in persisted.written:
            if isinstance(result, Failed):
                _log_failure(result, at_once.get(result.claim.id))
            elif isinstance(result, Decided):
                _log_decided(result, *_recorded(result, tracebacks.get(result.claim.id, NONE)))
            elif tells_all:
                _log_progress(result)


def _log_failure(result: Failed, decided: Decided | None) -> None:
    if decided is not None:
        _log_decided(decided, result.error, _raised_now(result))
    elif events.is_logged(logging.INFO):
        what = "code of the project decides what follows"
        events.info("attempt_undecided", what, row=result.claim, error=result.error)


def _raised_now(result: Failed) -> Raised:
    if result.exception is not None:
        return Raised(result.exception, result.traceback)
    return _stored(result.classes, result.error, NONE)


def _recorded(result: Decided, traceback: str) -> tuple[Any, Raised]:
    """Return the error of a failure that was recorded before it was decided about, and its cause.

    The latter is what the retry handler raised, if it did.
    """
    error = result.claim.job.error
    if result.exception is not None:
        return error, Raised(result.exception, result.traceback)
    failure = result.claim.failure
    return error, _stored(failure.classes if failure else (), error, traceback)


def _log_decided(decided: Decided, error: Any, raised: Raised) -> None:
    """Log what follows a failure: the end of its job, or another attempt."""
    decision = decided.decision
    level = logging.ERROR if isinstance(decision, GiveUp) else logging.WARNING
    if not events.is_logged(level):
        return
    about = {"row": decided.claim, "error": error, **raised._asdict()}
    if isinstance(decision, GiveUp):
        outcome = failed_as(decided.claim).value
        events.error("job_failed", _end(decided), **about, outcome=outcome)
    else:
        events.warning("attempt_failed", _when(decision), **about)


def _end(decided: Decided) -> str:
    failure = decided.claim.failure
    count = failure.count if failure else 1
    attempts = "1 failed attempt" if count == 1 else f"{count} failed attempts"
    with translation.override(None):  # the log is English
        why = why_given_up(decided.claim.snapshot.job_type)
    return f"final after {attempts}: {decided.why if decided.why != NONE else why}"


def why_given_up(job_type: JobType) -> str:
    """Return why a failed job of a type is not tried again, in the active language."""
    declared = get_declared(job_type.instance, job_type.name)
    if declared is not None and declared.retry_handler is not None:
        return _("its retry handler gives up")
    if declared is not None and declared.policy is not None:
        return _("%(policy)s gives up") % {"policy": declared.policy}
    return _("it has no retry policy")


def _when(decision: RetryIn | RetryAt) -> str:
    if isinstance(decision, RetryIn):
        return f"tried again in {decision.seconds:g} s"
    return f"tried again at {decision.moment.isoformat()}"


def _log_progress(result: Result) -> None:
    claim = result.claim
    if isinstance(result, Succeeded | Ended):
        events.info("job_succeeded", row=claim)
    elif isinstance(result, Snoozed):
        events.info("job_snoozed", result.reason, row=claim, seconds=result.seconds)
    elif isinstance(result, Released):
        events.info("job_released", result.reason, row=claim)
    elif isinstance(result, WaitsFor):
        events.info("job_waits", row=claim, expects=result.expects)
    else:
        events.info("job_waits", row=claim)


def log_lost_decision(job: Job, attempt: Attempt) -> None:
    """Log that a job has failed because worker after worker died while its code decided."""
    why = attempt.why_not_again
    lost = WorkerLost(why)
    lost.__cause__ = stored_exception(attempt.exception_classes, attempt.error)
    about = {"row": job, "error": job.error, "outcome": job.outcome}
    events.error("job_failed", f"final: {why}", exception=lost, **about)


def _stored(classes: Sequence[str], error: Any, traceback: str) -> Raised:
    """Return an exception by what is stored of a failure, and the traceback that is stored."""
    return Raised(stored_exception(classes, error), "" if traceback == NONE else traceback)


def _tracebacks(results: Sequence[Decided]) -> Mapping[int, str]:
    """Return the tracebacks of failures that were recorded before they were decided about."""
    attempts = {result.claim.id: result.claim.attempt for result in results}
    rows = Attempt.objects.using(results[0].claim.job.using).filter(job__in=attempts)
    try:
        found = rows.values_list("job", "attempt", "traceback")
        return {pk: text for pk, n, text in found if attempts[pk] == n and text != NONE}
    except Error:  # the failure is committed; a line without a traceback is better than none
        return {}
