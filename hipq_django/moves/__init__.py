"""Every move of a job is written here and nowhere else.

Each is a compare-and-set: the row must still be in the state, attempt and hands in which the
mover left it. No such row means that somebody else was first, and the mover drops its result.
Rows are locked in the order of their ids.
"""

from hipq_django.moves.ends import (
    fail,
    finish_answered,
    lose_decisions,
    mark_answered,
    settle,
    walk,
)
from hipq_django.moves.hands import (
    claim,
    claim_due,
    confirm_start,
    expect_response_handler,
    hand_back,
    let_go,
    mark_started,
    take,
)
from hipq_django.moves.history import failures_of
from hipq_django.moves.persisting import persist, refill
from hipq_django.moves.running import set_deadline, set_key, set_progress
from hipq_django.moves.waiting import edit, first_opening, rank, reschedule

__all__ = [
    "claim",
    "claim_due",
    "confirm_start",
    "edit",
    "expect_response_handler",
    "fail",
    "failures_of",
    "finish_answered",
    "first_opening",
    "hand_back",
    "let_go",
    "lose_decisions",
    "mark_answered",
    "mark_started",
    "persist",
    "rank",
    "refill",
    "reschedule",
    "set_deadline",
    "set_key",
    "set_progress",
    "settle",
    "take",
    "walk",
]
