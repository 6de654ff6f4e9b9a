"""The rows of queues and job types, kept in step with the setting and the code.

What the setting or the code says for the first time, or says anew, is written to the row; what
an operator changed in the admin stays.
"""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.db import models

from hipq_django import clock
from hipq_django.conf import get_instance
from hipq_django.database import row_versions
from hipq_django.definitions import checked_name, checked_type_name
from hipq_django.models import JobType, Queue
from hipq_django.registry import DEFAULT_QUEUE, get_all_declared, get_declared

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from hipq_django.conf import InstanceSettings
    from hipq_django.registry import DeclaredType


def get_queue(instance: str, name: str) -> Queue:
    """Return the row of a queue, created where it is missing."""
    config = get_instance(instance)
    found = Queue.objects.using(config.database).filter(instance=instance, name=name).first()
    return found or _create_queue(config, name)


def get_job_type(instance: str, name: str) -> JobType:
    """Return the row of a job type with its queue, created where it is missing.

    A type that nobody declared is registered with the defaults (hipq state.md, "Job Type").
    """
    config = get_instance(instance)
    found = _read_job_type(config, name)
    declared = get_declared(instance, name)
    if found is None:
        return _create_job_type(config, name, declared)
    if declared is not None and _is_behind(found, declared):
        _follow(found, declared)
    return found


def remembered_job_type(instance: str, name: str) -> JobType:
    """Return what `get_job_type` last returned, if that may still be so; it costs no query.

    Whoever makes a job of it inserts the job only if the `versions` are still the present ones.
    """
    known = _remembered.get((get_instance(instance).database, instance, name))
    declared = get_declared(instance, name)
    if known is None or known.versions is None:
        return get_job_type(instance, name)
    if declared is not None and _is_behind(known, declared):
        return get_job_type(instance, name)
    return known


_remembered: dict[tuple[str, str, str], JobType] = {}
"""The job types this process has read, with their versions."""


def _read_job_type(config: InstanceSettings, name: str) -> JobType | None:
    """Return the row with its queue; it is read in full only where one of the two changed."""
    key = (config.database, config.name, name)
    now = row_versions(config.database, config.name, name)
    known = _remembered.pop(key, None)
    if now is None or known is None or known.versions != now:
        known = _job_types(config).filter(name=name).first()
    if now is not None and known is not None:
        known.versions = now
        _remembered[key] = known
    return known


def _job_types(config: InstanceSettings) -> QuerySet[JobType]:
    """Return the rows of an instance's job types with their queues."""
    rows = JobType.objects.using(config.database).select_related("queue")
    return rows.filter(instance=config.name)


def sync(instance: str) -> None:
    """Bring all queues and job types of an instance up to the setting and the code."""
    config = get_instance(instance)
    for name in config.queues:
        _sync_queue(get_queue(instance, name), config)
    found = {row.name: row for row in _job_types(config)}
    for declared in get_all_declared(instance):
        row = found.get(declared.name)
        if row is None:
            _create_job_type(config, declared.name, declared)
        elif _is_behind(row, declared):
            _follow(row, declared)


def _create_queue(config: InstanceSettings, name: str) -> Queue:
    wanted = _queue_values(config, name)
    values = _from_stored(Queue, wanted)
    ranking = Queue(**values).ordering.as_ranking()  # of no jobs yet
    queue, _ = Queue.objects.using(config.database).get_or_create(
        instance=config.name,
        name=checked_name("queue", name),
        defaults={**values, "declared": wanted, "ranking": ranking},
    )
    return queue


def _sync_queue(queue: Queue, config: InstanceSettings) -> None:
    _merge(queue, _queue_values(config, queue.name))


def _queue_values(config: InstanceSettings, name: str) -> dict[str, Any]:
    values = asdict(config.queue(name))
    del values["throttlers"]  # code: read from the setting by those who run it
    return {**values, "throttle_limit": str(values["throttle_limit"])}


def _create_job_type(config: InstanceSettings, name: str, declared: DeclaredType | None) -> JobType:
    wanted = declared.as_declared() if declared else {}
    queue = get_queue(config.name, wanted.get("queue", DEFAULT_QUEUE))
    values = _from_stored(JobType, {k: v for k, v in wanted.items() if k != "queue"})
    job_type, _ = (
        JobType.objects.using(config.database)
        .select_related("queue")
        .get_or_create(
            instance=config.name,
            name=checked_type_name(name),
            defaults={
                **values,
                "queue": queue,
                "declared": wanted,
                "has_response_handler": bool(declared and declared.response_handler),
                "counted_answers": bool(declared and declared.counted_answers),
                "sensitive": list(declared.sensitive) if declared else [],
            },
        )
    )
    return job_type


def _is_behind(job_type: JobType, declared: DeclaredType) -> bool:
    return (
        job_type.declared != declared.as_declared()
        or job_type.has_response_handler != bool(declared.response_handler)
        or job_type.counted_answers != declared.counted_answers
        or job_type.sensitive != list(declared.sensitive)
    )


def _follow(job_type: JobType, declared: DeclaredType) -> None:
    wanted = declared.as_declared()
    if job_type.declared.get("queue") != wanted["queue"]:
        queue = get_queue(job_type.instance, wanted["queue"])
        if job_type.queue.name == job_type.declared.get("queue", DEFAULT_QUEUE):
            job_type.queue = queue
    job_type.has_response_handler = bool(declared.response_handler)
    job_type.counted_answers = declared.counted_answers
    job_type.sensitive = list(declared.sensitive)
    _merge(job_type, wanted)
    job_type.versions = None


def _merge(row: Queue | JobType, wanted: dict[str, Any]) -> None:
    """Write what is wanted anew, unless the operator changed it since it was last wanted."""
    before = row.declared
    if before == wanted and not isinstance(row, JobType):
        return
    model = type(row)
    plain = model()
    for name, value in wanted.items():
        if name == "queue" or before.get(name) == value:
            continue
        last = (
            _from_stored(model, {name: before[name]})[name]
            if name in before
            else getattr(plain, name)
        )
        if getattr(row, name) == last:
            setattr(row, name, _from_stored(model, {name: value})[name])
    row.declared = wanted
    row.update_time = clock.now(row._state.db or "default")
    row.save()


def _from_stored(model: type[models.Model], values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: Decimal(value) if isinstance(_field(model, name), models.DecimalField) else value
        for name, value in values.items()
    }


def _field(model: type[models.Model], name: str) -> Any:
    return model._meta.get_field(name)
