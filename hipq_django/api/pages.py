"""What is done to many jobs: page by page, each page of locked rows in a separate transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import QuerySet

from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.models import Job

PAGE_SIZE = 300

Perform = Callable[[Sequence[Job], str], Mapping[int, str]]
"""Does something to the jobs of a page, which are in the database with this alias.

It returns why jobs were skipped, by their ids.
"""


@dataclass(frozen=True, slots=True)
class ManyResult:
    """How many jobs were done, and why the others were skipped.

    `skipped` has the number of skipped jobs for each reason.
    """

    done: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{count:,} skipped ({reason})" for reason, count in self.skipped.items()]
        return ", ".join([f"{self.done:,} done", *parts])


def in_pages(
    pages: Iterable[Sequence[int]],
    perform: Perform,
    using: str,
    *,
    skip_locked: bool = False,
) -> ManyResult:
    """Lock the jobs of page after page, and let `perform` do what is possible with them."""
    done, skipped = 0, Counter[str]()
    for ids in pages:
        with write_transaction(using):
            rows = Job.objects.using(using).filter(pk__in=ids).order_by("pk")
            rows = rows.select_related("queue", "job_type")
            page = list(locked(rows, skip_locked=skip_locked))
            reasons = perform(page, using)
        done += len(page) - len(reasons)
        skipped.update(reasons.values())
        skipped.update({_LOCKED: len(ids) - len(page)} if len(page) < len(ids) else {})
    return ManyResult(done, dict(skipped))


_LOCKED = "another transaction has locked it, or it was pruned"


def pages_of(jobs: QuerySet[Job]) -> Iterator[list[int]]:
    """Yield the ids page by page, in their order; jobs created meanwhile are not included.

    Of a sliced queryset they are read at once.
    """
    if jobs.query.is_sliced:
        yield from cut(sorted(jobs.values_list("pk", flat=True)))
        return
    ids = jobs.values_list("pk", flat=True)
    last, end = 0, ids.order_by("-pk").first() or 0
    while last < end:
        rest = ids.order_by("pk").filter(pk__gt=last, pk__lte=end).distinct()
        page = list(rest[:PAGE_SIZE])
        yield page
        last = page[-1] if page else end


def cut(ids: list[int]) -> Iterator[list[int]]:
    """Yield ids page by page."""
    for start in range(0, len(ids), PAGE_SIZE):
        yield ids[start : start + PAGE_SIZE]
