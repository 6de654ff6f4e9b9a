"""Receives many answers in one transaction and few statements.

The usual case is decided for all at once: a message with a new id, whose job is running and was
never answered, or has no job at all. Every other message goes through `arrival`, one by one, which
has the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hipq_django import events, transitions
from hipq_django.answers import aggregation, arrival, effects, fast_path
from hipq_django.database.locks import locked
from hipq_django.database.lookups import in_parts
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.states import NONE, AnswerKind, AnswerStatus, State
from hipq_django.engines import engine_for
from hipq_django.job_types.registry import names_of
from hipq_django.models import Answer, Attempt, Job, JobType
from hipq_django.models.job import JobQuerySet
from hipq_django.transitions.updates import chunks

Key = tuple[str, str]
"""The name of a job type and a key, or the id of a message."""


@dataclass
class Delivery:
    """The messages of one instance, and what was found out about them."""

    messages: Sequence[IncomingAnswer]
    now: datetime
    using: str
    answers: dict[int, Answer] = field(default_factory=dict)
    """The answers that were stored for the messages, by their place."""

    @property
    def instance(self) -> str:
        return self.messages[0].instance

    def left(self) -> list[int]:
        """Return the places of the messages that have no answer yet."""
        return [place for place in range(len(self.messages)) if place not in self.answers]


def receive(messages: Sequence[IncomingAnswer], now: datetime, using: str) -> list[Answer]:
    """Store messages of one instance and let them act, in the current transaction.

    Return their answers, in their order. Jobs are locked in the order of their ids.
    """
    delivery = Delivery(messages, now, using)
    _find_known(delivery)
    _settle(delivery)
    _receive_new(delivery)
    for place in delivery.left():
        delivery.answers[place] = arrival.receive_by_key(messages[place], now, using)
    answers = [delivery.answers[place] for place in range(len(messages))]
    counts: dict[str, Any] = Counter(str(answer.status) for answer in answers)
    events.info("answers_received", **counts)
    return answers


def _find_known(delivery: Delivery) -> None:
    """Find the messages that were stored before."""
    new = [m for m in delivery.messages if m.message_id != NONE]
    names = {name: names_of(delivery.instance, name) for name in {m.job_type for m in new}}
    every = {name for some in names.values() for name in some}
    stored: dict[Key, Answer] = {}
    for part in in_parts(sorted({m.message_id for m in new}), delivery.using):
        rows = Answer.objects.using(delivery.using).filter(
            instance=delivery.instance, job_type__in=every, message_id__in=part
        )
        # Repeated so that the partial index is used.
        rows = rows.exclude(message_id=NONE)
        stored |= {(row.job_type, row.message_id): row for row in rows}
    for place, message in enumerate(delivery.messages):
        for name in names.get(message.job_type, ()):
            known = stored.get((name, message.message_id))
            if known is not None:
                delivery.answers[place] = known


def _settle(delivery: Delivery) -> None:
    """Settle the jobs that wait for exactly one of these messages; first lock the jobs of all."""
    places = {key: place for place, key in _alone(delivery).items()}
    engine_for(delivery.using).lock_jobs_by_key(
        delivery.instance, {(m.job_type, m.job_key) for m in delivery.messages}
    )
    messages = [delivery.messages[place] for place in places.values()]
    for answer in fast_path.settle(messages, delivery.now, delivery.using):
        delivery.answers[places[answer.job_type, answer.job_key]] = answer


def _receive_new(delivery: Delivery) -> None:
    usual = _alone(delivery)
    if not usual:
        return
    live = _lock_live(set(usual.values()), delivery)
    answered = _answered([job.pk for job in live.values()], delivery.using)
    final = _with_final(set(usual.values()) - live.keys(), delivery)
    new: dict[int, Answer] = {}
    for place, key in usual.items():
        message, job = delivery.messages[place], live.get(key)
        if message.kind == AnswerKind.MALFORMED:
            new[place] = arrival.new_answer(message, None, AnswerStatus.UNMATCHED, delivery.now)
        elif job is None and key not in final:
            new[place] = arrival.new_answer(message, None, AnswerStatus.EARLY, delivery.now)
        elif job is not None and _is_usual(message, job) and job.pk not in answered:
            new[place] = arrival.new_answer(message, job, AnswerStatus.ACCEPTED, delivery.now)
    Answer.objects.using(delivery.using).bulk_create(new.values())
    _act([answer for answer in new.values() if answer.status == AnswerStatus.ACCEPTED], delivery)
    delivery.answers |= new


def _alone(delivery: Delivery) -> dict[int, Key]:
    """Return type and key of the new messages that share neither id nor job with another one."""
    left = {place: delivery.messages[place] for place in delivery.left()}
    same_key = Counter((m.job_type, m.job_key) for m in left.values() if m.job_key != NONE)
    # An id counts for all names of a type, as for what is stored.
    types = {m.job_type for m in left.values()}
    first = {name: min(names_of(delivery.instance, name)) for name in types}
    same_id = Counter(
        (first[m.job_type], m.message_id) for m in left.values() if m.message_id != NONE
    )
    return {
        place: (m.job_type, m.job_key)
        for place, m in left.items()
        if same_key[m.job_type, m.job_key] <= 1 and same_id[first[m.job_type], m.message_id] <= 1
    }


def _is_usual(message: IncomingAnswer, job: Job) -> bool:
    """Whether the job waits for its answer, and this one is not one of several."""
    waits = job.state == State.RUNNING and not job.has_pending_answer
    return waits and not aggregation.is_part(message, job)


def _lock_live(keys: set[Key], delivery: Delivery) -> dict[Key, Job]:
    """Lock and return the live jobs with these keys.

    They are searched for first: only all of them together can be locked in the order of their ids.
    """
    types: dict[int, JobType] = {}
    for job_type, jobs in _with_keys(keys, delivery):
        ids = jobs.live().values_list("pk", flat=True)
        types |= dict.fromkeys(ids, job_type)
    found: dict[Key, Job] = {}
    for rows in chunks(delivery.using, sorted(types)):
        for job in locked(rows.live().order_by("pk")):
            job.job_type = types[job.pk]
            found[job.job_type.name, job.job_key] = job
    return found


def _with_final(keys: set[Key], delivery: Delivery) -> set[Key]:
    """Return the keys that have a final job."""
    found: set[Key] = set()
    for job_type, jobs in _with_keys(keys, delivery):
        final = jobs.final().values_list("job_key", flat=True)
        found |= {(job_type.name, key) for key in final}
    return found


def _with_keys(keys: set[Key], delivery: Delivery) -> Iterator[tuple[JobType, JobQuerySet]]:
    """Yield each job type there is with its jobs that have these keys, in parts."""
    names = {name for name, key in keys if key != NONE}
    if not names:
        return
    rows = JobType.objects.using(delivery.using)
    job_types = rows.filter(instance=delivery.instance, name__in=names)
    for job_type in job_types:
        own = sorted(key for name, key in keys if name == job_type.name)
        for part in in_parts(own, delivery.using):
            jobs = Job.objects.using(delivery.using).filter(job_type=job_type, job_key__in=part)
            yield job_type, jobs.keyed()


def _answered(ids: Sequence[int], using: str) -> set[int]:
    """Return those of the jobs that have an answer in the inbox, whatever became of it."""
    found: set[int] = set()
    for part in in_parts(ids, using):
        answers = Answer.objects.using(using).filter(job__in=part).order_by()
        found |= set(answers.values_list("job_id", flat=True).distinct())
    return found


def _act(accepted: Sequence[Answer], delivery: Delivery) -> None:
    """Let accepted answers act on their jobs, which are locked, running and not answered."""
    responses: list[tuple[Job, Any]] = []
    handled: list[Job] = []
    errors: dict[Job, Any] = {}
    for answer in accepted:
        job: Any = answer.job
        if answer.kind == AnswerKind.ERROR:
            errors[job] = answer.payload
        elif effects.has_response_handler(job):
            handled.append(job)
        else:
            responses.append((job, answer.payload))
    transitions.finish_locked(responses, delivery.now, delivery.using)
    transitions.mark_answered(handled, delivery.now, delivery.using)
    texts = {job.pk: error for job, error in errors.items()}
    transitions.fail(list(errors), Attempt.Kind.ANSWERED, texts, delivery.now, delivery.using)
    queues = {answer.job.queue_id for answer in accepted if answer.job}
    engine_for(delivery.using).wake_workers(delivery.instance, queues)
