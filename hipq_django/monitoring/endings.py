"""How jobs have ended lately, and how they usually do: whether a queue or a type is failing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Subquery

from hipq_django.database.lookups import CountedPairs
from hipq_django.domain.states import Outcome, State
from hipq_django.models import Attempt, JobType, Queue
from hipq_django.monitoring.counts import newest_ended

LATELY = timedelta(hours=1)
USUALLY = timedelta(days=1)
"""The time before the last hour from which the usual shares are taken."""

SAMPLE = 2_000
"""At most this many of the newest jobs are counted for each queue and span."""

RETRIES = 10_000
"""At most this many of the newest failed attempts are looked at, of all queues together."""

MIN_NUMBER = 10
"""With fewer failed jobs there is no trend."""
MIN_SHARE = 0.1
TIMES_USUAL = 3.0
MIN_RISE = 0.1
"""Where nearly all jobs fail usually, so much more is clearly more."""
MIN_USUAL = 20
"""With fewer jobs to learn from, nothing is known of what is usual."""


@dataclass(frozen=True, slots=True)
class Endings:
    """How jobs ended; those that were cancelled do not count.

    `retried` are the failed attempts after which the job was tried again; `retried_capped` says
    that more were than were counted.
    """

    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    retried: int = 0
    retried_capped: bool = False

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
    covered_seconds: float = 0.0
    """In which time the jobs of the last hour ended, where only the newest were counted; else 0."""

    @property
    def is_failing(self) -> bool:
        """Whether clearly more jobs fail than usual."""
        return self._is_unusual(self.lately.failed, self.usually.failed)

    @property
    def is_timing_out(self) -> bool:
        """Whether clearly more jobs time out than usual, mostly because no answer comes."""
        return self._is_unusual(self.lately.timed_out, self.usually.timed_out)

    @property
    def is_too_short(self) -> bool:
        """Whether too few jobs have ended, lately or usually, to tell."""
        if self.is_failing or self.is_timing_out:
            return False
        if self.usually.ended < MIN_USUAL:
            return True
        lately, usually = self.lately, self.usually
        return self._may_be_much(lately.failed, usually.failed) or self._may_be_much(
            lately.timed_out, usually.timed_out
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        covered = {"capped": self.covered_seconds > 0, "covered_seconds": self.covered_seconds}
        last_hour = {"ended": self.lately.ended, **asdict(self.lately), **covered}
        return {
            "last_hour": last_hour,
            "failing": self.is_failing,
            "timing_out": self.is_timing_out,
            "too_few_to_tell": self.is_too_short,
        }

    def _is_unusual(self, number: int, usual_number: int) -> bool:
        return number >= MIN_NUMBER and self._is_much(number, usual_number)

    def _may_be_much(self, number: int, usual_number: int) -> bool:
        return 0 < number < MIN_NUMBER and self._is_much(number, usual_number)

    def _is_much(self, number: int, usual_number: int) -> bool:
        """Whether the share is large, and clearly larger than usual.

        It has risen to three times the usual one, or the share of the other jobs has halved.
        """
        is_known = self.usually.ended >= MIN_USUAL
        usual = self.usually.share(usual_number) if is_known else 0.0
        others_halved = max((1 + usual) / 2, usual + MIN_RISE)
        much = max(MIN_SHARE, min(TIMES_USUAL * usual, others_halved))
        return self.lately.share(number) >= much


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
        self._covered: dict[int, float] = {}
        hour_ago = now - LATELY
        rows = Queue.objects.using(using).filter(pk__in=[queue.pk for queue in queues])
        counted = rows.annotate(
            lately=_ended(hour_ago, now),
            usually=_ended(hour_ago - USUALLY, hour_ago),
            since=Subquery(newest_ended(hour_ago, now).values("update_time")[SAMPLE - 1 : SAMPLE]),
            last_end=Subquery(newest_ended(hour_ago - USUALLY, now).values("update_time")[:1]),
        )
        for pk, lately, usually, since, last_end in counted.values_list(
            "pk", "lately", "usually", "since", "last_end"
        ):
            self._covered[pk] = (now - since).total_seconds() if since else 0.0
            self._lately.add(pk, lately)
            self._usually.add(pk, usually)
            self._last_end[pk] = last_end
        self._count_retries()

    def of(self, row: Queue | JobType) -> Trend:
        """Return the trend of a queue or of a job type."""
        queue = row.pk if isinstance(row, Queue) else row.queue_id
        covered = self._covered.get(queue, 0.0)
        return Trend(self._lately.endings(row), self._usually.endings(row), covered)

    def quiet_seconds(self, queue: Queue) -> float | None:
        """Return for how long no job of a queue has ended; None for more than a day."""
        last = self._last_end.get(queue.pk)
        return (self._now - last).total_seconds() if last else None

    def _count_retries(self) -> None:
        """Count the failed attempts after which the job was tried again.

        The newest are read before their time is looked at: otherwise, in an hour with few of
        them, the whole table would be. If even the oldest of them is of this hour, there are more,
        and nobody knows in which queues.
        """
        newest = Attempt.objects.using(self._using).order_by("-pk")
        columns = "end_time", "attempt", "job__attempt", "job__state", "job__queue", "job__job_type"
        rows = newest.values_list(*columns)[:RETRIES]
        hour_ago, end = self._now - LATELY, self._now
        for end, attempt, last, state, queue, kind in rows:
            if end > hour_ago and (attempt < last or state == State.RETRY):
                self._lately.add_retry(queue, kind)
        self._lately.retried_capped = len(rows) == RETRIES and end > hour_ago


def _ended(since: datetime, until: datetime) -> CountedPairs:
    return CountedPairs(newest_ended(since, until)[:SAMPLE], "job_type_id", "outcome")


class _Counts:
    """How many jobs of each queue and of each job type ended how."""

    def __init__(self) -> None:
        self._number: Counter[tuple[type[Queue | JobType], int, str]] = Counter()
        self.retried_capped = False
        """Whether more attempts were retried than were counted."""

    def add(self, queue_id: int, ended: str | None) -> None:
        """Count the jobs of a queue that ended: type, outcome and number, as JSON."""
        for type_id, outcome, number in json.loads(ended or "[]"):
            self._add(queue_id, type_id, outcome, number)

    def add_retry(self, queue_id: int, type_id: int) -> None:
        """Count a failed attempt after which the job was tried again."""
        self._add(queue_id, type_id, "retried", 1)

    def _add(self, queue_id: int, type_id: int, what: str, number: int) -> None:
        self._number[Queue, queue_id, what] += number
        self._number[JobType, type_id, what] += number

    def endings(self, row: Queue | JobType) -> Endings:
        """Return how the jobs of a queue or a job type ended."""
        number = {what: self._number[type(row), row.pk, what] for what in _COUNTED}
        return Endings(**number, retried_capped=self.retried_capped)


_COUNTED = (Outcome.SUCCEEDED.value, Outcome.FAILED.value, Outcome.TIMED_OUT.value, "retried")
