"""What the doctor says of workers and consumers."""

from __future__ import annotations

from collections.abc import Iterator

from hipq_django.conf.instances import InstanceSettings
from hipq_django.models.worker import Trouble, Worker
from hipq_django.monitoring.commands import command
from hipq_django.monitoring.counts import format_count
from hipq_django.monitoring.doctor.findings import Finding, Level, problem, span, warning
from hipq_django.monitoring.overview import Overview

LONG_SECONDS = 60.0
"""How long a trouble may last: what is tried again may succeed."""


def findings(config: InstanceSettings, view: Overview) -> Iterator[Finding]:
    """Yield which processes are silent or in trouble, and which sources nobody reads."""
    for worker in view.workers:
        if worker.silent:
            yield problem(
                "silent_worker",
                f"worker {worker.name}",
                f"no heartbeat for {span(worker.heartbeat_age_seconds)}; it had "
                f"{worker.in_flight:,} jobs in flight.",
                "A live worker of the instance would have taken its jobs over, but there is none.",
                "Start a worker; the log of this one says why it stopped.",
            )
        yield from (_in_trouble(worker.name, trouble) for trouble in worker.troubles)
    for consumer in view.consumers:
        if consumer.silent:
            yield problem(
                "silent_consumer",
                f"consumer {consumer.name}",
                f"no heartbeat for {span(consumer.heartbeat_age_seconds)}; it had "
                f"{consumer.in_flight:,} messages of source {consumer.source} in flight.",
                "The broker delivers its unacknowledged messages to the next consumer.",
                f"Its log says why it stopped; start it again: {_consume(config, consumer.source)}",
            )
    read = {consumer.source for consumer in view.consumers if not consumer.silent}
    yield from (_unread(config, source, view) for source in config.sources if source not in read)


def _in_trouble(worker: str, trouble: Trouble) -> Finding:
    if trouble.name == Worker.HELD:
        return warning(
            "threads_held",
            f"worker {worker}",
            f"{trouble.reason}, for {span(trouble.seconds)}.",
            "Their handlers have not returned, and other jobs do not get these threads.",
            "Restart the worker, which frees its threads. Give each call of the handlers of these "
            "jobs a timeout of its own.",
        )
    return Finding(
        Level.PROBLEM if trouble.seconds >= LONG_SECONDS else Level.WARNING,
        "worker_trouble",
        f"worker {worker}",
        f"{trouble.name} has failed or hung for {span(trouble.seconds)}: {trouble.reason}",
        "It is tried again and again; the worker's other duties, and its queues, go on unless the "
        "whole pass is in trouble.",
        "See the worker's log around that time; correct the cause, and restart the worker if it "
        "hangs.",
    )


def _unread(config: InstanceSettings, source: str, view: Overview) -> Finding:
    awaiting = sum(queue.awaiting_answer for queue in view.queues)
    return Finding(
        Level.PROBLEM if awaiting else Level.WARNING,
        "no_consumer",
        f"source {source}",
        f"no consumer reads it; {format_count(awaiting)} jobs wait for an answer.",
        "Answers that come this way stay with the broker, and their jobs time out.",
        f"Start one: {_consume(config, source)}",
    )


def _consume(config: InstanceSettings, source: str) -> str:
    return command("hipq_consume", source, instance=config.name)
