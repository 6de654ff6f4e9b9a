"""The states of a job and the moves between them.

Source: hipq state.md, "States and State Transitions".
"""

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

NONE = "NONE"
"""Stored where there is no error and no key. Source: hipq state.md, "Persistent State"."""


class State(TextChoices):
    """Where a job stands, in the words the database stores."""

    INITIAL = "initial", _("initial")
    RUNNING = "running", _("running")
    ERROR = "error", _("error")
    RETRY = "retry", _("retry")
    FINAL = "final", _("final")


class Outcome(TextChoices):
    """How a final job ended; `NONE` while it is not final."""

    NONE = "NONE", _("none")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    TIMED_OUT = "timed_out", _("timed out")
    CANCELLED = "cancelled", _("cancelled")


class Phase(TextChoices):
    """What the owner of a job is doing with it; `NONE` while nobody owns it."""

    NONE = "NONE", _("none")
    REQUEST = "request", _("handler")
    RESPONSE = "response", _("response handler")
    DECISION = "decision", _("retry handler")


class AnswerKind(TextChoices):
    """Which of the two was answered; `malformed` is a message that is no answer."""

    RESPONSE = "response", _("response")
    ERROR = "error", _("error")
    MALFORMED = "malformed", _("malformed")


class AnswerStatus(TextChoices):
    """What became of the answer."""

    ACCEPTED = "accepted", _("accepted: it settled its job or will")
    EARLY = "early", _("early: kept for the job to come")
    DUPLICATE = "duplicate", _("duplicate: the job was answered before")
    LATE = "late", _("late: the job was final")
    UNMATCHED = "unmatched", _("unmatched: no such job in time, or no such part")
    DISCARDED = "discarded", _("discarded: the request was sent again")

    @property
    def word(self) -> str:
        """The status in a word, in the active language."""
        return str(self.label).partition(":")[0].strip()

    @property
    def meaning(self) -> str:
        """What it means, for pages that show the word beside it."""
        return str(self.label).partition(":")[2].strip()


MOVES: dict[State, frozenset[State]] = {
    State.INITIAL: frozenset({State.RUNNING}),
    State.RUNNING: frozenset({State.ERROR, State.FINAL}),
    State.ERROR: frozenset({State.RETRY, State.FINAL}),
    State.RETRY: frozenset({State.RUNNING}),
    State.FINAL: frozenset(),
}
"""Every allowed move.

The database refuses the others by a trigger, whose text is frozen in a migration: a test holds this
table against it.
"""

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
"""What fits together in a job: state, outcome and phase; whether it has an error, and a worker.

The database refuses everything else by a check, which is frozen in a migration: a test holds this
list against it.
"""

WAITING = (State.INITIAL, State.RETRY)
"""The states from which a worker claims."""

LIVE = (State.INITIAL, State.RUNNING, State.ERROR, State.RETRY)

UNSUCCESSFUL = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED)
"""The outcomes that an operator looks for."""

ENDED = {
    Outcome.FAILED: "failed",
    Outcome.TIMED_OUT: "timed out",
    Outcome.CANCELLED: "was cancelled",
}
"""What an error says of a job that ended without success."""


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
    raise ValueError(f"no transition leads from {old} to {new}")
