"""`manage.py hipq_status`: shows queues, workers and consumers."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import no_translations

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.transactions import looks_only
from hipq_django.domain.states import NONE
from hipq_django.management.shards_command import OfShard, ShardsCommand, fail_for
from hipq_django.management.tables import Columns, table
from hipq_django.models.worker import Trouble, describe_queues
from hipq_django.monitoring.counts import format_count
from hipq_django.monitoring.endings import Trend
from hipq_django.monitoring.overview import Overview, ProcessState, QueueCounts, take


def _queue_state(queue: QueueCounts) -> str:
    held_by = {
        f"blocked: {queue.problem}": queue.problem != NONE,
        "paused": queue.paused,
        "no worker": not queue.served,
        "not answered": queue.is_unanswered,
    }
    return ", ".join(name for name, holds in held_by.items() if holds) or "served"


def _limit(queue: QueueCounts) -> str:
    """Return the limit; of a shard, what it has of it: '3 of 40'."""
    if queue.throttle_limit < 1:
        return "none"
    of = "" if queue.share is None else f"{queue.share:g} of "
    return f"{of}{queue.throttle_limit:g}"


def _process_state(process: ProcessState) -> str:
    return "silent" if process.silent else process.state


QUEUE_COLUMNS: Columns[QueueCounts] = {
    "queue": lambda queue: queue.name,
    "limit": _limit,
    "load": lambda queue: f"{queue.load:g}",
    "order": lambda queue: queue.order,
    "due": lambda queue: format_count(queue.due),
    "scheduled": lambda queue: format_count(queue.scheduled),
    "running": lambda queue: format_count(queue.running),
    "waiting for answer": lambda queue: format_count(queue.awaiting_answer),
    "in error": lambda queue: format_count(queue.in_error),
    "oldest due": lambda queue: f"{queue.oldest_due_seconds:.0f} s" if queue.due else "-",
    "state": _queue_state,
}
WORKER_COLUMNS: Columns[ProcessState] = {
    "worker": lambda worker: worker.name,
    "state": _process_state,
    "queues": lambda worker: describe_queues(worker.queues, worker.excluded_queues),
    "threads": lambda worker: str(worker.threads),
    "executing": lambda worker: str(worker.in_flight),
    "last heartbeat": lambda worker: f"{worker.heartbeat_age_seconds:.0f} s ago",
}
TROUBLE_COLUMNS: Columns[tuple[str, Trouble]] = {
    "in trouble": lambda row: row[1].name,
    "worker": lambda row: row[0],
    "for": lambda row: f"{row[1].seconds:.0f} s",
    "reason": lambda row: row[1].reason,
}
CONSUMER_COLUMNS: Columns[ProcessState] = {
    "consumer": lambda consumer: consumer.name,
    "source": lambda consumer: consumer.source,
    "state": _process_state,
    "in flight": lambda consumer: str(consumer.in_flight),
    "last heartbeat": lambda consumer: f"{consumer.heartbeat_age_seconds:.0f} s ago",
}


ENDINGS_COLUMNS: Columns[tuple[str, Trend]] = {
    "in the last hour": lambda row: row[0],
    "ended": lambda row: f"{row[1].lately.ended:,}{'+' if row[1].is_capped else ''}",
    "failed": lambda row: f"{row[1].lately.failed:,}",
    "timed out": lambda row: f"{row[1].lately.timed_out:,}",
    "more than usual": lambda row: _more_than_usual(row[1]),
}


def _more_than_usual(trend: Trend) -> str:
    told = {"failing": trend.is_failing, "timing out": trend.is_timing_out}
    return ", ".join(word for word, is_so in told.items() if is_so) or "-"


NO_QUEUES = "No queues; a worker that starts writes down those of its code and settings."


class Command(ShardsCommand):
    """Prints queues, limits, counts, the oldest due job, the workers and consumers."""

    help = "Show queues, limits, counts, the oldest due job, the workers and consumers."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    @no_translations
    def run(self, options: dict[str, Any]) -> None:
        """Look once and print.

        Nothing is written: the machine may still have the settings of the last release.
        """
        found = self.in_each_shard(options["shard"], _look)
        if self.config.is_sharded:
            shown, tables = {"shards": [_as_dict(each) for each in found]}, _tables_of_all(found)
        else:
            shown, tables = found[0].result.as_dict(), _tables(found[0].result)
        self.stdout.write(json.dumps(shown, indent=2) if options["json"] else tables)
        fail_for(found)


def _look(config: InstanceSettings) -> Overview:
    with looks_only(config.database):
        return take(config)


def _as_dict(found: OfShard) -> dict[str, Any]:
    place = {"number": found.shard.number, "alias": found.shard.alias}
    view = found.result.as_dict() if found.result else {}
    return {**place, "problem": found.problem or None, **view}


def _tables_of_all(found: Sequence[OfShard]) -> str:
    return "\n\n".join(
        f"Shard {each.shard.number}: {each.shard.alias}\n\n"
        + (_tables(each.result) if each.result else each.problem)
        for each in found
    )


def _tables(overview: Overview) -> str:
    workers, consumers = overview.workers, overview.consumers
    rows = [(f"queue {queue.name}", queue.trend) for queue in overview.queues]
    troubles = [(worker.name, one) for worker in workers for one in worker.troubles]
    rows += [(f"job type {job_type.name}", job_type.trend) for job_type in overview.job_types]
    endings = [row for row in rows if row[1].lately.ended]
    return "\n".join(
        [
            table(QUEUE_COLUMNS, overview.queues) if overview.queues else NO_QUEUES,
            "",
            table(WORKER_COLUMNS, workers) if workers else "No worker is running.",
            *(["", table(TROUBLE_COLUMNS, troubles)] if troubles else []),
            *(["", table(CONSUMER_COLUMNS, consumers)] if consumers else []),
            *(["", table(ENDINGS_COLUMNS, endings)] if endings else []),
            "",
            f"Answers without a job: {format_count(overview.unmatched_answers)}",
            f"Malformed messages: {format_count(overview.malformed_messages)}",
            *[f"{name.capitalize()}: {_listed(found)}" for name, found in overview.others.items()],
        ]
    )


def _listed(found: Mapping[str, float]) -> str:
    """Return what an app above the queue has counted: '2 queued, 1 failed, oldest wake 5 s'."""
    return ", ".join(_said(name.replace("_", " "), number) for name, number in found.items())


def _said(name: str, number: float) -> str:
    if name.endswith(" seconds"):
        return f"{name.removesuffix(' seconds')} {number:g} s"
    return f"{number:g} {name}"
