"""The schedules that the code declares, kept in step with their rows.

What the code says is written. Where an operator has edited a schedule, its times stay until
`hipq_sync --reset`, all of them: they make sense only together. The newest worker counts: others
create rows, and note that their code declares them too. A row that no live worker's code declares
any more is retired: shown, and not fired. A worker that declares it again brings it back.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from hipq_django import events
from hipq_django.api.keys import under_key
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.database import clock
from hipq_django.database.errors import LockedRowError
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.job_options import in_json
from hipq_django.domain.schedules import values_of
from hipq_django.domain.states import NONE
from hipq_django.job_types.registry import get_all_declared
from hipq_django.models import Schedule, Worker, catalog
from hipq_django.models.catalog import get_job_type, never
from hipq_django.models.edits import edited, shown_edits
from hipq_django.schedules import changing


def names(instance: str) -> list[str]:
    """Return the names of the schedules that the code of this process declares."""
    return [name for declared in get_all_declared(instance) for name in declared.schedules]


def sync(
    instance: str, *, is_newest: bool = True, is_reset: Callable[[str], bool] = never
) -> list[str]:
    """Bring the rows of declared schedules up to the code, and note that they are declared.

    Unless this process `is_newest` of the workers, rows that exist stay as they are, because that
    one may be of a newer release. Future times are worked out anew: the rules of a time zone may
    have changed. Return the names of the schedules that are left as they are: somebody has locked
    their rows, or something is wrong with them, which stops no other.
    """
    config = get_instance(instance)
    left: list[str] = []
    for declared in get_all_declared(instance):
        for name, spec in declared.schedules.items():
            put = partial(_create_or_change, is_newest=is_newest, is_reset=is_reset(name))
            with Isolation[str]("declare_schedules", "schedule").apart(name):
                values = values_of(spec) | {"job_type": get_job_type(instance, declared.name)}
                with worker_transaction(config.database):
                    under_key(put, config, name, values)
                continue
            left.append(name)
    _move_next_times(config)
    return left


def _create_or_change(
    config: InstanceSettings, name: str, values: dict[str, Any], *, is_newest: bool, is_reset: bool
) -> None:
    """Raise `IntegrityError`, with nothing written, where another worker has just created it."""
    using, now = config.database, clock.now(config.database)
    rows = Schedule.objects.using(using).filter(instance=config.name, name=name)
    row = locked(rows, skip_locked=True).first()
    if row is None and rows.exists():
        raise LockedRowError
    if row is None:
        row = Schedule(instance=config.name, name=name, **values)
        row.declared, row.seen_time = _said(values), now
        changing.create(row, using, now)
        return
    changed = _changes(row, values, is_reset=is_reset) if is_newest else {}
    names = changing.change(row, changed, now) if changed else []
    row.seen_time, row.retired = now, False
    row.declared = _said(values) if is_newest else row.declared
    row.save(using=using, update_fields=[*names, "seen_time", "retired", "declared"])


def _said(values: dict[str, Any]) -> dict[str, Any]:
    return in_json({name: value for name, value in values.items() if name != "job_type"})


def _changes(row: Schedule, values: dict[str, Any], *, is_reset: bool) -> dict[str, Any]:
    """Return what of a row has to change."""
    if not row.is_declared:  # made by hand: what its jobs were given is of another job type, say
        values |= {"job_data": {}, "options": {}}
    elif edited(row, _said(values)) and not is_reset:
        values = {"job_type": values["job_type"]}
    return {name: value for name, value in values.items() if getattr(row, name) != value}


def edits(config: InstanceSettings) -> dict[str, str]:
    """Return in what the rows of an instance differ from the setting and the code."""
    found = dict(catalog.edits(config))
    specs = {n: spec for one in get_all_declared(config.name) for n, spec in one.schedules.items()}
    rows = Schedule.objects.using(config.database).filter(instance=config.name, name__in=specs)
    for row in rows:
        found[f"schedule {row.name}"] = shown_edits(row, in_json(values_of(specs[row.name])))
    return {where: what for where, what in found.items() if what}


def _move_next_times(config: InstanceSettings) -> None:
    using, now = config.database, clock.now(config.database)
    for row in Schedule.objects.using(using).filter(instance=config.name, next_time__gt=now):
        try:
            next_time = row.spec.next(now)
        except Exception as error:  # firing says what is wrong with it
            events.warning("schedule_unreadable", schedule=row.name, exception=error)
            continue
        if next_time != row.next_time and _move(row, next_time, now):
            events.warning(
                "schedule_moved", "the rules of its time zone have changed", schedule=row.name,
                before=str(row.next_time), after=str(next_time),
            )  # fmt: skip


def _move(row: Schedule, next_time: Any, now: datetime) -> bool:
    """Give a schedule its next time, unless somebody has changed or locked it."""
    rows = Schedule.objects.using(row.using).filter(pk=row.pk, next_time=row.next_time)
    with worker_transaction(row.using):
        free = locked(rows, skip_locked=True).first()
        if free is not None:
            rows.update(next_time=next_time, update_time=now)
    return free is not None


def retire(config: InstanceSettings) -> int:
    """Retire declared schedules that no live worker declares; return how many."""
    using = config.database
    rows = Schedule.objects.using(using).filter(instance=config.name, retired=False)
    gone = rows.exclude(declared={}).exclude(name__in=names(config.name))
    if not gone.exists():
        return 0
    workers = Worker.objects.using(using).filter(
        instance=config.name, source=NONE, state__in=Worker.LIVE
    )
    of_workers = workers.values_list("schedules", flat=True)
    elsewhere = {name for declared in of_workers for name in declared or ()}
    # A worker that declares one now has seen it later.
    gone = gone.filter(seen_time__lt=clock.now(using)).exclude(name__in=elsewhere)
    with worker_transaction(using):
        free = list(locked(gone.order_by("pk"), skip_locked=True))
        rows.filter(pk__in=[row.pk for row in free]).update(retired=True)
    for row in free:
        events.info("schedule_retired", "no live worker's code declares it", schedule=row.name)
    return len(free)
