"""What stands above and below a job's form: its reasons, its failed attempts, its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from django.db.models import Model
from django.utils.text import Truncator
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.answer_values import meaning_of, status_badge
from hipq_django.admin.display import NOTHING, age, badge, block, or_dash, plain, span, when
from hipq_django.admin.previews import MAX_READ_CHARS, too_large, with_preview
from hipq_django.domain.states import NONE, Outcome, State
from hipq_django.models import Answer, Attempt, Job, Worker
from hipq_django.models.masking import shown
from hipq_django.monitoring.reasons import explain, given_up

ToPage = Callable[[type[Model], object, object], str]
"""Returns a link to the page of a row."""

MAX_ROWS = 20
"""How many attempts and answers are shown, the newest ones."""

HINTS = {
    "paused": _("Resume the queue."),
    "limit": _("Raise the queue's limit, or wait."),
    "behind": _("A better priority moves it forward."),
    "threads_held": _("Restart the worker; see what the handlers of these jobs wait for."),
    "busy": _("Start another worker, or one with more threads; see what the handlers wait for."),
    "scheduled": _("“Run now” makes it due."),
    "window": _("“Run now” drops the windows."),
    "throttler_error": _("Correct the throttler; until then nothing in this queue starts."),
    "waiting_for_answer": _(
        "If its answer is in the inbox without a job, match it there; if it is lost, cancel and "
        "requeue."
    ),
}
"""What to press, by the code of the reason."""

_QUESTIONS = {
    State.RUNNING: _("What the job waits for"),
    State.FINAL: _("Why it was not tried again"),
}

OF_THE_QUEUE = {"paused", "limit", "behind", "throttler", "throttler_error"}
"""The reasons whose remedy is on the queue's page."""


def standing(job: Job) -> tuple[str, str]:
    """Return the text and the tone of a job's badge."""
    if job.is_final:
        text = _("final: %(outcome)s") % {"outcome": job.get_outcome_display()}
        return text, job.outcome
    if job.is_awaiting_answer:
        return gettext("running: waits for answer"), "awaiting"
    return job.get_state_display(), job.state


def panel(job: Job, now: datetime) -> dict[str, Any]:
    """Return what the page's template shows of a job beside its fields."""
    attempts = list(job.attempts.order_by("-attempt")[: MAX_ROWS + 1])
    last = attempts[0] if attempts else None
    reasons = list(given_up(job, last)) if job.is_final else explain(job)
    return {
        "standing": badge(*standing(job)),
        "question": _QUESTIONS.get(State(job.state), _("Why it is not running")),
        "reasons": [(reason.text, HINTS.get(reason.code, "")) for reason in reasons],
        "is_for_queue": any(reason.code in OF_THE_QUEUE for reason in reasons),
        "summary": _summary(job, now),
        "error": _error_line(job),
        "progress": progress_text(job),
        "attempts": [
            *_success(job, now),
            *(_attempt(a, job, now) for a in attempts[:MAX_ROWS]),
        ],
        "max_rows": MAX_ROWS,
        "more_attempts": len(attempts) > MAX_ROWS,
    }


def answers_panel(job: Job, now: datetime, link: ToPage) -> dict[str, Any]:
    """Return what the page's template shows of a job's answers, to those who may view answers."""
    answers = list(with_preview(job.answers.order_by("-pk"), "payload")[: MAX_ROWS + 1])
    return {
        "answers": [_answer(answer, job, now, link) for answer in answers[:MAX_ROWS]],
        "has_parts": any(answer.part for answer in answers),
        "more_answers": len(answers) > MAX_ROWS,
    }


def _summary(job: Job, now: datetime) -> str:
    """Return what to say where there is no reason to give."""
    if job.is_final:
        return _("It ended %(age)s.") % {"age": age(job.update_time, now)}
    if job.state == State.RUNNING and job.worker:
        return _("Worker %(worker)s is executing it.") % {"worker": job.worker}
    return gettext("Nothing holds it: the next free worker starts it.")


def _error_line(job: Job) -> str:
    """Return the beginning of the job's error, '' where it has none."""
    error = shown(job, job.error)
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    first, more, _rest = text.strip().partition("\n")
    return "" if text == NONE else Truncator(f"{first} …" if more else first).chars(200)


def progress_text(job: Job) -> str:
    """Return how far the handler or the other system is, as it said; '' where none said."""
    percent = f"{plain(job.progress)} %" if job.progress else ""
    message = "" if job.progress_message == NONE else shown(job, job.progress_message)
    return ", ".join(text for text in (percent, message) if text)


def _success(job: Job, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield the attempt that succeeded."""
    if job.outcome == Outcome.SUCCEEDED and job.attempt:
        yield {
            "number": job.attempt,
            "kind": Outcome.SUCCEEDED.label,
            "error": NOTHING,
            "worker": _last_worker(job),
            "started": when(job.start_time, now),
            "ended": when(job.update_time, now),
            "took": span(job.update_time - job.start_time),
        }


def _last_worker(job: Job) -> str:
    """Return who claimed the job last; its row may be gone."""
    if job.last_worker_id is None:
        return NOTHING
    row = Worker.objects.using(job.using).filter(pk=job.last_worker_id).first()
    return row.name if row else gettext("worker %(id)s") % {"id": job.last_worker_id}


def _attempt(attempt: Attempt, job: Job, now: datetime) -> dict[str, Any]:
    trace = "" if attempt.traceback == NONE else shown(job, attempt.traceback)
    return {
        "number": attempt.attempt,
        "kind": attempt.get_kind_display(),
        "error": block(shown(job, attempt.error)),
        "traceback": block(trace, gettext("Traceback:")) if trace else "",
        "worker": or_dash(attempt.worker),
        "started": when(attempt.start_time, now),
        "ended": when(attempt.end_time, now),
        "took": span(attempt.end_time - attempt.start_time),
    }


def _answer(answer: Any, job: Job, now: datetime, link: ToPage) -> dict[str, Any]:
    is_large = answer.size > MAX_READ_CHARS
    return {
        "status": status_badge(answer),
        "meaning": meaning_of(answer),
        "kind": answer.get_kind_display(),
        "part": answer.part,
        "attempt": answer.attempt,
        "received": when(answer.receive_time, now),
        "payload": link(Answer, answer.pk, too_large(answer.size))
        if is_large
        else block(shown(job, answer.shown)),
    }
