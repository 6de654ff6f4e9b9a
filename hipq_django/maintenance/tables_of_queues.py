"""Tables of queues: what `hipq_tables` would do in one database, and doing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from django.db import OperationalError, transaction
from django.db.models import Q

from hipq_django.conf.instances import InstanceSettings
from hipq_django.conf.rules import raw_setting
from hipq_django.conf.tables import table_name
from hipq_django.database.errors import is_locked_out
from hipq_django.database.partitions import JOBS, Partitions
from hipq_django.domain.states import State
from hipq_django.exceptions import HipqError
from hipq_django.maintenance.retention import (
    CHILDREN,
    delete_rows,
    foreign_relations,
    not_needed,
)
from hipq_django.models import Job, Link, Queue
from hipq_django.models.catalog import queue_of


class TablesError(HipqError):
    """Tables of queues cannot be changed like this now; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to do: the line that says it, what does it, and the line once it is done."""

    text: str
    apply: Callable[[], None]
    done: str


Plan = Callable[[InstanceSettings], Iterator[Change]]


def without_table(config: InstanceSettings) -> list[str]:
    """Return the names of the queues with OWN_TABLE that have no table in the database yet."""
    known = Partitions(config.database).own_tables if config.own_tables else {}
    rows = Queue.objects.using(config.database).filter(instance=config.name, pk__in=known)
    there = {*rows.values_list("name", flat=True)} if known else set()
    return sorted(config.own_tables - there)


def planned(config: InstanceSettings, plan: Plan) -> list[str]:
    """Return the lines of a plan; raise `TablesError` where it cannot be done."""
    return [change.text for change in plan(config)]


def applied(config: InstanceSettings, plan: Plan) -> list[str]:
    """Do what a plan says, all or nothing; return its lines. Raise `TablesError`.

    Nobody uses the jobs of the database meanwhile.
    """
    done = []
    with transaction.atomic(using=config.database):
        with _telling_use():
            Partitions(config.database).lock()
        for change in list(plan(config)):
            change.apply()
            done.append(change.done)
    return done


@contextmanager
def _telling_use() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        if is_locked_out(error):
            text = f"{JOBS} is in use: try again, or stop the workers."
            raise TablesError(text) from error
        raise


# The plans


def dividing(config: InstanceSettings) -> Iterator[Change]:
    """Yield what gives the queues with OWN_TABLE their tables."""
    jobs = Partitions(config.database)
    missing = without_table(config)
    if missing and not jobs.is_partitioned:
        yield _becoming_tables(jobs)
    for name in missing:
        yield _getting_table(config, jobs, name)


def _becoming_tables(jobs: Partitions) -> Change:
    for column in jobs.references():
        raise TablesError(
            f"{column} references {JOBS}, and nothing can reference a table of tables; give the "
            "field db_constraint=False."
        )
    text = f"{JOBS} becomes a table of tables; its {jobs.count()} rows stay."
    return Change(text, jobs.divide, text)


def _getting_table(config: InstanceSettings, jobs: Partitions, name: str) -> Change:
    table = table_name(config.name, raw_setting()[config.name], name)
    if jobs.has(table):
        raise TablesError(
            f"table {table!r} exists already; give another name by TABLE_NAMING_STRATEGY."
        )
    own = Job.objects.using(config.database).filter(queue__instance=config.name, queue__name=name)
    text = f"{name}: table {table}; {own.count()} rows move."
    return Change(text, lambda: jobs.add_table(table, queue_of(config, name).pk), text)


def joining(config: InstanceSettings) -> Iterator[Change]:
    """Yield what makes one plain table of all tables again, of all instances of the database."""
    jobs = Partitions(config.database)
    if jobs.is_partitioned:
        moved = sum(map(jobs.count, jobs.own_tables.values()))
        text = f"{JOBS} becomes one table again; {moved} rows move."
        yield Change(text, jobs.join, text)


def emptying(config: InstanceSettings, name: str) -> Iterator[Change]:
    """Yield what empties the table of a paused queue without live jobs."""
    jobs = Partitions(config.database)
    queue = Queue.objects.using(config.database).filter(instance=config.name, name=name).first()
    table = jobs.own_tables.get(queue.pk) if queue else None
    if queue is None or table is None:
        raise TablesError(f"{name} has no table of its own.")
    _check_may_be_emptied(queue)
    count = jobs.count(table)
    text = f"{name}: {count} ended jobs"
    if count:
        empty = partial(_empty, jobs, table, queue)
        yield Change(f"{text} to drop.", empty, f"{text} dropped.")


def _check_may_be_emptied(queue: Queue) -> None:
    if not queue.paused:
        raise TablesError(f"{queue.name} is not paused.")
    jobs = queue.jobs.using(queue.using)
    if live := jobs.live().count():
        raise TablesError(f"{queue.name} has {live} live jobs.")
    live_links = Link.objects.using(queue.using).exclude(job__state=State.FINAL)
    needs = Q(needs_job__in=jobs.values("pk")) | Q(needs_batch__in=jobs.values("batch"))
    if link := live_links.filter(needs).first():
        raise TablesError(f"job {link.job_id} needs jobs of {queue.name}.")
    if kept := jobs.count() - not_needed(jobs).count():
        raise TablesError(f"{kept} jobs of {queue.name} are still needed.")


def _empty(table: Partitions, name: str, queue: Queue) -> None:
    jobs = queue.jobs.using(queue.using)
    for child in CHILDREN:
        delete_rows(child.objects.using(queue.using).filter(job__in=jobs.values("pk")))
    if any(foreign_relations(Job, queue.using)):  # Django knows what becomes of their rows
        delete_rows(jobs.all())
    else:
        table.empty(name)
