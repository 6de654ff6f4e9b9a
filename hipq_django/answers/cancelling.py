"""Cancels live jobs, and the answers that wait for them in the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipq_django import transitions
from hipq_django.answers import early
from hipq_django.database import clock
from hipq_django.domain.states import Outcome, State
from hipq_django.extensions import note_given_up
from hipq_django.models import Job
from hipq_django.signals import job_finished, send_after_commit


def cancel_locked(jobs: Sequence[Job], reason: str, using: str) -> None:
    """Make locked live jobs final; `reason` becomes their error."""
    values: dict[str, Any] = {"outcome": Outcome.CANCELLED, "error": reason}
    values["has_pending_answer"] = False
    transitions.move_all(jobs, State.FINAL, values, clock.now(using), using)
    early.mark_early_late(jobs, using)
    send_after_commit(job_finished, jobs, using)
    note_given_up([job.pk for job in jobs], using)
