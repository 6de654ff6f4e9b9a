"""How jobs have ended lately, and how they usually do: whether a queue or a type is failing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery, TextField

from hipq_django.domain.states import Outcome, State
from hipq_django.models import Attempt, Job, JobType, Queue

LATELY = timedelta(hours=1)
USUALLY = timedelta(days=1)
"""What is usual is learned from so long a time before the last hour."""

SAMPLE = 2_000
"""At most so many of the newest are counted, of each queue and span, however many there are."""

MIN_NUMBER = 10
"""Fewer are no trend."""
MIN_SHARE = 0.1
TIMES_USUAL = 3.0
MIN_USUAL = 20
"""With fewer jobs to learn from, nothing is known of what is usual."""


@dataclass(frozen=True, slots=True)
class Endings:
    """How jobs ended; those that were cancelled do not count.

    `retried` are the failed attempts after which the job was tried again. `capped` says that more
    jobs ended than were counted, and that these are the newest.
    """

    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    retried: int = 0
    capped: bool = False

    @property
    def ended(self) -> int:
        """How many jobs became final."""
        return self.succeeded + self.failed + self.timed_out

    def share(self, number: int) -> float:
        """Return how large a part of those that ended `number` is."""
        return number / self.ended if self.ended else 0.0


@dataclass(frozen=True, slots=True)
class Trend:
    """The last hour of a queue or a job type, beside the day before it."""

    lately: Endings = Endings()
    usually: Endings = Endings()

    @property
    def is_failing(self) -> bool:
        """Whether clearly more jobs fail than usual."""
        return self._is_unusual(self.lately.failed, self.usually.failed)

    @property
    def is_timing_out(self) -> bool:
        """Whether clearly more jobs time out than usual: mostly, are not answered."""
        return self._is_unusual(self.lately.timed_out, self.usually.timed_out)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        last_hour = {"ended": self.lately.ended, **asdict(self.lately)}
        return {
            "last_hour": last_hour,
            "failing": self.is_failing,
            "timing_out": self.is_timing_out,
        }

    def _is_unusual(self, number: int, usual_number: int) -> bool:
        is_known = self.usually.ended >= MIN_USUAL
        usual = self.usually.share(usual_number) if is_known else 0.0
        share = self.lately.share(number)
        return number >= MIN_NUMBER and share >= max(MIN_SHARE, TIMES_USUAL * usual)


NO_TREND = Trend()


class Trends:
    """The trends of some queues, and of their job types, counted at one moment.

    One query for the queues, which reads the newest final jobs of each in the order of an index,
    and one for the retries: the cost does not grow with the tables.
    """

    def __init__(self, queues: Iterable[Queue], now: datetime, using: str) -> None:
        self._using, self._now = using, now
        self._lately, self._usually = _Counts(), _Counts()
        self._last_end: dict[int, datetime | None] = {}
        hour_ago = now - LATELY
        rows = Queue.objects.using(using).filter(pk__in=[queue.pk for queue in queues])
        counted = rows.annotate(
            lately=_ended(hour_ago, now),
            usually=_ended(hour_ago - USUALLY, hour_ago),
            last_end=Subquery(_final(hour_ago - USUALLY, now).values("update_time")[:1]),
        )
        for pk, lately, usually, last_end in counted.values_list(
            "pk", "lately", "usually", "last_end"
        ):
            self._lately.add(pk, lately)
            self._usually.add(pk, usually)
            self._last_end[pk] = last_end
        for queue_id, type_id in self._retried():
            self._lately.add_retry(queue_id, type_id)

    def of(self, row: Queue | JobType) -> Trend:
        """Return the trend of a queue or of a job type."""
        return Trend(self._lately.endings(row), self._usually.endings(row))

    def quiet_seconds(self, queue: Queue) -> float | None:
        """Return for how long no job of a queue has ended; None for more than a day."""
        last = self._last_end.get(queue.pk)
        return (self._now - last).total_seconds() if last else None

    def _retried(self) -> Iterator[tuple[int, int]]:
        """Yield queue and type of the failed attempts after which the job was tried again.

        The newest are read before their time is looked at: otherwise, in an hour with few of
        them, the whole table would be.
        """
        newest = Attempt.objects.using(self._using).order_by("-pk")
        columns = "end_time", "attempt", "job__attempt", "job__state", "job__queue", "job__job_type"
        for end, attempt, last, state, queue, kind in newest.values_list(*columns)[:SAMPLE]:
            if end > self._now - LATELY and (attempt < last or state == State.RETRY):
                yield queue, kind


class _CountedEnds(Subquery):
    """Type, outcome and number of the rows of a subquery, as a list in JSON."""

    template = (
        "(SELECT json_agg(json_build_array(kind, how, number))::text FROM ("
        "SELECT kind, how, COUNT(*) AS number FROM (%(subquery)s) newest GROUP BY kind, how"
        ") counted)"
    )

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Say it in SQLite's words."""
        template = self.template.replace("json_agg", "json_group_array")
        template = template.replace("json_build_array", "json_array").replace("::text", "")
        return self.as_sql(compiler, connection, template, **context)


def _final(since: datetime, until: datetime) -> QuerySet[Job]:
    """Return the jobs of a queue that ended in a span, the newest first."""
    jobs = Job.objects.final().filter(queue=OuterRef("pk"))
    return jobs.filter(update_time__gt=since, update_time__lte=until).order_by("-update_time")


def _ended(since: datetime, until: datetime) -> _CountedEnds:
    newest = _final(since, until).values(kind=F("job_type_id"), how=F("outcome"))[:SAMPLE]
    return _CountedEnds(newest, output_field=TextField())


class _Counts:
    """How many jobs of each queue and of each job type ended how."""

    def __init__(self) -> None:
        self._number: Counter[tuple[type[Queue | JobType], int, str]] = Counter()

    def add(self, queue_id: int, ended: str | None) -> None:
        """Count the jobs of a queue that ended: type, outcome and number, as JSON."""
        rows = json.loads(ended or "[]")
        is_capped = sum(number for _, _, number in rows) == SAMPLE
        for type_id, outcome, number in rows:
            self._add(queue_id, type_id, outcome, number)
            self._add(queue_id, type_id, "capped", int(is_capped))

    def add_retry(self, queue_id: int, type_id: int) -> None:
        """Count a failed attempt after which the job was tried again."""
        self._add(queue_id, type_id, "retried", 1)

    def _add(self, queue_id: int, type_id: int, what: str, number: int) -> None:
        self._number[Queue, queue_id, what] += number
        self._number[JobType, type_id, what] += number

    def endings(self, row: Queue | JobType) -> Endings:
        """Return what was counted of a queue or a job type."""
        number = {what: self._number[type(row), row.pk, what] for what in _COUNTED}
        return Endings(**number, capped=bool(self._number[type(row), row.pk, "capped"]))


_COUNTED = (Outcome.SUCCEEDED.value, Outcome.FAILED.value, Outcome.TIMED_OUT.value, "retried")
