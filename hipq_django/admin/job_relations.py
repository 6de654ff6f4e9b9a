"""What other rows a job's page leads to: jobs, its batch, and answers that may be its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Model
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext

from hipq_django.admin.display import age, local_text
from hipq_django.admin.job_panel import ToPage
from hipq_django.admin.job_tree import above, below
from hipq_django.domain.dependencies import PART
from hipq_django.job_types.registry import names_of
from hipq_django.models import Answer, Batch, Job, Link, Schedule
from hipq_django.monitoring.counts import COUNT_LIMIT

MOST = 10
"""How many rows of a kind are named."""

Target = tuple[type[Model], int | None]


def relations(job: Job, link: ToPage) -> Iterator[tuple[str, str]]:
    """Yield what other rows have to do with a job: what they are, and links to them."""
    links = Link.objects.using(job.using).order_by("pk")
    needs, parts = _by_kind(links.filter(job=job))
    followers, gatherers = _by_kind(links.filter(needs_job=job))
    yield from _makers(job, link)
    if enqueued := below(job, link):
        yield gettext("Enqueued while it ran"), enqueued
    groups: list[tuple[str, list[Target]]] = [
        (gettext("Follows"), [_needed(need) for need in needs]),
        (gettext("Followed by"), [(Job, follower.job_id) for follower in followers]),
        (gettext("Gathers"), [_needed(part) for part in parts]),
        (gettext("Gathered by"), [(Job, gatherer.job_id) for gatherer in gatherers]),
        (gettext("Batch"), [(Batch, job.batch_id)]),
    ]
    for title, found in groups:
        named: list[Target] = [(model, pk) for model, pk in found if pk]
        if named:
            yield title, _links(named, link)
    if steps := list(job.steps.order_by("pk").values_list("name", flat=True)[: MOST + 1]):
        yield gettext("Steps done"), ", ".join(steps[:MOST]) + (", …" if len(steps) > MOST else "")


def _makers(job: Job, link: ToPage) -> Iterator[tuple[str, str]]:
    """Yield the schedule that made a job, and the job that enqueued it."""
    if job.schedule_id:
        yield gettext("Made by"), _schedule(job, job.schedule_id, link)
    if job.parent_id:
        yield gettext("Enqueued by"), above(job, link)


def _schedule(job: Job, pk: int, link: ToPage) -> str:
    """Return a link to the schedule that made a job, and when that was due.

    Its name is for those who may view schedules.
    """
    if Schedule.objects.using(job.using).filter(pk=pk).exists():
        made_by = _links([(Schedule, pk)], link)
    else:
        made_by = gettext("schedule %(id)s, which was deleted") % {"id": pk}
    due = job.due_time and local_text(job.due_time)
    return format_html("{}, {}", made_by, gettext("due at %(moment)s") % {"moment": due})


def _by_kind(links: Any) -> tuple[list[Link], list[Link]]:
    """Return the first links of jobs that follow others, and of jobs that gather others."""
    found = list(links[: MOST + 1])
    return [row for row in found if row.on != PART], [row for row in found if row.on == PART]


def _needed(need: Link) -> Target:
    return (Job, need.needs_job_id) if need.needs_job_id else (Batch, need.needs_batch_id)


def _links(named: list[Target], link: ToPage) -> str:
    links = ((link(model, pk, f"{model._meta.verbose_name} {pk}"),) for model, pk in named[:MOST])
    more = ", …" if len(named) > MOST else ""
    return format_html("{}{}", format_html_join(", ", "{}", links), more)


def candidates(job: Job, now: datetime, link: ToPage) -> str:
    """Return links to answers without a job that may be this job's; '' where there are none.

    The newest ones of its type, under each of its names, while it waits for its answer.
    """
    if not job.is_awaiting_answer:
        return ""
    instance = job.job_type.instance
    names = names_of(instance, job.job_type.name)
    rows = Answer.objects.using(job.using).filter(instance=instance, job_type__in=names, job=None)
    kinds = (Answer.Kind.RESPONSE, Answer.Kind.ERROR)
    newest = rows.filter(pk__in=_newest(rows), kind__in=kinds).order_by("-pk")[: MOST + 1]
    found = [(link(Answer, row.pk, _candidate(row)), age(row.receive_time, now)) for row in newest]
    more = ", …" if len(found) > MOST else ""
    return format_html("{}{}", format_html_join(", ", "{} ({})", found[:MOST]), more)


def _candidate(answer: Answer) -> str:
    text = gettext("%(kind)s for %(key)s")
    return text % {"kind": answer.get_kind_display(), "key": answer.job_key}


def _newest(rows: Any) -> list[int]:
    """Return the ids of the newest rows, so that a page costs the same however many there are."""
    return list(rows.order_by("-pk").values_list("pk", flat=True)[: min(100, COUNT_LIMIT)])
