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
from hipq_django.domain.states import Outcome
from hipq_django.models import JobType, Queue
from hipq_django.monitoring.counts import newest_ended

LATELY = timedelta(hours=1)
USUALLY = timedelta(days=1)
"""The time before the last hour from which the usual shares are taken."""

SAMPLE = 2_000
"""At most this many of the newest jobs are counted for each queue and span."""

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
    """How jobs ended; those that were cancelled do not count."""

    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0

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
    is_capped: bool = False
    """Whether more jobs of the queue have ended in the last hour than were counted."""

    @property
    def is_failing(self) -> bool:
        """Whether clearly more jobs fail than usual."""
        return self._is_unusual(self.lately.failed, self.usually.failed)

    @property
    def is_timing_out(self) -> bool:
        """Whether clearly more jobs time out than usual, mostly because no answer comes."""
        return self._is_unusual(self.lately.timed_out, self.usually.timed_out)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        ended = {"ended": self.lately.ended, **asdict(self.lately), "capped": self.is_capped}
        return {
            "last_hour": ended,
            "failing": self.is_failing,
            "timing_out": self.is_timing_out,
        }

    def _is_unusual(self, number: int, usual_number: int) -> bool:
        """Whether the share is large, and clearly larger than usual.

        It has risen to three times the usual one, or the share of the other jobs has halved.
        """
        is_known = self.usually.ended >= MIN_USUAL
        usual = self.usually.share(usual_number) if is_known else 0.0
        others_halved = max((1 + usual) / 2, usual + MIN_RISE)
        much = max(MIN_SHARE, min(TIMES_USUAL * usual, others_halved))
        return number >= MIN_NUMBER and self.lately.share(number) >= much


NO_TREND = Trend()


class Trends:
    """The trends of some queues, and of their job types, counted at one moment.

    One query reads the newest final jobs of each queue in the order of an index: the cost does not
    grow with the tables.
    """

    def __init__(self, queues: Iterable[Queue], now: datetime, using: str) -> None:
        hour_ago = now - LATELY
        rows = Queue.objects.using(using).filter(pk__in=[queue.pk for queue in queues])
        counted = rows.annotate(
            lately=_ended(hour_ago, now),
            usually=_ended(hour_ago - USUALLY, hour_ago),
            last_end=Subquery(newest_ended(hour_ago - USUALLY, now).values("update_time")[:1]),
        )
        self._now = now
        self._ended = {row.pk: (_read(row.lately), _read(row.usually)) for row in counted}
        self._last_end = {row.pk: row.last_end for row in counted}

    def of(self, row: Queue | JobType) -> Trend:
        """Return the trend of a queue or of a job type."""
        queue, only = (row.pk, None) if isinstance(row, Queue) else (row.queue_id, row.pk)
        lately, usually = self._ended[queue]
        is_capped = lately.total() >= SAMPLE
        return Trend(_endings(lately, only), _endings(usually, only), is_capped)

    def quiet_seconds(self, queue: Queue) -> float | None:
        """Return for how long no job of a queue has ended; None for more than a day."""
        last = self._last_end[queue.pk]
        return (self._now - last).total_seconds() if last else None


def _ended(since: datetime, until: datetime) -> CountedPairs:
    return CountedPairs(newest_ended(since, until)[:SAMPLE], "job_type_id", "outcome")


def _read(ended: str | None) -> Counter[tuple[int, str]]:
    """Return the numbers of jobs by job type and outcome."""
    return Counter({(kind, how): number for kind, how, number in json.loads(ended or "[]")})


def _endings(ended: Counter[tuple[int, str]], only: int | None) -> Endings:
    """Return how the jobs ended, all of them or only those of a job type."""
    number = Counter[str]()
    for (kind, outcome), count in ended.items():
        if only in (None, kind):
            number[outcome] += count
    return Endings(number[Outcome.SUCCEEDED], number[Outcome.FAILED], number[Outcome.TIMED_OUT])
