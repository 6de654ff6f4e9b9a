"""How long jobs wait for their answers: usually, and those that nobody has answered yet."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain

from django.db.models import Case, OuterRef, Subquery, When

from hipq_django.database.lookups import AsJson, CountedPairs
from hipq_django.domain.states import AnswerStatus
from hipq_django.domain.validation import started
from hipq_django.models import Answer, Job, Queue
from hipq_django.monitoring.counts import COUNT_LIMIT, awaiting_answer, newest_ended

LONG_SECONDS = 900.0
"""No shorter wait is called long, however quickly answers usually come."""

TIMES_USUAL = 3.0

MIN_UNANSWERED = 10
"""Fewer jobs may be among those that are lost now and then."""

MIN_ANSWERED = 20
"""With fewer answered jobs to learn from, nothing is known of what is usual."""

SPANS = tuple(timedelta(hours=2**number) for number in range(9))
"""The ages between which answered jobs are looked at: one hour, two, four, up to ten days.

So what is usual stays known while nobody answers, even if other jobs of the queue end by the
thousand, and the waits of a night or a weekend are known too.
"""

SAMPLE = 100
"""At most this many of the newest final jobs are looked at, for each queue and span."""

NEWEST = 200
"""At most this many of the newest answers are looked at, of all queues together.

For many more PostgreSQL would sort the table where it guesses wrongly how large it is.
"""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Jobs that were sent after the last answer and have waited far longer than usual.

    Jobs sent before the last answer do not count: others were answered since, so that some are
    lost, or take longer, is no sign of silence. `quiet_seconds` is the time since the last answer,
    `longest_seconds` the longest that a job usually waits; 0 where that is not known.
    """

    number: int = 0
    quiet_seconds: float = 0.0
    longest_seconds: float = 0.0

    @property
    def patience_seconds(self) -> float:
        """From when on a wait is far longer than usual."""
        return max(LONG_SECONDS, TIMES_USUAL * self.longest_seconds)

    @classmethod
    def together(cls, parts: Sequence[Unanswered]) -> Unanswered:
        """Return what there is to say of several job types, or of several queues."""
        return cls(
            sum(part.number for part in parts),
            min((part.quiet_seconds for part in parts if part.number), default=0.0),
            max((part.longest_seconds for part in parts), default=0.0),
        )


NOT_KNOWN = Unanswered()


def long_waits(now: datetime) -> CountedPairs:
    """Return how many jobs of each type wait for long, and how many not, of a query of queues."""
    since = now - timedelta(seconds=LONG_SECONDS)
    return _waits(When(update_time__lte=since, then=1))


def has_long_waits(counted: str | None) -> bool:
    """Return whether there are any in what was counted."""
    return any(is_long for _, is_long, _ in json.loads(counted or "[]"))


def unanswered(
    queues: Collection[int], now: datetime, using: str
) -> dict[tuple[int, int], Unanswered]:
    """Return the unanswered jobs of some queues by the ids of queue and job type.

    Those of types of which it is known what is usual. There are three queries at most, whose cost
    does not grow with the tables.
    """
    usual = _usual(queues, now, using)
    if not usual:
        return {}
    found: dict[tuple[int, int], Unanswered] = {}
    is_long = [
        When(
            job_type=kind,
            update_time__gt=now - timedelta(seconds=of_type.quiet_seconds),
            update_time__lte=now - timedelta(seconds=of_type.patience_seconds),
            then=1,
        )
        for kind, of_type in usual.items()
    ]
    rows = Queue.objects.using(using).filter(pk__in=queues).annotate(waits=_waits(*is_long))
    for queue, waits in rows.values_list("pk", "waits"):
        for kind, counts, number in json.loads(waits or "[]"):
            if kind in usual and (counts or (queue, kind) not in found):
                found[queue, kind] = replace(usual[kind], number=number if counts else 0)
    return found


def _waits(*is_long: When) -> CountedPairs:
    """Count the waiting jobs of a queue, those first whose deadline comes first.

    A job's `update_time` is when it began to wait, or when its deadline was moved since.
    """
    running = Job.objects.running().filter(queue=OuterRef("pk"))
    waiting = awaiting_answer(running).order_by("deadline")
    first = waiting.annotate(is_long=Case(*is_long, default=0))[: COUNT_LIMIT + 1]
    return CountedPairs(first, "job_type_id", "is_long")


def _usual(queues: Collection[int], now: datetime, using: str) -> dict[int, Unanswered]:
    """Return what is usual by the ids of job types, where enough of the sample was answered."""
    waits: dict[int, list[float]] = defaultdict(list)
    last = _last_answers(using)
    for kind, began, received in _sample(queues, now, using):
        waits[kind].append((received - began).total_seconds())
        last[kind] = max(last.get(kind, received), received)
    return {
        kind: Unanswered(0, (now - last[kind]).total_seconds(), max(0.0, *of_type))
        for kind, of_type in waits.items()
        if len(of_type) >= MIN_ANSWERED
    }


def _sample(
    queues: Collection[int], now: datetime, using: str
) -> Iterator[tuple[int, datetime, datetime]]:
    """Yield the answered ones of the newest final jobs: type, begin of the attempt, last answer."""
    answers = Answer.objects.filter(job=OuterRef("pk"), status=AnswerStatus.ACCEPTED)
    received = Subquery(answers.order_by("-receive_time").values("receive_time")[:1])
    columns = "job_type_id", "received", "deadline", "timeout", "extended_seconds"
    spans, until = {}, now
    for number, span in enumerate(SPANS):
        newest = newest_ended(now - span, until).annotate(received=received)[:SAMPLE]
        spans[f"span_{number}"] = AsJson(newest, *columns)
        until = now - span
    rows = Queue.objects.using(using).filter(pk__in=queues).annotate(**spans)
    for jobs in chain.from_iterable(rows.values_list(*spans)):
        for kind, answer, deadline, timeout, extended in json.loads(jobs or "[]"):
            if answer is not None:
                began = started(_moment(deadline), timeout, extended)
                yield kind, began, _moment(answer)


def _moment(text: str) -> datetime:
    """Return a moment as a database writes it into JSON: SQLite keeps those of UTC."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _last_answers(using: str) -> dict[int, datetime]:
    """Return when jobs were last answered, also too late or by an error, by ids of job types.

    Of a type that is not among the newest answers, the sample may tell.
    """
    kinds = Job.objects.filter(pk=OuterRef("job_id")).values("job_type_id")
    newest = Answer.objects.using(using).order_by("-pk").annotate(job_kind=Subquery(kinds))
    rows = newest.values_list("job_kind", "receive_time")[:NEWEST]
    return {kind: received for kind, received in reversed(rows) if kind is not None}
