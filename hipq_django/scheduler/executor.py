"""Runs the code of one claimed job: the one place where handlers of a project are called.

Nothing here writes to the queue's tables, so a handler never runs inside one of our transactions.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from pathlib import Path
from traceback import clear_frames
from typing import Any

from asgiref.sync import async_to_sync

from hipq_django import events, extensions
from hipq_django.conf.instances import get_instance
from hipq_django.domain.class_names import class_names
from hipq_django.domain.job_options import CHANGED, checks
from hipq_django.domain.parts import WAIT_FOR
from hipq_django.domain.retries import (
    WAIT,
    Decision,
    GiveUp,
    RetryAt,
    RetryIn,
    Snooze,
    decide,
    decide_interrupted,
    sole,
    with_max_attempts,
)
from hipq_django.domain.serialization import (
    error_of,
    text_of_code,
    to_json,
    traceback_of,
)
from hipq_django.domain.states import NONE, Phase
from hipq_django.domain.uniqueness import check_key_may_change, check_key_stays
from hipq_django.domain.validation import (
    NULL_BYTES,
    CheckedResult,
    checked_data,
    checked_result,
    checked_seconds,
)
from hipq_django.exceptions import HipqError, InvalidJobError, ResultError, StoredArgumentsError
from hipq_django.job_types.current import CURRENT_JOB
from hipq_django.job_types.declaration import Declaration
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Job
from hipq_django.transitions.values import (
    Claim,
    Decided,
    Ended,
    Failed,
    Result,
    Snoozed,
    Succeeded,
    Waits,
    WaitsFor,
)

CHANGEABLE = checks(CHANGED)
"""The fields that a retry handler may change, and their rules."""


_REQUEST, _RESPONSE, _DECISION = Phase.REQUEST, Phase.RESPONSE, Phase.DECISION
"""Asked for each job: the members of an enum are found slowly."""

OWN_CODE = str(Path(__file__).parent.parent)

UNSHOWABLE = "an exception that cannot be shown"
"""Made beforehand: the exception may refuse anything, its name too, or memory may be short."""

OTHERS_SECONDS = 60
"""How long a job is put back that only the code of other workers can handle."""


class OpenTransactionError(HipqError):
    """A handler ended and left a transaction open."""


def execute(claim: Claim, context: Context | None = None) -> Result:
    """Execute a claim and return its result; exceptions of handlers become results.

    Like a request, it has a context of its own, a copy of `context` or of the present one: what a
    handler sets there, such as the language or the time zone, ends with it.
    """
    return (copy_context() if context is None else context.copy()).run(_execute, claim)


def _execute(claim: Claim) -> Result:
    job_type = claim.snapshot.job_type
    declared = get_declared(job_type.instance, job_type.name)
    if declared is None:
        said = f"no code for job type {job_type.name!r} in this worker"
        return Snoozed(claim, OTHERS_SECONDS, said)
    try:
        if claim.phase is _DECISION:
            return _decide(claim, declared)
        if claim.phase is _RESPONSE and declared.response_handler is None:
            return _unhandled(claim, declared)
        return _returned(claim, declared, _call(declared, claim))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in a handler ends the job, not the worker
        return _raised(claim, declared, sole(error))


def _raised(claim: Claim, declared: Declaration, error: BaseException) -> Result:
    """Return the end of a claim whose code raised."""
    if claim.job.has_finished:
        events.error("raised_after_finishing", "job has ended", row=claim, exception=error)
        _drop_locals(error)
        return Ended(claim)
    if isinstance(error, Snooze) and claim.phase is not Phase.DECISION:
        return _snoozed(claim, error)
    return undone(claim, error)


def undone(claim: Claim, error: BaseException) -> Result:
    """Return the result of a claim that `error` cut short, wherever that was raised."""
    if claim.phase is not Phase.DECISION:
        return _failed(claim, error)
    return _undecided(claim, error)


def _undecided(claim: Claim, error: BaseException) -> Decided:
    """Return the end of a job about which the code that should decide has raised."""
    job_type = claim.snapshot.job_type
    declared = get_declared(job_type.instance, job_type.name)
    whose = "policy" if declared is None or declared.retry_handler is None else "retry handler"
    try:
        _leave_out_own_steps(error)
        why, steps = f"its {whose} raised {error_of(error)}", traceback_of(error)
        _drop_locals(error)
        return Decided(claim, GiveUp(), exception=error, traceback=steps, why=why)
    except BaseException:  # as in `_failed`
        return Decided(claim, GiveUp(), why=f"its {whose} raised {UNSHOWABLE}")


def left_open(claim: Claim, aliases: Sequence[str]) -> Result:
    """Return the result of a claim whose code left transactions open; they were rolled back."""
    names = ", ".join(map(repr, aliases))
    return undone(
        claim,
        OpenTransactionError(
            f"job type {claim.snapshot.job_type.name!r} left a transaction open on database "
            f"{names}; it was rolled back. Use `with transaction.atomic():`, which ends it."
        ),
    )


def _call(declared: Declaration, claim: Claim) -> Any:
    CURRENT_JOB.set(claim.job)
    # By the row, as everywhere: who calls the code writes its result.
    kind = claim.snapshot.job_type.kind
    if kind and (companion := extensions.companions().get(kind)):
        return companion.call(claim)
    if claim.phase is _REQUEST:
        return _await(declared.handler(claim.job))
    assert declared.response_handler is not None  # noqa: S101 - for type checkers
    return _await(declared.response_handler(claim.job, claim.response))


def _unhandled(claim: Claim, declared: Declaration) -> Result:
    """Leave a response to the workers whose code has a handler for it; else it is the result."""
    if claim.snapshot.job_type.has_response_handler:
        said = f"no response handler for job type {declared.name!r} in this worker"
        return Snoozed(claim, OTHERS_SECONDS, said)
    return _returned(claim, declared, claim.response)


def _await(value: Any) -> Any:
    """Return the value of a handler; that of an `async def` is awaited first."""
    if value is None or value is WAIT or not inspect.isawaitable(value):
        return value  # skip the slow `isawaitable` for what most handlers return

    async def awaited() -> Any:
        return await value

    return async_to_sync(awaited)()


def _returned(claim: Claim, declared: Declaration, value: Any) -> Result:
    if claim.job.has_finished:
        if value is not None:
            events.warning("result_ignored", "finishing has given one already", row=claim)
        return Ended(claim)
    if value is None:  # as most handlers
        return Succeeded(claim, None, NULL_BYTES)
    if isinstance(value, CheckedResult):
        return Succeeded(claim, *value)
    if value is WAIT or isinstance(value, WAIT_FOR):
        return _waiting(claim, declared, value)
    return Succeeded(claim, *checked_result(repr(declared.name), value))


def _waiting(claim: Claim, declared: Declaration, value: Any) -> Result:
    if claim.phase is Phase.RESPONSE:
        word = "WAIT" if value is WAIT else "WAIT_FOR"
        raise ResultError(
            f"the response handler of {declared.name!r} returned {word}, but the answer "
            "has come already. Return the result, or raise Snooze(seconds)."
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
    """Return how long the job is put back; a subclass may lack `seconds`."""
    try:
        seconds = checked_seconds("Snooze", snooze.seconds)
        return Snoozed(claim, seconds, text_of_code(str(snooze)), run=True)
    except BaseException as error:
        return _failed(claim, error)


def _failed(claim: Claim, error: BaseException) -> Failed:
    classes: tuple[str, ...] = ()
    try:
        classes = class_names(type(error))
        _leave_out_own_steps(error)
        text, steps = error_of(error), traceback_of(error)
        _drop_locals(error)
        return Failed(claim, text, steps, classes, error)
    except BaseException:  # whatever it is, the claim gets a result, and the thread goes on
        return Failed(claim, UNSHOWABLE, NONE, classes)


def _drop_locals(error: BaseException) -> None:
    """Clear the frames of an exception, which is kept until its result is written.

    And of those that led to it, and those of a group. They may be circular, or unhashable.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        # Never ask whether an exception is true: it may have a length.
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        clear_frames(one.__traceback__)
        left.append(one.__context__ if one.__cause__ is None else one.__cause__)
        left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()


def _leave_out_own_steps(error: BaseException) -> None:
    """Let a traceback begin in the project's code: the steps before are the same for all jobs."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename.startswith(OWN_CODE):
        place = place.tb_next
    if place is not None:  # else the error was raised here
        BaseException.with_traceback(error, place)  # a frozen exception refuses to be set


# Deciding what follows an error


def _decide(claim: Claim, declared: Declaration) -> Decided:
    why = NONE
    if declared.retry_handler is not None:
        try:
            return _ask_retry_handler(claim, declared, declared.retry_handler)
        except StoredArgumentsError as error:  # it cannot be called: the policy decides
            why = f"its retry handler raised {error_of(error)}"
    failure = claim.failure
    decision = decide(declared.policy, failure) if failure else GiveUp()
    if claim.job.has_pending_answer and failure and isinstance(decision, GiveUp):
        decision = decide_interrupted(failure)
    return Decided(claim, _checked(decision, f"policy of {declared.name!r}"), why=why)


def _checked(decision: Any, whose: str) -> Decision:
    if decision is None:
        return GiveUp()
    if not isinstance(decision, RetryIn | RetryAt | GiveUp):
        raise InvalidJobError(
            f"the {whose} returned {decision!r}; return RetryIn(…), RetryAt(…), GiveUp() or None."
        )
    return decision


def _ask_retry_handler(
    claim: Claim, declared: Declaration, handler: Callable[[Job], Any]
) -> Decided:
    """Let the retry handler change a copy; the changes count only if all of them are valid."""
    job = claim.job
    # What may be nested as deeply as can be stored is copied before: `deepcopy` would not get down.
    copied = {id(value): to_json(value) for value in (job.job_data, job.error)}
    working = copy.deepcopy(job, copied)
    CURRENT_JOB.set(working)
    decision = _checked(_await(handler(working)), f"retry handler of {declared.name!r}")
    if claim.failure is not None:
        decision = with_max_attempts(declared.policy, claim.failure, decision)
    changed = {n: getattr(working, n) for n in CHANGEABLE if getattr(working, n) != getattr(job, n)}
    if "job_key" in changed:
        job_type = claim.snapshot.job_type
        check_key_may_change(job_type.uniqueness, job_type.name, "retry handler: job_key")
        if get_instance(job_type.instance).own_tables:
            said = f"retry handler of {job_type.name!r}"
            check_key_stays(said, job.queue.name, job_type.queue.name)
    checked = {n: CHANGEABLE[n](value) for n, value in changed.items()}
    if "job_data" in changed:
        bound = get_instance(claim.snapshot.job_type.instance).max_data_bytes
        checked["job_data"] = checked_data(changed["job_data"], bound)
    return Decided(claim, decision, checked)
