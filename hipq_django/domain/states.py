"""The states of a job and the moves between them.

Source: hipq state.md, "States and State Transitions".
"""

from django.db.models import TextChoices

NONE = "NONE"
"""Stored where there is no error and no key. Source: hipq state.md, "Persistent State"."""


class State(TextChoices):
    """Where a job stands, in the words the database stores."""

    INITIAL = "initial"
    RUNNING = "running"
    ERROR = "error"
    RETRY = "retry"
    FINAL = "final"


class Outcome(TextChoices):
    """How a final job ended; `NONE` while it is not final."""

    NONE = "NONE", "none"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out", "timed out"
    CANCELLED = "cancelled"


class Phase(TextChoices):
    """What the owner of a job is doing with it; `NONE` while nobody owns it."""

    NONE = "NONE", "none"
    REQUEST = "request", "handler"
    RESPONSE = "response", "response handler"
    DECISION = "decision", "retry handler"


class AnswerKind(TextChoices):
    """Which of the two was answered; `malformed` is a message that is no answer."""

    RESPONSE = "response"
    ERROR = "error"
    MALFORMED = "malformed"


class AnswerStatus(TextChoices):
    """What became of the answer."""

    ACCEPTED = "accepted", "accepted: it settled its job or will"
    EARLY = "early", "early: kept for the job to come"
    DUPLICATE = "duplicate", "duplicate: the job was answered before"
    LATE = "late", "late: the job was final"
    UNMATCHED = "unmatched", "unmatched: no such job in time, or no such part"
    DISCARDED = "discarded", "discarded: the request was sent again"


MOVES: dict[State, frozenset[State]] = {
    State.INITIAL: frozenset({State.RUNNING}),
    State.RUNNING: frozenset({State.ERROR, State.FINAL}),
    State.ERROR: frozenset({State.RETRY, State.FINAL}),
    State.RETRY: frozenset({State.RUNNING}),
    State.FINAL: frozenset(),
}
"""Every allowed move. The database refuses the others by a trigger made from this table."""

VALID_COMBINATIONS = (
    "initial/NONE/NONE",
    "running/NONE/NONE",
    "running/NONE/request/worker",
    "running/NONE/response/worker",
    "error/NONE/NONE/error",
    "error/NONE/decision/error/worker",
    "retry/NONE/NONE/error",
    "final/succeeded/NONE",
    "final/failed/NONE/error",
    "final/timed_out/NONE/error",
    "final/cancelled/NONE",
    "final/cancelled/NONE/error",
)
"""What fits together in a job: state, outcome and work; whether it has an error, and a worker.

The database refuses everything else by a check made from this list.
"""

WAITING = (State.INITIAL, State.RETRY)
"""The states from which a worker claims."""

UNSUCCESSFUL = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED)
"""The outcomes that an operator looks for."""


def steps_between(old: State, new: State) -> tuple[State, ...]:
    """Return the states to pass through, `new` included, on the shortest way of allowed moves.

    A waiting job that is cancelled, or settled by an answer, passes through running inside one
    transaction. Raise `ValueError` where no way leads.
    """
    ways: list[tuple[State, ...]] = [(old,)]
    for way in ways:
        if new in MOVES[way[-1]]:
            return (*way[1:], new)
        ways.extend((*way, step) for step in sorted(MOVES[way[-1]]) if step not in way)
    raise ValueError(f"no way leads from {old} to {new}")
