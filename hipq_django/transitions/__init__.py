"""Everything that moves a job from state to state.

Moves of whole batches are statements of an engine; `answers.fast_path` is the only other caller of
these. Each move is a compare-and-set: the row must still have the state, attempt and owner that the
mover knows. If it has not, another process was first, and the mover drops its result. Rows are
locked in the order of their ids.
"""

from hipq_django.transitions.edits import (
    bring_forward as bring_forward,
    edit as edit,
    first_opening as first_opening,
    rank as rank,
    reschedule as reschedule,
    run_now as run_now,
    set_deadline as set_deadline,
    set_key as set_key,
    set_progress as set_progress,
    unhold as unhold,
)
from hipq_django.transitions.history import failures_of as failures_of
from hipq_django.transitions.outcomes import (
    clear_pending_answer as clear_pending_answer,
    fail as fail,
    finish_locked as finish_locked,
    lose_decisions as lose_decisions,
    mark_answered as mark_answered,
    move as move,
    move_all as move_all,
    succeed as succeed,
)
from hipq_django.transitions.ownership import (
    assign as assign,
    claim as claim,
    claim_due as claim_due,
    confirm_start as confirm_start,
    expect_response_handler as expect_response_handler,
    holding as holding,
    mark_started as mark_started,
    release as release,
    release_for_retry as release_for_retry,
)
from hipq_django.transitions.results import finish_and_claim as finish_and_claim, persist as persist
from hipq_django.transitions.row_by_row import persist_row_by_row as persist_row_by_row
