"""Finding jobs by their key or id, both whole, so that indexes find them among millions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django.admin.base import is_id
from hipq_django.domain.states import NONE, State
from hipq_django.models import JobType

if TYPE_CHECKING:
    from django.db.models import QuerySet

MAX_FOUND = 1_000


def find(jobs: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the jobs with exactly this key, or this id."""
    ids = _with_key(jobs, term) if term != NONE else []
    if is_id(term):
        ids.append(int(term))
    return jobs.filter(pk__in=ids)


def _with_key(jobs: Any, key: str) -> list[int]:
    """Ask each of the two indexes of keys, in the words of its condition.

    One has the live jobs and one the final jobs; both begin with the job type.
    """
    types = list(JobType.objects.using(jobs.db).values_list("pk", flat=True))
    keyed = jobs.filter(job_type__in=types, job_key=key).keyed().order_by("-pk")
    found: list[int] = []
    for part in (keyed.exclude(state=State.FINAL), keyed.final()):
        found += part.values_list("pk", flat=True)[:MAX_FOUND]
    return found
