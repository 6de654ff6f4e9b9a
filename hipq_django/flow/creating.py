"""Starts nodes, and gives them their ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

from django.db import IntegrityError, transaction

from hipq_django.api.building import given_values
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.conf.sharding import flow_beside_shards
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.drafts import JOB_OPTIONS, NewJob
from hipq_django.domain.job_options import GIVEN, OF_TYPES, in_json
from hipq_django.domain.redaction import quoted
from hipq_django.domain.validation import MAX_ID, checked_data, checked_name
from hipq_django.engines.rows import mark_in
from hipq_django.exceptions import (
    ConfigurationError,
    InvalidJobError,
    UnknownOptionError,
    nearest_name,
)
from hipq_django.flow.aliases import alias_taken, checked_alias, find
from hipq_django.flow.declared_ports import ANY, PortOptions, port_options
from hipq_django.flow.declaring import ComponentDeclaration, find_component
from hipq_django.flow.exceptions import FamilyError, FlowError
from hipq_django.flow.family import (
    check_depth,
    checked_child_name,
    is_doomed,
    name_taken,
)
from hipq_django.flow.lifecycle import locked_node, moment_of, run_row, terminate
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.models.node import deleted
from hipq_django.flow.ports import set_channels
from hipq_django.flow.values import STAGE, is_same, stored_json
from hipq_django.models.catalog import get_job_type, get_queue
from hipq_django.models.undeclared_names import check_declared


class StartOptions(TypedDict, total=False):
    """The options of `flow.start` that say what a node is to be."""

    args: Sequence[Any]
    parent: Node | None
    name: str | None
    alias: str | None
    at: datetime | float | None
    by: str
    inputs: Mapping[str, Mapping[str, Any]] | None
    outputs: Mapping[str, Mapping[str, Any]] | None
    data: Mapping[str, Sequence[Any]] | None
    job: Mapping[str, Any] | None
    run: bool
    on_conflict: Literal["raise", "return"]


OF_JOBS = (*(o.name for o in OF_TYPES if GIVEN in o.places), "queue", "data")
"""What `job=` may say of the jobs of a node's runs."""


def start(  # noqa: PLR0913 - the options of a node, by their names
    component: Any,
    *,
    args: Sequence[Any] = (),
    parent: Node | None = None,
    name: str | None = None,
    alias: str | None = None,
    at: datetime | float | None = None,
    by: str = "",
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
    outputs: Mapping[str, Mapping[str, Any]] | None = None,
    data: Mapping[str, Sequence[Any]] | None = None,
    job: Mapping[str, Any] | None = None,
    run: bool = True,
    instance: str = DEFAULT,
) -> Node:
    """Create a node of a component, and let it run; all of it or nothing.

    `component` is a name, a class or function. `args` are what `perform` is called with; `parent`
    and `name` place it in a tree; `alias` is a name by which it is found; `inputs` and `outputs`
    are options of ports, `data` the first messages of in-ports; `job` options of its runs' jobs:
    priority, throttle_factor, timeout, time_windows, queue, data. With `run=False` it waits for
    messages.
    """
    using = database_of(instance)
    declared = find_component(instance, component)
    declared.check_args(args)
    if declared.name == STAGE:
        check_declared(instance, args[0], "flow.start")
    due = moment_of(at, None, clock.now(using))
    with write_transaction(using):
        if alias is not None and (other := find(checked_alias(alias), instance=instance)):
            raise alias_taken(alias, other)
        node = _create(declared, args, parent, name, checked_job(job, instance), instance)
        node.created_by = f"node:{parent.pk}" if parent is not None and not by else by
        _insert(node)
        _make_ports(node, declared, inputs, outputs)
        if alias is not None:
            node.aliases.add(alias)
        for port, values in (data or {}).items():
            node.inputs[port].write_many(values)
        if run:
            run_row(node, at=due)
    return node


OPTIONS = set(StartOptions.__annotations__)


def check_given(options: Mapping[str, Any]) -> None:
    """Raise `UnknownOptionError` for an option that `flow.start` has not.

    Raise `FlowError` for an `on_conflict` that would be taken for "raise".
    """
    for option in options:
        if option not in OPTIONS:
            raise UnknownOptionError("flow.start", option, OPTIONS)
    if (conflict := options.get("on_conflict") or "raise") not in ("raise", "return"):
        raise FlowError(f"flow.start: on_conflict={conflict!r:.100}; give 'raise' or 'return'.")


def database_of(instance: str) -> str:
    """Return the alias of an instance's database; raise `ConfigurationError` if it has shards."""
    config = get_instance(instance)
    if config.is_sharded:
        problem = flow_beside_shards(instance)
        raise ConfigurationError(f"{problem.msg} {problem.hint}")
    return config.database


def _create(
    declared: ComponentDeclaration,
    args: Sequence[Any],
    parent: Node | None,
    name: str | None,
    job: dict[str, Any],
    instance: str,
) -> Node:
    """Return the unsaved node, whose place in the tree is free."""
    using = database_of(instance)
    if parent is None and name is not None:
        raise FamilyError(f"flow.start: name={name!r} needs a parent; or give alias={name!r}.")
    if parent is not None:
        _lock_parent(parent, checked_child_name(name), instance)
    job_type = get_job_type(instance, declared.name)
    queue = get_queue(instance, job.get("queue") or job_type.queue.name)
    now = clock.now(using)
    node = Node(
        instance=instance,
        queue=queue,
        job_type=job_type,
        args=stored_json(list(args), "flow.start: args"),
        parent=parent,
        name=name or "",
        job_options=job,
        rate_time=now,
        create_time=now,
        update_time=now,
    )
    mark_in(node, using)
    return node


def _lock_parent(parent: Node, name: str, instance: str) -> None:
    if parent.instance != instance:
        raise FamilyError(
            f"flow.start: {parent} is of instance {parent.instance!r}, and so are its children; "
            f"give instance={parent.instance!r}."
        )
    if locked(Node.objects.using(parent.using).row_of(parent)).first() is None:
        raise deleted(parent)
    if taken := name_taken(parent.pk, name, parent.using):
        raise taken
    check_depth(parent, 1)


def _insert(node: Node) -> None:
    """Save a node; in a tree that is to be deleted it shuts down, as all others do."""
    try:
        with transaction.atomic(using=node.using):
            node.save(using=node.using, force_insert=True)
    except IntegrityError as error:
        taken = node.parent_id and name_taken(node.parent_id, node.name, node.using)
        raise taken or error from error
    if node.parent_id and is_doomed(node):
        terminate(node)


def checked_job(job: Mapping[str, Any] | None, instance: str) -> dict[str, Any]:
    """Return options of jobs as they are stored; a wrong one would hold all other nodes up.

    Raise `InvalidJobError`.
    """
    options = {option: value for option, value in (job or {}).items() if value is not None}
    for option in options:
        if option not in OF_JOBS:
            hint = " A key is set by self.job.set_key." if option in ("key", "job_key") else ""
            near = nearest_name(option, OF_JOBS)
            raise InvalidJobError(f"flow.start: job has no option {option!r}{near}{hint}")
    plain = {option: value for option, value in options.items() if option in JOB_OPTIONS}
    stored = {**plain, **in_json(given_values(NewJob("", **plain)))}
    if "queue" in stored:
        checked_name("queue", stored["queue"])
    if "data" in options:
        stored["data"] = _checked_job_data(options["data"], instance)
    return stored


def change_jobs(node: Node, job: Mapping[str, Any]) -> None:
    """Give the runs of a node from now on jobs with other options."""
    stored = checked_job(job, node.instance)
    queue = get_queue(node.instance, stored.get("queue") or node.job_type.queue.name)
    rows = Node.objects.using(node.using).filter(pk=node.pk)
    rows.update(job_options=stored, queue=queue)


def _checked_job_data(data: Any, instance: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InvalidJobError(f"flow.start: job's data {quoted(data)} is no dict.")
    of_run = {"node": MAX_ID, "shutdown": True}  # what each run sets
    for key in of_run.keys() & data.keys():
        raise InvalidJobError(
            f"flow.start: job's data has the key {key!r}, which each run sets; use another name."
        )
    checked_data({**data, **of_run}, get_instance(instance).max_data_bytes)
    return data


# Ports


def _make_ports(
    node: Node,
    declared: ComponentDeclaration,
    inputs: Mapping[str, Mapping[str, Any]] | None,
    outputs: Mapping[str, Mapping[str, Any]] | None,
) -> None:
    for direction, given in (("in", inputs), ("out", outputs)):
        _insert_ports(node, direction, merged(declared, direction, given or {}).values(), declared)


def _insert_ports(
    node: Node, direction: str, ports: Collection[PortOptions], declared: ComponentDeclaration
) -> None:
    own = declared.ports(direction)
    rows = [
        NodePort(
            node=node,
            direction=direction,
            name=port.name,
            declared=port.name in own,
            **port.columns,
        )
        for port in ports
    ]
    NodePort.objects.using(node.using).bulk_create(rows)
    for row, port in zip(rows, ports, strict=True):
        set_channels(row, port.channels)


def merged(
    declared: ComponentDeclaration, direction: str, given: Mapping[str, Mapping[str, Any]]
) -> dict[str, PortOptions]:
    """Return the declared ports with those that are given; these replace a declared one whole."""
    return declared.ports(direction) | {
        name: port_options(name, options) for name, options in given.items()
    }


def set_ports(
    node: Node,
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
    outputs: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Give a node the ports of its component and these; others go, with their messages."""
    using = node.using
    with write_transaction(using):
        row = locked_node(node)
        declared = find_component(row.instance, row.job_type.name)
        for direction, given in (("in", inputs), ("out", outputs)):
            if given is not None:
                _set_side(row, direction, merged(declared, direction, given))


def _set_side(node: Node, direction: str, wanted: Mapping[str, PortOptions]) -> None:
    rows = NodePort.objects.using(node.using).filter(node=node, direction=direction)
    there = {row.name: row for row in locked(rows.order_by("pk"), to_delete=True)}
    _delete_ports([row.pk for name, row in there.items() if name not in wanted], node.using)
    _write_ports(node, direction, there, {}, wanted)


def change_ports(
    node: Node,
    direction: str,
    before: Mapping[str, PortOptions],
    after: Mapping[str, PortOptions],
) -> bool:
    """Let ports of a node be as they are to be now; return whether any changed.

    Of a port that stays only the options that differ are written: a default that has come along a
    connection, messages and connections stay. Ports that are in `before` only are deleted, unless
    messages lie on them; those that are in neither are left alone.
    """
    gone = [name for name in before if name not in after]
    changed = {n: port for n, port in after.items() if _differing(before.get(n), port)}
    if not gone and not changed:
        return False
    with write_transaction(node.using):
        rows = NodePort.objects.using(node.using).filter(node=node.pk, direction=direction)
        wanted = locked(rows.filter(name__in=[*gone, *changed]).order_by("pk"), to_delete=True)
        there = {row.name: row for row in wanted}
        _delete_empty_ports([there[name].pk for name in gone if name in there], node.using)
        _write_ports(node, direction, there, before, changed)
    return True


def _write_ports(
    node: Node,
    direction: str,
    there: Mapping[str, NodePort],
    before: Mapping[str, PortOptions],
    wanted: Mapping[str, PortOptions],
) -> None:
    """Create ports, or write what differs from their options `before`; all, if it names none."""
    declared = find_component(node.instance, node.job_type.name)
    new = [port for name, port in wanted.items() if name not in there]
    _insert_ports(node, direction, new, declared)
    for name in wanted.keys() & there.keys():
        changes = _differing(before.get(name) or before.get(ANY), wanted[name])
        is_declared = name in declared.ports(direction)
        _change_port(there[name], wanted[name], {**changes, "declared": is_declared})


def _change_port(row: NodePort, port: PortOptions, changes: dict[str, Any]) -> None:
    channels = changes.pop("channels", None)
    if {"has_default", "value"} & changes.keys():
        default = {"has_default": port.has_default, "value": port.columns["value"]}
        changes |= {**default, "value_context": {}}
        Message.objects.using(row.using).filter(port=row, as_default=True).delete()
    NodePort.objects.using(row.using).filter(pk=row.pk).update(**changes)
    if channels is not None:
        row.channel_rows.all().delete()
        set_channels(row, channels)


def _delete_ports(ids: Sequence[int], using: str) -> None:
    Message.objects.using(using).filter(port__in=ids).delete()
    NodePort.objects.using(using).filter(pk__in=ids).delete()


def _delete_empty_ports(ids: Sequence[int], using: str) -> None:
    """Delete the ports on which no message lies; nobody writes to them, because they are locked."""
    unread = Message.objects.using(using).filter(port__in=ids, as_default=False)
    used = set(unread.values_list("port_id", flat=True).distinct())
    _delete_ports([pk for pk in ids if pk not in used], using)


def _differing(before: PortOptions | None, after: PortOptions) -> dict[str, Any]:
    """Return the columns, and the channels, that differ; true is not 1, as Python has it."""
    new = {**after.columns, "channels": list(after.channels)}
    if before is None:
        return new
    old = {**before.columns, "channels": list(before.channels)}
    return {key: value for key, value in new.items() if not is_same(old[key], value)}
