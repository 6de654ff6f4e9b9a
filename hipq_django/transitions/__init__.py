"""Every move of a job is written here and nowhere else.

Each is a compare-and-set: the row must still be in the state, attempt and ownership in which the
mover left it. No such row means that somebody else was first, and the mover drops its result.
Rows are locked in the order of their ids.
"""

from hipq_django.transitions.history import failures_of
from hipq_django.transitions.outcomes import (
    fail,
    finish_answered,
    lose_decisions,
    mark_answered,
    move,
)
from hipq_django.transitions.ownership import (
    assign,
    claim,
    claim_due,
    confirm_start,
    expect_response_handler,
    mark_started,
    release,
    release_for_retry,
)
from hipq_django.transitions.results import finish_and_claim, persist
from hipq_django.transitions.running import set_deadline, set_key, set_progress
from hipq_django.transitions.waiting import edit, first_opening, rank, reschedule

__all__ = [
    "assign",
    "claim",
    "claim_due",
    "confirm_start",
    "edit",
    "expect_response_handler",
    "fail",
    "failures_of",
    "finish_and_claim",
    "finish_answered",
    "first_opening",
    "lose_decisions",
    "mark_answered",
    "mark_started",
    "move",
    "persist",
    "rank",
    "release",
    "release_for_retry",
    "reschedule",
    "set_deadline",
    "set_key",
    "set_progress",
]
