"""The other rows that a job's page leads to: what made it, its tree, what it follows, its batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models import Model, QuerySet
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext

from hipq_django.admin.display import badge, local_text
from hipq_django.admin.job_panel import ToPage, standing
from hipq_django.domain.dependencies import PART
from hipq_django.models import Batch, Job, Link, Schedule

MOST = 10
"""How many rows of a kind are named, and how many levels of a tree."""

MOST_BELOW = 50
"""How many jobs of a tree are named below a job, those of the upper levels first."""

Target = tuple[type[Model], int | None]


def relations(job: Job, link: ToPage) -> list[tuple[str, str]]:
    """Return what other rows have to do with a job: what they are, and links to them."""
    links = Link.objects.using(job.using).order_by("pk")
    of_job, by_others = links.filter(job=job), links.filter(needs_job=job)
    successors = job.successors.using(job.using).order_by("pk").values_list("pk", flat=True)
    found = [
        (gettext("Made by"), _schedule(job, link)),
        (gettext("Enqueued by"), _above(job, link)),
        (gettext("Enqueued while it ran"), _below(job, link)),
        (gettext("Requeued from"), _links([(Job, job.origin_id)], link)),
        (gettext("Requeued as"), _links([(Job, pk) for pk in successors[: MOST + 1]], link)),
        (gettext("Follows"), _links(_needed(of_job.exclude(on=PART)), link)),
        (gettext("Followed by"), _links(_jobs(by_others.exclude(on=PART)), link)),
        (gettext("Gathers"), _links(_needed(of_job.filter(on=PART)), link)),
        (gettext("Gathered by"), _links(_jobs(by_others.filter(on=PART)), link)),
        (gettext("Batch"), _links([(Batch, job.batch_id)], link)),
        (gettext("Steps done"), _steps(job)),
    ]
    return [(title, text) for title, text in found if text]


def _needed(links: QuerySet[Link]) -> list[Target]:
    return [
        (Job, need.needs_job_id) if need.needs_job_id else (Batch, need.needs_batch_id)
        for need in links[: MOST + 1]
    ]


def _jobs(links: QuerySet[Link]) -> list[Target]:
    return [(Job, need.job_id) for need in links[: MOST + 1]]


def _links(targets: Sequence[Target], link: ToPage) -> str:
    links = ((_to_row(model, pk, link),) for model, pk in targets[:MOST] if pk)
    more = ", …" if len(targets) > MOST else ""
    return format_html("{}{}", format_html_join(", ", "{}", links), more)


def _steps(job: Job) -> str:
    names = list(job.steps.order_by("pk").values_list("name", flat=True)[: MOST + 1])
    return ", ".join(names[:MOST]) + (", …" if len(names) > MOST else "")


def _to_row(model: type[Model], pk: int, link: ToPage) -> str:
    return link(model, pk, f"{model._meta.verbose_name} {pk}")


def _schedule(job: Job, link: ToPage) -> str:
    """Return a link to the schedule that made a job, and when that was due.

    Its name is for those who may view schedules.
    """
    pk = job.schedule_id
    if pk is None:
        return ""
    made_by = _to_row(Schedule, pk, link)
    if not Schedule.objects.using(job.using).filter(pk=pk).exists():
        made_by = gettext("schedule %(id)s, which was deleted") % {"id": pk}
    due = job.due_time and local_text(job.due_time)
    return format_html("{}, {}", made_by, gettext("due at %(moment)s") % {"moment": due})


def _above(job: Job, link: ToPage) -> str:
    """Return links to the jobs above a job, the top one first."""
    rows, ids, parent = Job.objects.using(job.using), list[int](), job.parent_id
    while parent is not None and len(ids) < MOST:
        ids.append(parent)
        parent = rows.filter(pk=parent).values_list("parent_id", flat=True).first()
    links = ((_to_row(Job, pk, link),) for pk in reversed(ids))
    more = "" if parent is None else "… / "
    return format_html("{}{}", more, format_html_join(" / ", "{}", links))


def _below(job: Job, link: ToPage) -> str:
    """Return the jobs below a job, each with its own, as lists of links; '' for none."""
    rows = Job.objects.using(job.using).select_related("job_type").order_by("pk")
    rows = rows.defer("job_data", "result", "error")
    by_parent: dict[int, list[Job]] = {}
    parents, room = [job.pk], MOST_BELOW
    for _level in range(MOST):
        found = list(rows.filter(parent__in=parents)[:room])
        for row in found:
            by_parent.setdefault(row.parent_id or 0, []).append(row)
        parents, room = [row.pk for row in found], room - len(found)
        if not parents:
            break
    more = "…" if parents or not room else ""
    return format_html("{}{}", _listed(job.pk, by_parent, link), more)


def _listed(parent: int, by_parent: Mapping[int, Sequence[Job]], link: ToPage) -> str:
    """Return the jobs below one as a list, each with the list of those below it."""
    if parent not in by_parent:
        return ""
    items = (
        (
            _to_row(Job, row.pk, link),
            row.job_type,
            badge(*standing(row)),
            _listed(row.pk, by_parent, link),
        )
        for row in by_parent[parent]
    )
    listed = format_html_join("", "<li>{} {} {}{}</li>", items)
    return format_html('<ul class="hipq-tree">{}</ul>', listed)
