"""Jobs that wait for the ends of others which they have enqueued themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import transaction

from hipq_django.api.attempts import lock_attempt
from hipq_django.api.building import Builder
from hipq_django.api.enqueueing import create_many
from hipq_django.database.transactions import bounded_transaction
from hipq_django.dependencies.gathered import tell_links
from hipq_django.dependencies.unholding import any_links
from hipq_django.domain.dependencies import PART
from hipq_django.domain.drafts import NewJob
from hipq_django.domain.parts import WaitFor
from hipq_django.exceptions import InvalidJobError
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Job, JobType, Link
from hipq_django.models.catalog import get_job_type


def gather(job: Job, jobs: Iterable[NewJob], names: Sequence[str] | None) -> WaitFor:
    """Do what `Job.gather` says."""
    new = list(jobs)
    named = [str(number + 1) for number in range(len(new))] if names is None else list(names)
    if not new or len(named) != len(new):
        raise InvalidJobError(
            f"gather: {len(new):,} jobs and {len(named):,} names; give one job at least, and each "
            "its name, or no names."
        )
    waits = WaitFor(*named)
    with bounded_transaction(job.using):
        row = lock_attempt(job, "gather")
        if declared := get_declared(row.job_type.instance, row.job_type.name):
            declared.check_gathers()
        known = {link.part: link for link in _links(row)}
        missing = {part: one for part, one in zip(named, new, strict=True) if part not in known}
        builder = Builder(row.job_type.instance, get_job_type, verb="gather")
        children = create_many(missing.values(), "raise", builder, beside=row)
        _check_sensitive(row.job_type, {child.job_type for child in children})
        Link.objects.using(job.using).bulk_create(
            Link(job=row, needs_job=child, on=PART, part=part)
            for part, child in zip(missing, children, strict=True)
        )
        _tell_again(row, [known[part] for part in named if part in known])
        any_links.note(job.using)
    return waits


def _check_sensitive(job_type: JobType, gathered: Iterable[JobType]) -> None:
    """Raise `InvalidJobError` if a field is sensitive in results, but not in the answers."""
    for other in gathered:
        for name in other.sensitive_fields:
            if not job_type.masks(name):
                raise InvalidJobError(
                    f"gather: jobs of type {other.name!r} have the sensitive field {name!r}, which "
                    f"{job_type.name!r} would show with their results; add it to its sensitive=."
                )


def _links(job: Job) -> Iterable[Link]:
    return Link.objects.using(job.using).filter(job=job, on=PART)


def _tell_again(job: Job, links: Sequence[Link]) -> None:
    """Let parts be answered again whose answers to an earlier attempt were set aside."""
    answered = set(job.answers_so_far) if links else set()
    again = [link.pk for link in links if link.part not in answered]
    if again:
        Link.objects.using(job.using).filter(pk__in=again).update(is_told=False)
        transaction.on_commit(lambda: tell_links(again, job.using), using=job.using, robust=True)
