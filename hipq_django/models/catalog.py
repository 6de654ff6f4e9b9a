"""The rows of queues and job types, kept in step with the setting and the code.

What the setting and the code say is written to the rows; what an operator has edited stays, as
`edits` says. An enqueue takes what its code declares, and writes nothing but
its kind to a row that exists; `sync` does, when a worker starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from typing import Any

from django.db import connections
from django.db.models import QuerySet

from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.database import clock
from hipq_django.database.built_once import built_once
from hipq_django.database.isolation import Isolation
from hipq_django.database.kinds import engine_kind
from hipq_django.database.locks import locked
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.job_options import in_json
from hipq_django.domain.validation import checked_name, checked_type_name
from hipq_django.job_types.declaration import DEFAULT_QUEUE, Declaration
from hipq_django.job_types.registry import get_all_declared, get_declared
from hipq_django.models import JobType, Queue
from hipq_django.models.edits import changes, shown_edits
from hipq_django.models.undeclared_names import check_queue


def get_queue(instance: str, name: str) -> Queue:
    """Return the row of a queue, created where it is missing."""
    return queue_of(get_instance(instance), name)


def queue_of(config: InstanceSettings, name: str) -> Queue:
    """Return the same in the database that the settings of an instance lead to."""
    return _queues(config).filter(name=name).first() or _create_queue(config, name)


def get_named_queue(instance: str, name: str, verb: str) -> Queue:
    """Return the same for a name that a caller has given: it may be misspelt."""
    config = get_instance(instance)
    found = _queues(config).filter(name=name).first()
    if found is None:
        check_queue(instance, name, verb, lambda: _queues(config).values_list("name", flat=True))
    return found or _create_queue(config, name)


def _queues(config: InstanceSettings) -> QuerySet[Queue]:
    return Queue.objects.using(config.database).filter(instance=config.name)


def get_job_type(instance: str, name: str) -> JobType:
    """Return a job type with its queue, as its row and the code have it; created where missing.

    What the row does not say yet, because no worker with this code has started, is in the copy
    only. A type that nobody declared is registered with the defaults (hipq state.md, "Job Type").
    """
    config = get_instance(instance)
    found = _read_job_type(config, name)
    declared = get_declared(instance, name)
    if found is None:
        return _create_job_type(config, name, declared)
    if declared is not None and _is_outdated(found, declared):
        if found.kind != declared.kind:  # by which workers find its code
            _job_types(config).filter(pk=found.pk).update(kind=declared.kind)
        _update(found, declared)
    return found


def cached_job_type(instance: str, name: str) -> JobType:
    """Return what `get_job_type` last returned, if that may still be so; it costs no query.

    The insert of a job compares the `versions`, and is made anew if the row has changed since.
    """
    known = _remembered.get((get_instance(instance).database, instance, name))
    declared = get_declared(instance, name)
    if known is None or known.versions is None or (declared and _is_outdated(known, declared)):
        return get_job_type(instance, name)
    return known


_remembered: dict[tuple[str, str, str], JobType] = {}
"""The job types this process has read, with their versions."""


def _read_job_type(config: InstanceSettings, name: str) -> JobType | None:
    """Return the row with its queue; it is read in full only where one of the two changed."""
    key = (config.database, config.name, name)
    now = _row_versions(config.database, config.name, name)
    known = _remembered.pop(key, None)
    if now is None or known is None or known.versions != now:
        known = next(iter(_type_named(config.name, name, config.database)), None)
    if now is not None and known is not None:
        known.versions = now
        _remembered[key] = known
    return known


@built_once
def _type_named(instance: str, name: str, using: str) -> QuerySet[JobType]:
    rows = JobType.objects.using(using).select_related("queue")
    return rows.filter(instance=instance, name=name)


def _job_types(config: InstanceSettings) -> QuerySet[JobType]:
    """Return the rows of an instance's job types with their queues."""
    rows = JobType.objects.using(config.database).select_related("queue")
    return rows.filter(instance=config.name)


def never(name: str) -> bool:
    """Return False: no edit is reset."""
    return False


def sync(
    instance: str,
    *,
    creates: bool = True,
    is_newest: bool = True,
    is_reset: Callable[[str], bool] = never,
) -> list[str]:
    """Bring the queues and job types of an instance up to the setting and the code.

    What was edited stays, but for the rows whose names are to be reset.

    Unless it `creates` rows, those that are missing stay so until a job needs them. Unless this
    process `is_newest` of the workers, rows stay as the newest one has written them, because it may
    be of a newer release; only sensitive fields are added. Return what is left as it is: somebody
    has locked the row, or is just creating it.
    """
    config = get_instance(instance)
    left: list[str] = []
    found = {row.name: row for row in _job_types(config)}
    if is_newest:
        for queue in _queues(config):
            _sync_queue(config, queue, left, is_reset=is_reset(queue.name))
    if creates:
        _create_missing(config, found, left)
    change = partial(_type_changes, is_reset=is_reset) if is_newest else _added_sensitive
    for row in found.values():  # those of aliases, too
        _sync_job_type(config, row, left, change)
    return left


def _create_missing(config: InstanceSettings, found: Collection[str], left: list[str]) -> None:
    """Create the queues of the setting, and the job types of the code with their queues."""
    for name in config.queues:
        with _apart(config.database, left, f"queue {name}"):
            get_queue(config.name, name)
    for declared in get_all_declared(config.name):
        if declared.name not in found:
            with _apart(config.database, left, f"job type {declared.name}"):
                _create_job_type(config, declared.name, declared)


def _sync_queue(config: InstanceSettings, queue: Queue, left: list[str], *, is_reset: bool) -> None:
    wanted = _queue_values(config, queue.name)
    if config.is_sharded:  # the limit is changed in all shards, see `sharing.limits`
        known = float(queue.throttle_limit)
        wanted["throttle_limit"] = queue.declared.get("throttle_limit", known)
    if queue.name in config.queues and (is_reset or queue.declared != wanted):
        with _apart(config.database, left, f"queue {queue.name}"):
            change = partial(changes, wanted=wanted, is_reset=is_reset)
            _write(Queue.objects.using(config.database), queue, change)


def _sync_job_type(
    config: InstanceSettings,
    row: JobType,
    left: list[str],
    change: Callable[[JobType, Declaration], dict[str, Any]],
) -> None:
    declared = get_declared(config.name, row.name)
    if declared is not None and change(row, declared):
        with _apart(config.database, left, f"job type {row.name}"):
            _write(_job_types(config), row, lambda now: change(now, declared))


@contextmanager
def _apart(using: str, left: list[str], what: str) -> Iterator[None]:
    """Write a row in a transaction; note it as `left` if it does not let that happen."""
    with Isolation[str]("sync", "row").apart(what):
        with worker_transaction(using):
            yield
        return
    left.append(what)


def _write(rows: QuerySet[Any], row: Any, changes: Callable[[Any], dict[str, Any]]) -> None:
    """Write what has to change in the row as it is now, and no other of its fields.

    Since it was read an operator or a scheduler may have written to it.
    """
    now = locked(rows.filter(pk=row.pk)).first()
    if now is not None and (values := changes(now)):
        rows.filter(pk=row.pk).update(**values, update_time=clock.now(rows.db))


def _create_queue(config: InstanceSettings, name: str) -> Queue:
    wanted = _queue_values(config, name)
    new = Queue(instance=config.name, name=checked_name("queue", name), declared=wanted)
    values = changes(new, wanted, is_reset=True)
    values["ranking"] = Queue(**values).ordering.as_ranking()  # of no jobs yet
    if config.database != config.shards[0]:  # which has the whole limit at first
        values["share"] = 0
    queue, _ = Queue.objects.using(config.database).get_or_create(
        instance=config.name, name=new.name, defaults=values
    )
    return queue


def _queue_values(config: InstanceSettings, name: str) -> dict[str, Any]:
    values = asdict(config.queue(name))
    del values["throttlers"]  # code: read from the setting by those who run it
    del values["own_table"]  # the database says whether the table is there
    return in_json(values)


def _create_job_type(config: InstanceSettings, name: str, declared: Declaration | None) -> JobType:
    queue = get_queue(config.name, declared.queue if declared else DEFAULT_QUEUE)
    rows = JobType.objects.using(config.database).select_related("queue")
    job_type, _ = rows.get_or_create(
        instance=config.name,
        name=checked_type_name(name),
        defaults={**(_of_declaration(declared) if declared else {}), "queue": queue},
    )
    return job_type


def _of_declaration(declared: Declaration) -> dict[str, Any]:
    """Return the values of a new row but for its queue."""
    return {**declared.defaults, **_of_code(declared)}


def _of_code(declared: Declaration) -> dict[str, Any]:
    """Return the values of a job type that no operator edits."""
    return {
        "declared": declared.as_declared,
        "has_response_handler": bool(declared.response_handler),
        "counted_answers": declared.counted_answers,
        "sensitive": list(declared.sensitive),
        "signature": declared.signature,
        "kind": declared.kind,
        "unique": declared.unique.as_json() if declared.unique else {},
    }


_stored_of_code = attrgetter(
    "declared", "has_response_handler", "counted_answers", "sensitive", "signature", "kind",
    "unique",
)  # fmt: skip


def _is_outdated(job_type: JobType, declared: Declaration) -> bool:
    return _stored_of_code(job_type) != tuple(_of_code(declared).values())


def _update(job_type: JobType, declared: Declaration) -> None:
    """Bring the copy, not the row, up to the code."""
    before = job_type.queue
    for name, value in _type_changes(job_type, declared).items():
        setattr(job_type, name, value)
    vars(job_type).pop("redactor", None)  # it is made anew, with the fields of the code
    if job_type.queue != before:
        job_type.versions = None  # they are those of the other queue


def _type_changes(
    job_type: JobType, declared: Declaration, *, is_reset: Callable[[str], bool] = never
) -> dict[str, Any]:
    """Return what of a job type has to change."""
    values = changes(job_type, declared.as_declared, is_reset=is_reset(job_type.name))
    values |= _of_code(declared)
    if "queue" in values:
        values["queue"] = get_queue(job_type.instance, declared.queue)
    return {name: value for name, value in values.items() if getattr(job_type, name) != value}


def _added_sensitive(job_type: JobType, declared: Declaration) -> dict[str, Any]:
    """Return the sensitive fields of a job type if some are added to those of the row."""
    added = [name for name in declared.sensitive if name not in job_type.sensitive]
    return {"sensitive": [*job_type.sensitive, *added]} if added else {}


def edits(config: InstanceSettings) -> Iterator[tuple[str, str]]:
    """Yield each row that is given by the setting or the code, and in what it differs from them."""
    for queue in _queues(config):
        if queue.name in config.queues:
            yield f"queue {queue.name}", shown_edits(queue, _queue_values(config, queue.name))
    for row in _job_types(config):
        if declared := get_declared(config.name, row.name):
            yield f"job type {row.name}", shown_edits(row, declared.as_declared)


def _row_versions(using: str, instance: str, job_type: str) -> tuple[str, ...] | None:
    """Return what identifies the current versions of a job type's row and its queue's row.

    One short query instead of one for all their fields. None where there is no such job type, or
    where the database does not tell.
    """
    if engine_kind(using) != "postgresql":
        return None
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT t.xmin::text, t.ctid::text, q.xmin::text, q.ctid::text "
            "FROM hipq_jobtype t JOIN hipq_queue q ON q.id = t.queue_id "
            "WHERE t.instance = %s AND t.name = %s",
            [instance, job_type],
        )
        row: tuple[str, ...] | None = cursor.fetchone()
    return row
