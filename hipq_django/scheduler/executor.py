"""Runs the code of one claimed job: the one place where a project's handlers are called.

Nothing here touches the queue's tables, so a handler never runs inside one of our transactions.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from traceback import clear_frames
from typing import Any

from asgiref.sync import async_to_sync

from hipq_django import events
from hipq_django.domain.parts import WAIT_FOR
from hipq_django.domain.retries import (
    WAIT,
    Decision,
    GiveUp,
    RetryAt,
    RetryIn,
    Snooze,
    class_names,
    decide,
    decide_interrupted,
    with_max_attempts,
)
from hipq_django.domain.serialization import error_of, sized_json, storable_text, traceback_of
from hipq_django.domain.states import NONE, Phase
from hipq_django.domain.validation import (
    checked_data,
    checked_factor,
    checked_key,
    checked_priority,
    checked_seconds,
    checked_timeout,
    checked_windows,
)
from hipq_django.exceptions import HipqError, InvalidJobError
from hipq_django.job_types.registry import get_declared
from hipq_django.job_types.spec import JobTypeSpec
from hipq_django.models import Job
from hipq_django.transitions.values import (
    Claim,
    Decided,
    Failed,
    Result,
    Snoozed,
    Succeeded,
    Waits,
    WaitsFor,
)

CHANGEABLE: dict[str, Callable[[Any], Any]] = {
    "job_data": checked_data,
    "job_key": checked_key,
    "priority": checked_priority,
    "throttle_factor": checked_factor,
    "timeout": checked_timeout,
    "time_windows": checked_windows,
}
"""The fields that a retry handler may change, and their rules."""


MAX_CAUSES = 20
"""Exceptions that led to one another may do so in a circle."""

MAX_RESULT_CHARS = 16_000_000
"""Drivers take more than a second for each ten million, and the whole batch waits for it."""


class ResultError(HipqError):
    """A handler returned something that cannot be a job's result."""


class MaskedError(HipqError):
    """Stands in logs and signals for an exception whose text may quote sensitive fields."""


class OpenTransactionError(HipqError):
    """A handler ended and left a transaction open."""


def execute(claim: Claim) -> Result:
    """Do the work of a claim and return how it ended; handlers' exceptions become results."""
    job_type = claim.snapshot.job_type
    declared = get_declared(job_type.instance, job_type.name)
    if declared is None:
        return Snoozed(claim, 60, f"no code for job type {job_type.name!r} in this worker")
    try:
        if claim.phase is Phase.DECISION:
            return _decide(claim, declared)
        return _returned(claim, declared, _call(declared, claim))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in a handler ends the job, not the worker
        if isinstance(error, Snooze) and claim.phase is not Phase.DECISION:
            return _snoozed(claim, error)
        return undone(claim, error)


def undone(claim: Claim, error: BaseException) -> Result:
    """Return the end of a claim that `error` cut short, wherever that was raised."""
    if claim.phase is not Phase.DECISION:
        return _failed(claim, error)
    # As text where something in it must be masked.
    redactor = claim.snapshot.redactor
    events.error(
        "retry_handler_raised",
        "the job is final",
        **claim.fields,
        exception=None if redactor.fields else error,
        traceback=traceback_of(error, redactor) if redactor.fields else "",
    )
    return Decided(claim, GiveUp())


def left_open(claim: Claim, aliases: Sequence[str]) -> Result:
    """Return the end of a claim whose code left transactions open: what it wrote is undone."""
    names = ", ".join(map(repr, aliases))
    return undone(
        claim,
        OpenTransactionError(
            f"job type {claim.snapshot.job_type.name!r} left a transaction open on database "
            f"{names}; it was rolled back. Use `with transaction.atomic():`, which ends it."
        ),
    )


def _call(declared: JobTypeSpec, claim: Claim) -> Any:
    if claim.phase is Phase.REQUEST:
        return _await(declared.handler(claim.job))
    if declared.response_handler is None:
        return claim.response
    return _await(declared.response_handler(claim.job, claim.response))


def _await(value: Any) -> Any:
    """Return the value of a handler; that of an `async def` is awaited first."""
    if value is None or value is WAIT or not inspect.isawaitable(value):
        return value  # what most handlers return is spared the slow question

    async def awaited() -> Any:
        return await value

    return async_to_sync(awaited)()


def _returned(claim: Claim, declared: JobTypeSpec, value: Any) -> Result:
    if value is WAIT or value is WAIT_FOR or isinstance(value, WAIT_FOR):
        return _waiting(claim, declared, value)
    try:
        stored, size = sized_json(value)
    except ValueError as error:
        reason = _misplaced(value) or str(error)
        raise ResultError(f"the result of {declared.name!r} is not JSON: {reason}") from error
    if size > MAX_RESULT_CHARS:
        raise ResultError(
            f"the result of {declared.name!r} has {size:,} characters as JSON, and at most "
            f"{MAX_RESULT_CHARS:,} are stored; put it elsewhere and return where it is."
        )
    return Succeeded(claim, stored, size)


def _misplaced(value: Any) -> str:
    """Return what to do instead of returning what only other functions return or raise."""
    if isinstance(value, RetryIn | RetryAt | GiveUp):
        return (
            f"{type(value).__name__} is for retry handlers (on_error); here raise an exception, "
            "and the retry handler or policy decides, or raise Snooze(seconds) to be put back."
        )
    if isinstance(value, Snooze) or value is Snooze:
        return "Snooze is raised, not returned: raise Snooze(seconds)."
    return ""


def _waiting(claim: Claim, declared: JobTypeSpec, value: Any) -> Result:
    if claim.phase is Phase.RESPONSE:
        word = "WAIT" if value is WAIT else "WAIT_FOR"
        raise ResultError(
            f"the response handler of {declared.name!r} returned {word}; the answer is "
            "there already. Return the result, or raise Snooze(seconds)."
        )
    if value is WAIT_FOR:
        raise ResultError(
            f"the handler of {declared.name!r} returned WAIT_FOR itself; call it: WAIT_FOR(3), or "
            'WAIT_FOR("front", "back").'
        )
    if declared.counted_answers and value is WAIT:
        raise ResultError(
            f"the handler of {declared.name!r} returned WAIT, but its answers are counted "
            "(counted_answers=True); return WAIT_FOR(1)."
        )
    if value is WAIT:
        return Waits(claim)
    if isinstance(value.expects, int) and not declared.counted_answers:
        raise ResultError(
            f"the handler of {declared.name!r} returned WAIT_FOR({value.expects}), but an answer "
            "without a name settles a job of this type alone, also while its handler runs. "
            "Declare it with job_type(…, counted_answers=True), or name the parts: "
            'WAIT_FOR("front", "back").'
        )
    return WaitsFor(claim, value.expects)


def _snoozed(claim: Claim, snooze: Snooze) -> Result:
    """Return how long the job is put off; a subclass may lack what it takes to say so."""
    try:
        seconds = checked_seconds("Snooze", snooze.seconds)
        return Snoozed(claim, seconds, storable_text(str(snooze)))
    except BaseException as error:
        return _failed(claim, error)


def _failed(claim: Claim, error: BaseException) -> Failed:
    classes = class_names(type(error))
    _leave_out_own_steps(error)
    try:
        redactor = claim.snapshot.redactor.knowing(claim.response, claim.job.job_data)
        text, steps = error_of(error, redactor), traceback_of(error, redactor)
        shown = MaskedError(text).with_traceback(error.__traceback__) if redactor.fields else error
        _let_go_of_locals(error)
        return Failed(claim, text, steps, classes, shown)
    except BaseException as broken:  # the handler's objects say what they like
        text = f"exception {type(error).__name__}; it cannot be shown: {type(broken).__name__}"
        return Failed(claim, text, NONE, classes)


def _let_go_of_locals(error: BaseException | None) -> None:
    """Free what the frames of an exception hold: it is kept until its result is written."""
    for _ in range(MAX_CAUSES):
        if error is None:
            return
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _leave_out_own_steps(error: BaseException) -> None:
    """Let a traceback begin in the project's code: how it was called is the same for all jobs."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename == __file__:
        place = place.tb_next
    if place is not None:  # else the error was raised here
        error.__traceback__ = place


# Deciding what follows an error


def _decide(claim: Claim, declared: JobTypeSpec) -> Decided:
    if declared.retry_handler is not None:
        return _ask_retry_handler(claim, declared, declared.retry_handler)
    failure = claim.failure
    decision = decide(declared.policy, failure) if failure else GiveUp()
    if claim.job.has_pending_answer and failure and isinstance(decision, GiveUp):
        decision = decide_interrupted(failure)
    return Decided(claim, _checked(decision, f"policy of {declared.name!r}"))


def _checked(decision: Any, whose: str) -> Decision:
    if decision is None:
        return GiveUp()
    if not isinstance(decision, RetryIn | RetryAt | GiveUp):
        raise InvalidJobError(
            f"the {whose} returned {decision!r}; return RetryIn(…), RetryAt(…), GiveUp() or None."
        )
    return decision


def _ask_retry_handler(
    claim: Claim, declared: JobTypeSpec, handler: Callable[[Job], Any]
) -> Decided:
    """Let the retry handler work on a copy; what it changed counts only if all of it is valid."""
    job, working = claim.job, copy.deepcopy(claim.job)
    decision = _checked(_await(handler(working)), f"retry handler of {declared.name!r}")
    if claim.failure is not None:
        decision = with_max_attempts(declared.policy, claim.failure, decision)
    changed = {n: getattr(working, n) for n in CHANGEABLE if getattr(working, n) != getattr(job, n)}
    return Decided(claim, decision, {n: CHANGEABLE[n](value) for n, value in changed.items()})
