"""The tree that a job is in: who enqueued it while it ran, and what was enqueued while it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.utils.html import format_html, format_html_join

from hipq_django.admin.display import badge
from hipq_django.admin.job_panel import ToPage, standing
from hipq_django.models import Job

MOST_LEVELS = 10
"""How many levels are shown above a job, and below it."""

MOST_BELOW = 50
"""How many jobs are shown below it, those of the upper levels first."""


def above(job: Job, link: ToPage) -> str:
    """Return links to the jobs above a job, the top one first; '' for none."""
    rows, ids, parent = Job.objects.using(job.using), list[int](), job.parent_id
    while parent is not None and len(ids) <= MOST_LEVELS:
        ids.append(parent)
        parent = rows.filter(pk=parent).values_list("parent_id", flat=True).first()
    links = ((to_job(pk, link),) for pk in reversed(ids[:MOST_LEVELS]))
    more = "… / " if len(ids) > MOST_LEVELS else ""
    return format_html("{}{}", more, format_html_join(" / ", "{}", links))


def below(job: Job, link: ToPage) -> str:
    """Return the jobs below a job, each with its own, as lists of links; '' for none."""
    rows = Job.objects.using(job.using).select_related("job_type").order_by("pk")
    rows = rows.defer("job_data", "result", "error")
    by_parent: dict[int, list[Job]] = {}
    parents, room, more = [job.pk], MOST_BELOW, ""
    for level in range(MOST_LEVELS + 1):
        room *= level < MOST_LEVELS
        found = list(rows.filter(parent__in=parents)[: room + 1])
        more = "…" if len(found) > room else more
        for row in found[:room]:
            by_parent.setdefault(row.parent_id or 0, []).append(row)
        parents, room = [row.pk for row in found[:room]], room - len(found[:room])
        if not parents:
            break
    return format_html("{}{}", _listed(job.pk, by_parent, link), more)


def to_job(pk: int, link: ToPage) -> str:
    """Return a link to a job that is named by its id."""
    return link(Job, pk, f"{Job._meta.verbose_name} {pk}")


def _listed(parent: int, by_parent: Mapping[int, Sequence[Job]], link: ToPage) -> str:
    if parent not in by_parent:
        return ""
    items = (
        (
            to_job(job.pk, link),
            job.job_type,
            badge(*standing(job)),
            _listed(job.pk, by_parent, link),
        )
        for job in by_parent[parent]
    )
    listed = format_html_join("", "<li>{} {} {}{}</li>", items)
    return format_html('<ul class="hipq-tree">{}</ul>', listed)
