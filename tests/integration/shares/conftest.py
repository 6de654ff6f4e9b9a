"""What the tests with several shards share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from hipq_django.conf.instances import get_instance
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.shares import Holding, Visit
from hipq_django.models import Job, JobType, Queue, ShardMap
from hipq_django.models.catalog import queue_of
from hipq_django.sharing import pulling
from hipq_django.sharing.visits import ShardedQueue
from tests.concurrency.conftest import session
from tests.databases import make, on_server
from tests.factories import JobFactory
from tests.plugin import TEMPLATE

__all__ = ["session"]

LIMIT = 10


class Bank:
    """A queue of the limit 10 in several shards."""

    def __init__(self, aliases: Sequence[str]) -> None:
        self.aliases = aliases
        self.config = get_instance()
        self.queue = ShardedQueue(self.config, "bank", aliases)

    def row(self, number: int) -> Queue:
        return queue_of(self.config.on(self.aliases[number]), "bank")

    def add(self, number: int, jobs: int, factor: float = 1, state: str = "initial") -> None:
        """Let jobs be due, or run, in a shard."""
        alias, queue = self.aliases[number], self.row(number)
        job_type, _ = JobType.objects.using(alias).get_or_create(
            instance="default", name="pay", defaults={"queue": queue}
        )
        for _ in range(jobs):
            job = JobFactory.build(
                job_type=job_type, throttle_factor=Decimal(str(factor)), state=state
            )
            job.save(using=alias)

    def end_all(self, number: int) -> None:
        Job.objects.using(self.aliases[number]).all().delete()

    def start(self, number: int, jobs: int) -> None:
        """Let some due jobs run, as a claim does."""
        due = Job.objects.using(self.aliases[number]).filter(state="initial")
        ids = list(due.order_by("pk").values_list("pk", flat=True)[:jobs])
        due.filter(pk__in=ids).update(state="running", attempt=1)

    def look(self) -> list[Holding]:
        """Return what each shard has; a row that no job has needed yet is created."""
        visits = [Visit(number, _look) for number in range(len(self.aliases))]
        return [self.queue.visit(visit, worker_transaction) for visit in visits]

    def check(self) -> None:
        """Assert that no share is lost or doubled, and that no shard runs more than it has."""
        holdings = self.look()
        assert sum(own.total for own in holdings) == holdings[0].limit
        assert all(own.running <= own.share + own.owed for own in holdings)


def _look(own: Holding, now: Any) -> tuple[Holding, Holding]:
    return own, own


@pytest.fixture(scope="module")
def third(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """A third database, for tests of all databases."""
    other = connections["other"].settings_dict
    name = f"{other['NAME']}_third"
    make(name, TEMPLATE)
    connections.settings["third"] = {**other, "NAME": name}
    yield "third"
    with django_db_blocker.unblock():
        connections["third"].close()
    del connections["third"]
    del connections.settings["third"]
    on_server(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def sharded(settings: Any, transactional_db: None) -> Callable[..., Bank]:
    """Give the instance shards, and a queue."""

    def sharded(*aliases: str, limit: int = LIMIT) -> Bank:
        queues = {"bank": {"THROTTLE_LIMIT": limit}}
        settings.HIPQ = {"default": {"SHARDS": list(aliases), "QUEUES": queues}}
        pulling._silent.clear()
        for number, alias in enumerate(aliases):
            ShardMap.objects.using(alias).create(
                instance="default", number=number, count=len(aliases), count_before=1, first_id=0
            )
        return Bank(aliases)

    return sharded


@pytest.fixture
def bank(sharded: Callable[..., Bank]) -> Bank:
    """A queue in two shards."""
    return sharded("default", "other")
