"""Channels: what is published on them, and what flows say there themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from asgiref.sync import sync_to_async

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.presence import Presence
from hipq_django.database.transactions import write_transaction
from hipq_django.flow import delivering
from hipq_django.flow.contexts import current_context, current_group
from hipq_django.flow.declared_ports import PortOptions, checked_channel, checked_message
from hipq_django.flow.declaring import all_components, components
from hipq_django.flow.models import Channel, Node
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.statements import is_heard, observers_among
from hipq_django.flow.values import Write
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Worker

LOG_CHANNEL = "/flow/log"


def _is_log_heard(using: str) -> bool:
    rows = Channel.objects.using(using).filter(name__in=["/flow", LOG_CHANNEL])
    return rows.filter(port__direction="in").exists()


hears_log = Presence(_is_log_heard)
"""Whether somebody listens to the log of a database."""


def publish(channel: str, message: Any, *, instance: str = DEFAULT) -> None:
    """Write a message to all in-ports that subscribe to a channel, or to one above it.

    A message on `/orders/new` goes to the subscribers of `/orders/new`, `/orders` and `/`.
    """
    name = checked_channel(channel)
    most = flow_settings(instance).max_message_bytes
    value = checked_message(message, PortOptions(name), most)
    group = current_group()
    how = group.as_default, group.notify, group.log
    item = Write(name, value, current_context(), *how)
    using = get_instance(instance).database
    with write_transaction(using):
        delivering.write([item], instance, using, clock.now(using))


apublish = sync_to_async(publish)


def announce_components(worker: Worker) -> None:
    """Publish the components of each queue that a worker serves, if somebody listens to `/flow`."""
    instance, using = worker.instance, get_instance(worker.instance).database
    if not is_heard(using):
        return
    queues = {declared.queue for declared in all_components(instance)}
    said = [
        (f"/flow/components/{queue}", components(queue, instance=instance))
        for queue in sorted(filter(worker.is_for, queues))
    ]
    items = [
        Write(channel, checked_message(told, PortOptions(channel)), log=False)
        for channel, told in said
    ]
    with write_transaction(using):
        delivering.write(items, instance, using, clock.now(using))


def announce(
    said: Iterable[tuple[int, Mapping[str, Any]]],
    instance: str,
    using: str,
    *,
    skip_locked: bool = False,
) -> None:
    """Publish what became of nodes on their own channels, if somebody listens to `/flow`.

    Not of observers: one that heard of its own runs would run for ever. With `skip_locked` raise
    `LockedPortError` instead of waiting for a port.
    """
    if not is_heard(using):
        return
    wanted = list(said)
    observers = observers_among([pk for pk, _ in wanted], using)
    items = [
        Write(f"/flow/node/{pk}", dict(what), log=False)
        for pk, what in wanted
        if pk not in observers
    ]
    delivering.write(items, instance, using, clock.now(using), skip_locked=skip_locked)


def announce_status(
    nodes: Iterable[tuple[Node, str]], using: str, *, skip_locked: bool = False
) -> None:
    """Publish what nodes are now, if somebody listens and their components say so."""
    if not is_heard(using):
        return
    said: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for node, status in nodes:
        declared = get_declared(node.instance, node.job_type.name)
        if getattr(declared, "status_publish", True):
            said.setdefault(node.instance, []).append((node.pk, {"status": status}))
    for instance, what in said.items():
        announce(what, instance, using, skip_locked=skip_locked)
