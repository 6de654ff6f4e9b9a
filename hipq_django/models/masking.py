"""The door for all that people read but the log: the admin, HTTP, commands and raised errors.

The log has a door of its own, `row=` of `hipq_django.events`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from hipq_django.domain.redaction import as_shown
from hipq_django.domain.throttling import RunningJob
from hipq_django.models.answer import Answer
from hipq_django.models.job import Job
from hipq_django.models.job_type import JobType
from hipq_django.models.queue import Queue


def shown(row: Any, value: Any) -> Any:
    """Return JSON or text about a row without the values of its sensitive fields."""
    if isinstance(row, Job):
        learn_answers([row])
    return as_shown(row, value)


def learn_answers(jobs: Iterable[Job]) -> None:
    """Let jobs know their answers too, whose values their errors may quote."""
    asked = {job.pk: job for job in jobs if job.known is None and job.job_type.sensitive_fields}
    if not asked:
        return
    using = next(iter(asked.values())).using
    payloads = defaultdict[int | None, list[Any]](list)
    found = Answer.objects.using(using).filter(job__in=asked)
    for pk, payload in found.values_list("job_id", "payload"):
        payloads[pk].append(payload)
    for pk, job in asked.items():
        job.learn(*payloads[pk])


def said_by_throttlers(
    text: str, jobs: Iterable[Job], running: Sequence[RunningJob], queue: Queue
) -> str:
    """Return what throttlers say without a value, however short, of jobs that they were given."""
    for job in jobs:
        text = job.redactor.knowing_all(job.job_data).mask_text(text)
    names = {job.job_type for job in running}
    types = JobType.objects.using(queue.using).filter(instance=queue.instance, name__in=names)
    redactors = {row.name: row.redactor for row in types if names}
    for other in running:
        text = redactors[other.job_type].knowing(other.job_data).mask_text(text)
    return text
