"""Connections between ports, and messages that are moved once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import write_transaction
from hipq_django.flow import delivering, statements
from hipq_django.flow.contexts import Entry, current_group
from hipq_django.flow.exceptions import FamilyError, UnknownPortError
from hipq_django.flow.logs import data_logged
from hipq_django.flow.models import Connection, Message, NodePort
from hipq_django.flow.ports import Port, defaults_of, for_change, set_channels
from hipq_django.flow.values import Write, is_same

PAGE_SIZE = 200
"""How many messages are moved at once: they may be large."""


def connect(source: Port, targets: Sequence[Port]) -> None:
    """Connect a port to others, and deliver the messages that lie on it.

    The source is locked before its connections are added, so that nothing written meanwhile is
    left behind. All that the targets lead to is locked as well: of two who would close a ring one
    sees what the other has done.
    """
    using = source.node.using
    with write_transaction(using):
        rows = _locked_rows([source, *targets])
        own = rows[source]
        if leads_to([rows[target].pk for target in targets], own.pk, using):
            names = ", ".join(map(repr, targets))
            raise FamilyError(f"{source!r} to {names}: messages would go round for ever.")
        links = [Connection(source=own, target=rows[target]) for target in targets]
        with transaction.atomic(using=using):
            Connection.objects.using(using).bulk_create(links, ignore_conflicts=True)
        for _values in _move(source, own.pk, [rows[target].pk for target in targets]):
            pass  # nobody asks for them


def disconnect_from(source: Port, targets: Sequence[Port]) -> None:
    """Deliver nothing more from a port to these; without any, to none."""
    row, using = source.row, source.node.using
    found = Connection.objects.using(using).filter(source=row)
    if targets:
        found = found.filter(target__in=[target.row.pk for target in targets])
    disconnect([row.pk], found, using)


def disconnect(sources: Iterable[int], connections: QuerySet[Connection], using: str) -> None:
    """Remove connections from some ports, which are locked first.

    A write that is open is delivered before; later ones are not.
    """
    with write_transaction(using):
        rows = NodePort.objects.using(using).filter(ids_in("pk", list(sources)))
        list(locked(rows.order_by("pk"), to_delete=True))
        connections.delete()


def change_channels(port: Port, names: Sequence[str]) -> None:
    """Set the channels of a port."""
    row = port.row
    with write_transaction(port.node.using):
        for_change(port.node, [row.pk])
        row.channel_rows.all().delete()
        set_channels(row, names)


def clear_default(port: Port) -> None:
    """Remove the default of a port."""
    row, using = port.row, port.node.using
    with write_transaction(using):
        for_change(port.node, [row.pk])
        Message.objects.using(using).filter(port=row, as_default=True).delete()
        rows = NodePort.objects.using(using).filter(pk=row.pk)
        rows.update(has_default=False, value={}, value_context={})


PORT_VERBS: dict[str, Callable[..., None]] = {
    "connect": connect,
    "disconnect": disconnect_from,
    "channels": change_channels,
    "clear_default": clear_default,
}
"""The verbs of ports that a run notes and its end does."""


def leads_to(ports: Collection[int], wanted: int, using: str) -> bool:
    """Return whether one of the ports is another one, or connected to it, directly or not."""
    return wanted in statements.reached(ports, using)


def move(source: Port, targets: Sequence[Port]) -> list[Any]:
    """Move the messages on a port to others; return their values.

    A default stays, and is copied to those whose default differs. The ports are locked as those of
    a writer, so that nobody waits but for who reads the same messages.
    """
    using = source.node.using
    with write_transaction(using):
        ids = [port.row.pk for port in (source, *targets)]
        wanted = delivering.with_listeners(ids, source.node.instance, using)
        there = statements.lock_places(wanted, using, skip_locked=False)
        _check_all_there(dict(zip(ids, (source, *targets), strict=True)), there)
        return list(chain.from_iterable(_move(source, ids[0], ids[1:])))


def _locked_rows(ports: Sequence[Port]) -> dict[Port, NodePort]:
    """Lock ports, and all that they lead to, in the order of their ids.

    Raise `UnknownPortError` if one is gone.
    """
    using = ports[0].node.using
    by_id = {port._known_id or port.row.pk: port for port in ports}
    rows = NodePort.objects.using(using).filter(ids_in("pk", statements.reached(by_id, using)))
    found = {row.pk: row for row in locked(rows.order_by("pk"), to_delete=True)}
    _check_all_there(by_id, found)
    return {port: found[pk] for pk, port in by_id.items()}


def _check_all_there(ports: Mapping[int, Port], found: Collection[int]) -> None:
    """Raise `UnknownPortError` if one of the ports was not found."""
    for pk, port in ports.items():
        if pk not in found:
            raise UnknownPortError(f"{port!r} was deleted.")


def _move(source: Port, row: int, targets: Sequence[int]) -> Iterator[list[Any]]:
    """Move the messages on a port; yield their values, page by page.

    The pages are those of one look: what a writer commits meanwhile stays, and so does all that it
    writes later, whose order would be another one otherwise.
    """
    using = source.node.using
    unread = Message.objects.using(using).filter(port=row, as_default=False)
    ids = list(unread.order_by("pk").values_list("pk", flat=True))
    with data_logged(source.node) as entry:
        for start in range(0, len(ids), PAGE_SIZE):
            values = _move_page(source, ids[start : start + PAGE_SIZE], targets)
            _note(entry, source, targets, values)
            yield values
    delivering.write(_defaults_for(source, targets), source.node.instance, using, clock.now(using))


def _move_page(source: Port, ids: Sequence[int], targets: Sequence[int]) -> list[Any]:
    """Move the messages that nobody has read meanwhile; return their values."""
    using, group = source.node.using, current_group()
    rows = Message.objects.using(using).filter(ids_in("pk", ids)).order_by("pk")
    messages = list(locked(rows, to_delete=True))
    items = [
        Write(target, m.data, m.context, False, group.notify, m.log and group.log)
        for m in messages
        for target in targets
    ]
    delivering.write(items, source.node.instance, using, clock.now(using))
    Message.objects.using(using).filter(ids_in("pk", [m.pk for m in messages])).delete()
    return [m.data for m in messages]


def _defaults_for(source: Port, targets: Sequence[int]) -> list[Write]:
    packet, using, group = source.sink.default_packet(), source.node.using, current_group()
    if packet is None:
        return []
    return [
        Write(target, packet.value, packet.context, True, group.notify, group.log)
        for target in targets
        if not has_default(target, packet.value, using)
    ]


def has_default(port: int, value: Any, using: str) -> bool:
    """Return whether a value is the default of all ports on which one for this port comes to lie.

    Of a port that is connected these are others, and its own default says nothing of them.
    """
    passed = statements.reached([port], using)
    connected = Connection.objects.using(using).filter(ids_in("source", passed))
    ends = passed - set(connected.values_list("source", flat=True))
    defaults = defaults_of(list(ends), using)
    return all(end in defaults and is_same(defaults[end].value, value) for end in ends)


def _note(entry: Entry | None, source: Port, targets: Sequence[int], values: list[Any]) -> None:
    if entry is None or not values:
        return
    entry.note(entry.read, source.place, values)
    rows = NodePort.objects.using(source.node.using).filter(pk__in=targets)
    for row in rows.order_by("pk"):
        entry.note(entry.written, row.place, values)
