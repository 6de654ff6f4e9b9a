"""What stands above and below a job's form: its reasons, its failed attempts, its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.utils.text import Truncator

from hipq_django.admin.answer_values import status_badge
from hipq_django.admin.display import NOTHING, age, badge, block, or_dash, plain, span, when
from hipq_django.domain.states import NONE, WAITING, Outcome, State
from hipq_django.models import Answer, Attempt, Job
from hipq_django.monitoring.reasons import explain

MAX_ROWS = 20
"""How many attempts and answers are shown, the newest ones."""

HINTS = {
    "paused": "Resume the queue.",
    "limit": "Raise the queue's limit, or wait.",
    "behind": "A better priority moves it forward.",
    "scheduled": "“Run now” makes it due.",
    "window": "“Run now” drops the windows.",
    "throttler_error": "Correct the throttler; nothing of this queue starts before.",
    "waiting_for_answer": "If its answer is in the inbox without a job, match it there; if it is "
    "lost, cancel and requeue.",
}
"""What to press, by the code of the reason."""

OF_THE_QUEUE = {"paused", "limit", "behind", "throttler", "throttler_error"}
"""The reasons whose remedy is on the queue's page."""


def standing(job: Job) -> tuple[str, str]:
    """Return the text and the tone of a job's badge."""
    if job.is_final:
        return f"final: {Outcome(job.outcome).label.lower()}", job.outcome
    if job.is_awaiting_answer:
        return "running: waits for answer", "awaiting"
    return job.state, job.state


def panel(job: Job, now: datetime) -> dict[str, Any]:
    """Return what the page's template shows of a job beside its fields."""
    reasons = [] if job.is_final else explain(job)
    attempts = list(job.attempts.order_by("-attempt")[: MAX_ROWS + 1])
    return {
        "standing": badge(*standing(job)),
        "question": "What it waits for" if job.state == State.RUNNING else "Why it is not running",
        "reasons": [(reason.text, HINTS.get(reason.code, "")) for reason in reasons],
        "is_for_queue": any(reason.code in OF_THE_QUEUE for reason in reasons),
        "summary": _summary(job, now),
        "error": _error_line(job),
        "progress": progress_text(job),
        "attempts": [*_success(job, now), *(_attempt(a, job, now) for a in attempts[:MAX_ROWS])],
        "max_rows": MAX_ROWS,
        "more_attempts": len(attempts) > MAX_ROWS,
    }


def answers_panel(job: Job, now: datetime) -> dict[str, Any]:
    """Return what the page's template shows of a job's answers, to those who may view answers."""
    answers = list(job.answers.order_by("-pk")[: MAX_ROWS + 1])
    return {
        "answers": [_answer(answer, job, now) for answer in answers[:MAX_ROWS]],
        "has_parts": any(answer.part for answer in answers),
        "more_answers": len(answers) > MAX_ROWS,
    }


def _summary(job: Job, now: datetime) -> str:
    """Return what to say where there is no reason to give."""
    if job.is_final:
        return f"It ended {age(job.update_time, now)}."
    if job.state in WAITING:
        return "Nothing holds it: the next free worker starts it."
    if job.state == State.RUNNING:
        return f"Worker {job.worker or 'that is gone'} is executing it."
    return "Its retry handler decides next."


def _error_line(job: Job) -> str:
    """Return the beginning of the job's error, '' where it has none."""
    error = job.masked(job.error)
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    return "" if text == NONE else Truncator(text.strip().partition("\n")[0]).chars(200)


def progress_text(job: Job) -> str:
    """Return how far the other system is, as it said; '' where it said nothing."""
    percent = f"{plain(job.progress)} %" if job.progress else ""
    message = "" if job.progress_message == NONE else job.masked(job.progress_message)
    return ": ".join(text for text in (percent, message) if text)


def _success(job: Job, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield the attempt that succeeded; which worker ended it is not kept."""
    if job.outcome == Outcome.SUCCEEDED and job.attempt:
        yield {
            "number": job.attempt,
            "kind": "succeeded",
            "error": NOTHING,
            "worker": NOTHING,
            "started": when(job.start_time, now),
            "ended": when(job.update_time, now),
            "took": span(max(job.update_time - job.start_time, timedelta())),
        }


def _attempt(attempt: Attempt, job: Job, now: datetime) -> dict[str, Any]:
    trace = "" if attempt.traceback == NONE else job.masked(attempt.traceback)
    return {
        "number": attempt.attempt,
        "kind": attempt.get_kind_display(),
        "error": block(job.masked(attempt.error)),
        "traceback": block(trace, "Traceback:") if trace else "",
        "worker": or_dash(attempt.worker),
        "started": when(attempt.start_time, now),
        "ended": when(attempt.end_time, now),
        "took": span(attempt.end_time - attempt.start_time),
    }


def _answer(answer: Answer, job: Job, now: datetime) -> dict[str, Any]:
    return {
        "status": status_badge(answer),
        "meaning": answer.get_status_display(),
        "kind": answer.kind,
        "part": answer.part,
        "attempt": answer.attempt,
        "received": when(answer.receive_time, now),
        "payload": block(job.masked(answer.payload)),
    }
