"""`manage.py hipq_status`: what stands in the queues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.states import NONE
from hipq_django.exceptions import HipqError
from hipq_django.models import catalog
from hipq_django.monitoring.counts import format_count
from hipq_django.monitoring.overview import Overview, QueueCounts, WorkerState, look
from hipq_django.processes.start_up import why_failed

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

QUEUE_HEADS = (
    "queue", "limit", "load", "order", "due", "scheduled", "running", "waiting for answer",
    "in error", "oldest due", "state",
)  # fmt: skip
WORKER_HEADS = ("worker", "state", "queues", "threads", "executing", "last heartbeat")
CONSUMER_HEADS = ("consumer", "source", "state", "in flight", "last heartbeat")


class Command(BaseCommand):
    """Prints queues, limits, counts, the oldest due job, the workers and consumers."""

    help = "Show queues, limits, counts, the oldest due job, the workers and consumers."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--instance", default=DEFAULT, help="The hipq instance; %(default)s.")
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look once and print."""
        try:
            config = get_instance(options["instance"])
            catalog.sync(config.name)
            overview = look(config)
        except HipqError as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(why_failed(config, error)) from error
        text = json.dumps(overview.as_dict(), indent=2) if options["json"] else _tables(overview)
        self.stdout.write(text)


def _tables(overview: Overview) -> str:
    workers = _table(WORKER_HEADS, [_worker_row(worker) for worker in overview.workers])
    return "\n".join(
        [
            _table(QUEUE_HEADS, [_queue_row(queue) for queue in overview.queues]),
            "",
            workers if overview.workers else "No worker is running.",
            *_consumers(overview),
            "",
            f"Answers without a job: {format_count(overview.unmatched_answers)}",
            f"Malformed messages: {format_count(overview.malformed_messages)}",
        ]
    )


def _consumers(overview: Overview) -> list[str]:
    rows = [
        [c.name, c.source, c.state, str(c.in_flight), f"{c.heartbeat_age_seconds:.0f} s ago"]
        for c in overview.consumers
    ]
    return ["", _table(CONSUMER_HEADS, rows)] if rows else []


def _queue_row(queue: QueueCounts) -> list[str]:
    limit = f"{queue.throttle_limit:g}" if queue.throttle_limit >= 1 else "none"
    return [
        queue.name,
        limit,
        f"{queue.load:g}",
        queue.order,
        *map(format_count, (queue.due, queue.scheduled, queue.running)),
        format_count(queue.awaiting_answer),
        format_count(queue.in_error),
        f"{queue.oldest_due_seconds:.0f} s" if queue.due else "-",
        _queue_state(queue),
    ]


def _queue_state(queue: QueueCounts) -> str:
    if queue.problem != NONE:
        return f"held: {queue.problem}"
    if queue.paused:
        return "paused"
    return "served" if queue.served else "no worker"


def _worker_row(worker: WorkerState) -> list[str]:
    return [
        worker.name,
        "silent" if worker.silent else worker.state,
        ", ".join(worker.queues) or "all",
        str(worker.threads),
        str(worker.executing),
        f"{worker.heartbeat_age_seconds:.0f} s ago",
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
