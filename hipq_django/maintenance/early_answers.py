"""Early answers whose jobs have come since, and those whose time to live is over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db.models import Exists, Max, OuterRef, QuerySet

from hipq_django.answers import early
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.errors import SkippedRowError
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.states import AnswerStatus, State
from hipq_django.engines import engine_for
from hipq_django.engines.values import EarlyPlace
from hipq_django.job_types.registry import get_all_declared, names_of
from hipq_django.models import Answer, Job, JobType

PAGE_SIZE = 500
"""How many answers one call gives to jobs."""

TOGETHER = 20
"""To how many jobs they are given in one transaction, which locks the jobs."""

EARLY_PAGE = 1_000
"""How many early answers of any age are compared with the jobs at once."""

EARLY_NEW = 2_000
"""How many new answers are."""

EARLY_IDS = 5_000
"""How many of the last ids may be those of new answers; the pages come to the others."""


class EarlyAnswers:
    """Gives early answers to jobs that have come since, or that were claimed at the same moment.

    A job takes an early answer at its claim, and the answer keeps it from waiting for windows or
    throttlers. An answer that comes while the job's enqueue, or its claim, is not yet committed
    sees no running job, and that claim does not see the answer. Such a pair is found here, mostly
    among the newest answers; each call looks at a page of the others as well.
    """

    def __init__(self, config: InstanceSettings) -> None:
        self._config = config
        self._after = EarlyPlace()
        self.left_alone: Isolation[_Place] = Isolation(
            "match_early", lambda place: {"job_key": place[1]}, most=TOGETHER
        )
        self._after_other: dict[str, str] = {}
        """The last key that was compared with jobs of other names, by the answers' job types."""

    def match(self) -> int:
        """Look at the newest ones and the next page; return how many got their job."""
        engine = engine_for(self._config.database)
        if not engine.has_early(self._config.name):
            self._after = EarlyPlace()
            self._after_other.clear()
            return 0
        found, last = engine.early_page(self._config.name, self._after, EARLY_PAGE)
        if len(found) > PAGE_SIZE:
            found, last = found[:PAGE_SIZE], found[PAGE_SIZE - 1]
        matched = self._match([place.answer_id for place in found])
        self._after = last or EarlyPlace()
        new = engine.new_early(self._config.name, self._before_the_newest(), EARLY_NEW)
        return matched + self._match(new[:PAGE_SIZE]) + self._match_other_names()

    def _match_other_names(self) -> int:
        """Give answers to jobs that have begun under another name of their type."""
        types = [each for each in get_all_declared(self._config.name) if each.aliases]
        names = [(each.name, *each.aliases) for each in types]
        return sum(self._match(self._begun(name, every)) for every in names for name in every)

    def _begun(self, name: str, names: Sequence[str]) -> list[int]:
        """Return those of the next answers under a name whose job has begun under any of `names`.

        They are read in the order of the index of early answers, and only that is.
        """
        using, instance, after = self._config.database, self._config.name, self._after_other
        rows = Answer.objects.using(using).filter(instance=instance, status=AnswerStatus.EARLY)
        rows = rows.filter(job=None, job_type=name, job_key__gt=after.get(name, ""))
        page = list(rows.order_by("job_key").values_list("pk", "job_key")[:PAGE_SIZE])
        after[name] = page[-1][1] if len(page) == PAGE_SIZE else ""
        if not page:
            return []
        types = JobType.objects.using(using).filter(instance=instance, name__in=names)
        jobs = Job.objects.using(using).filter(job_key__in={key for _, key in page})
        jobs = jobs.filter(job_type__in=types).keyed()
        begun = (jobs.live().exclude(state=State.INITIAL), jobs.final())
        keys = {key for rows in begun for key in rows.values_list("job_key", flat=True)}
        return [pk for pk, key in page if key in keys]

    def _before_the_newest(self) -> int:
        """Return the id of an answer that is older than an answer usually takes to commit."""
        rows = Answer.objects.using(self._config.database)
        newest: int = rows.aggregate(newest=Max("pk"))["newest"] or 0
        return max(newest - EARLY_IDS, 0)

    def _match(self, ids: Sequence[int]) -> int:
        using, now = self._config.database, clock.now(self._config.database)
        fresh = early.fresh_early(self._config.name, now, using)
        places: dict[_Place, list[int]] = {}
        for answer in fresh.filter(pk__in=ids).order_by("pk"):
            places.setdefault(_place_of(answer), []).append(answer.pk)

        def match(some: Sequence[_Place]) -> int:
            with worker_transaction(using):
                answers = fresh.filter(pk__in=[pk for place in some for pk in places[place]])
                return sum(
                    early.match(answer, now, using, skip_locked=True)
                    for answer in answers.order_by("pk")  # the first to a job settles it
                )

        free = [place for place in places if place not in self.left_alone.ids]
        return self.left_alone.move(free, match)

    @property
    def is_at_the_beginning(self) -> bool:
        """Whether all answers have been looked at."""
        return self._after == EarlyPlace() and not any(self._after_other.values())


_Place = tuple[frozenset[str], str]
"""What the answers to one job have in common: the names of its type, and its key."""


def _place_of(answer: Answer) -> _Place:
    return frozenset(names_of(answer.instance, answer.job_type)), answer.job_key


def match_early(config: InstanceSettings) -> int:
    """Look at all early answers once; return how many got their job."""
    answers = EarlyAnswers(config)
    matched = answers.match()
    while not answers.is_at_the_beginning:
        matched += answers.match()
    return matched


def expire_early(config: InstanceSettings, left_alone: Isolation[int] | None = None) -> int:
    """Mark the early answers whose time to live is over as unmatched; return how many.

    Parts that waited for a job which ended without them are late.
    """
    using, left_alone = config.database, left_alone or Isolation("expire_early", "answer_id")
    limit = clock.now(using) - timedelta(seconds=config.answer_ttl_seconds)
    waiting = Answer.objects.using(using).filter(instance=config.name, status=Answer.Status.EARLY)
    ended = Job.objects.using(using).final().filter(pk=OuterRef("job"))
    _mark(waiting.filter(Exists(ended), job__isnull=False), Answer.Status.LATE, left_alone)
    expired = waiting.filter(job__isnull=True, receive_time__lte=limit)
    return _mark(expired, Answer.Status.UNMATCHED, left_alone)


def _mark(answers: QuerySet[Answer], status: AnswerStatus, left_alone: Isolation[int]) -> int:
    """Give answers their last status; return how many. Rows that others have locked are left."""
    answers = answers.exclude(pk__in=left_alone.ids)
    # In the order of the index of early answers, or PostgreSQL may believe in many, and read all.
    first = answers.order_by("job_type", "job_key").values_list("pk", flat=True)[:EARLY_PAGE]
    page = sorted(first)
    return left_alone.move(page, lambda ids: _mark_free(answers.filter(pk__in=ids), status))


def _mark_free(answers: QuerySet[Answer], status: AnswerStatus) -> int:
    with worker_transaction(answers.db):
        free = list(locked(answers, skip_locked=True).values_list("pk", flat=True))
        marked = Answer.objects.using(answers.db).filter(pk__in=free).update(status=status)
        if marked < len(free):
            raise SkippedRowError
    return marked
