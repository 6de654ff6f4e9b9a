"""Ports: the same object in a run and outside of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from hipq_django.database import clock
from hipq_django.database.built_once import built_once
from hipq_django.database.locks import for_key_share, locked
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import write_transaction
from hipq_django.database.twins import method_twin, property_twin
from hipq_django.exceptions import nearest_name
from hipq_django.flow import delivering
from hipq_django.flow.contexts import current_context, current_group
from hipq_django.flow.declared_ports import (
    ANY,
    PortOptions,
    checked_channels,
    checked_messages,
    checked_port_name,
    message_with_text,
)
from hipq_django.flow.declaring import ComponentDeclaration
from hipq_django.flow.exceptions import (
    FamilyError,
    FlowError,
    InvalidPortError,
    NodeDeletedError,
    UnknownPortError,
)
from hipq_django.flow.logs import data_logged
from hipq_django.flow.models import Channel, Message, Node, NodePort, verbs
from hipq_django.flow.models.node import deleted
from hipq_django.flow.publishing import hears_log
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.statements import newest_defaults
from hipq_django.flow.values import NOTHING, Packet, PortName, Write
from hipq_django.job_types.registry import get_declared


class AtOnce:
    """Reads and writes a port in the database at once, as a port outside of runs does.

    In a run, `runs.ports.InRun` stands in its place.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._node = port.node

    @property
    def row(self) -> NodePort:
        """The port's row, as it is now; raise `UnknownPortError` where it is gone."""
        return find_row(self._node, self._port.direction, self._port.name)

    @property
    def _messages(self) -> QuerySet[Message]:
        return Message.objects.using(self._node.using).filter(port=self.row, as_default=False)

    def write(self, values: Iterable[Any]) -> None:
        """Write messages, in their order."""
        group = current_group()
        items = self._items(values, as_default=group.as_default, notify=group.notify, log=group.log)
        with write_transaction(self._node.using), data_logged(self._node) as entry:
            if entry is not None:
                entry.note(entry.written, self._port.place, [item.value for item in items])
            self._deliver(items)

    def _items(self, values: Iterable[Any], **how: bool) -> list[Write]:
        row, context = self.row, current_context()
        most = flow_settings(self._node.instance).max_message_bytes
        options, items = PortOptions(self._port.name, row.type), list[Write]()
        for value in values:
            stored, text, _ = message_with_text(value, options, most)
            items.append(Write(row.pk, stored, context, text=text, **how))
        return items

    def _deliver(self, items: Sequence[Write]) -> None:
        using = self._node.using
        delivering.write(items, self._node.instance, using, clock.now(using))

    def read(self, *, or_default: bool) -> Packet | None:
        """Take the oldest message; None, or the default, if none lies there."""
        with write_transaction(self._node.using), data_logged(self._node) as entry:
            row = self._oldest()
            if row is None:
                packet = self.default_packet() if or_default else None
            else:
                packet = Packet(row.pk, row.data, row.context, row.create_time)
                row.delete(using=self._node.using)
            if entry is not None and packet is not None and (row is None or row.log):
                entry.note(entry.read, self._port.place, [packet.value])
        return packet

    def _oldest(self) -> Message | None:
        """Return the oldest message under its lock.

        After a wait for another reader the query is repeated: it has missed newer messages.
        """
        rows = self._messages.order_by("pk")
        while (row := locked(rows, to_delete=True).first()) is None and rows.exists():
            pass
        return row

    def peek(self, count: int) -> list[Any]:
        """Return the values of the oldest messages."""
        return list(self._messages.order_by("pk").values_list("data", flat=True)[:count])

    def size(self) -> int:
        """Return how many messages lie there."""
        return self._messages.count()

    def has_messages(self) -> bool:
        """Return whether a message lies there."""
        return self._messages.exists()

    def default_packet(self) -> Packet | None:
        """Return the default, or None."""
        port = self.row.pk
        return defaults_of([port], self._node.using).get(port)

    def set_default(self, value: Any) -> None:
        """Write a message that becomes the default."""
        items = self._items([value], as_default=True, notify=False)
        with write_transaction(self._node.using):
            self._deliver(items)

    def do(self, verb: str, *args: Any) -> None:
        """Do a verb of `connecting.PORT_VERBS`."""
        verbs.PORT_VERBS[verb](self._port, *args)

    def move(self, targets: Sequence[Port]) -> list[Any]:
        """Move all messages to other ports; return their values."""
        return verbs.move(self._port, targets)


class Port:
    """A port of a node. Each call reads the database, and writes at once.

    Reads and writes of a port that a run has opened count when the run ends.
    """

    def __init__(
        self,
        node: Node,
        direction: str,
        name: str,
        known_id: int = 0,
        sink: Callable[[Port], AtOnce] = AtOnce,
    ) -> None:
        self.node = node
        self._known_id = known_id
        self.direction = direction
        self.name = name
        self.place = PortName(node.pk, direction, name)
        """Which port it is."""
        self.last: Packet | None = None
        """The packet that this object has read last."""
        self.sink = sink(self)
        """Where it reads and writes: at once in the database, or in a run."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Port):
            return False
        return self.place == other.place and self.node.instance == other.node.instance

    def __hash__(self) -> int:
        return hash(self.place)

    def __repr__(self) -> str:
        return f"<{self.direction}-port {self.name!r} of node {self.node.pk}>"

    @property
    def row(self) -> NodePort:
        """The port's row; raise `UnknownPortError` where it is gone."""
        return self.sink.row

    # Writing

    def write(self, value: Any) -> None:
        """Write one message; it counts when the caller's transaction is committed."""
        self.sink.write((value,))

    def write_many(self, values: Iterable[Any]) -> None:
        """Write several messages, in their order."""
        self.sink.write(checked_messages(values, self.name))

    # Reading

    def read(self) -> Any:
        """Take the oldest message and return its value; the default, or `NOTHING`, if none is."""
        self.last = packet = self.sink.read(or_default=True)
        return NOTHING if packet is None else packet.value

    def packet(self) -> Packet | None:
        """Take the oldest message as a `Packet`, with its id, its context and its time."""
        self.last = self.sink.read(or_default=True)
        return self.last

    def __iter__(self) -> Iterator[Any]:
        while packet := self.sink.read(or_default=False):
            self.last = packet
            yield packet.value

    def peek(self, count: int = 1) -> list[Any]:
        """Return the oldest messages without taking them."""
        return self.sink.peek(count)

    @property
    def size(self) -> int:
        """How many messages lie there; a default does not count."""
        return self.sink.size()

    @property
    def has_data(self) -> bool:
        """Whether reading gives something."""
        return self.sink.has_messages() or self.sink.default_packet() is not None

    # The default

    @property
    def default(self) -> Any:
        """The value of a read while no message lies there; `NOTHING` if there is no default."""
        packet = self.sink.default_packet()
        return NOTHING if packet is None else packet.value

    @default.setter
    def default(self, value: Any) -> None:
        if value is NOTHING:
            del self.default
        else:
            self.sink.set_default(value)

    @default.deleter
    def default(self) -> None:
        self.sink.do("clear_default")

    # Channels and connections

    @property
    def channels(self) -> list[str]:
        """The channels it subscribes to, or, of an out-port, publishes to."""
        return list(self.row.channel_rows.order_by("pk").values_list("name", flat=True))

    @channels.setter
    def channels(self, names: Sequence[str]) -> None:
        self.sink.do("channels", list(checked_channels(self.name, names)))

    def connect(self, *targets: Port) -> None:
        """Deliver the messages that lie here, and all later ones, to other ports."""
        self.sink.do("connect", checked_targets(self, "connect", targets))

    def disconnect(self, *targets: Port) -> None:
        """Deliver nothing more to these ports; without any, to none."""
        self.sink.do("disconnect", checked_ports(self, targets))

    def move_to(self, *targets: Port) -> list[Any]:
        """Move the messages that lie here to other ports; return their values.

        A default stays, and is copied to the others.
        """
        return self.sink.move(checked_targets(self, "move_to", targets))

    # In async code

    awrite = method_twin(write)
    awrite_many = method_twin(write_many)
    aread = method_twin(read)
    apacket = method_twin(packet)
    apeek = method_twin(peek)
    aconnect = method_twin(connect)
    adisconnect = method_twin(disconnect)
    amove_to = method_twin(move_to)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Take all messages, in async code; a default is never among them."""
        while packet := await sync_to_async(self.sink.read)(or_default=False):
            self.last = packet
            yield packet.value

    @property_twin
    def asize(self) -> int:
        """Return `size` in async code."""
        return self.size

    @property_twin
    def ahas_data(self) -> bool:
        """Return `has_data` in async code."""
        return self.has_data

    @property_twin
    def adefault(self) -> Any:
        """Return `default` in async code."""
        return self.default

    @property_twin
    def achannels(self) -> list[str]:
        """Return `channels` in async code."""
        return self.channels

    async def aset_default(self, value: Any) -> None:
        """Set `default` in async code; `NOTHING` removes it."""
        await sync_to_async(setattr)(self, "default", value)

    async def aset_channels(self, names: Sequence[str]) -> None:
        """Set `channels` in async code."""
        await sync_to_async(setattr)(self, "channels", names)


def checked_targets(source: Port, verb: str, targets: Iterable[Port]) -> list[Port]:
    """Return each of the ports once to which messages are to go.

    Raise `FlowError` where there is none: then all that lies on the source would be lost.
    """
    if found := checked_ports(source, targets):
        return found
    raise FlowError(
        f"{verb}() of {source!r} got no port, so all messages there would be lost; give it at "
        "least one. To drop messages, read them; to end connections, call disconnect()."
    )


def checked_ports(source: Port, targets: Iterable[Port]) -> list[Port]:
    """Return the ports without doubles.

    Raise `FamilyError` for one of another instance, whose id may be that of any port here.
    """
    for target in targets:
        if target.node.instance != source.node.instance:
            raise FamilyError(f"{source!r} to {target!r}: they are of different instances.")
    return list(dict.fromkeys(targets))


def for_change(node: Node, ports: Iterable[int]) -> list[NodePort]:
    """Lock ports so that nobody writes to them meanwhile; in the order of their ids."""
    rows = NodePort.objects.using(node.using).filter(pk__in=list(ports)).order_by("pk")
    return list(locked(rows, to_delete=True))


def set_channels(row: NodePort, channels: Iterable[str]) -> None:
    """Give a port channels, which has none."""
    rows = [Channel(port=row, name=name) for name in channels]
    Channel.objects.using(row.using).bulk_create(rows)
    if any(channel.name.startswith("/flow") for channel in rows):
        hears_log.note(row.using)


def defaults_of(ports: Sequence[int], using: str) -> dict[int, Packet]:
    """Return the defaults of ports that have one, by the ids of the ports.

    Messages are read before rows, into which the ends of runs move them: what is gone from the
    first is in the second.
    """
    newest = newest_defaults(ports, using)
    found = {
        port: Packet(0, message.data, message.context, message.create_time)
        for port, message in newest.items()
    }
    if left := set(ports) - found.keys():
        rows = NodePort.objects.using(using).filter(ids_in("pk", left), has_default=True)
        found |= {row.pk: Packet(0, row.value, row.value_context, None) for row in rows}
    return found


def find_row(node: Node, direction: str, name: str) -> NodePort:
    """Return the row of a port; raise `UnknownPortError` where there is none.

    One that a new release of the component declares, or that a `*` stands for, is created.
    """
    check_known_name(name)
    place = (node.pk, node.create_time, direction)
    if found := _named(*place, name, node.using):
        return found[0]
    declared = declared_port(node, direction, name)
    if declared is not None and node.exists():
        columns = {**declared.columns, "declared": True}
        return _create(node.pk, direction, name, columns, declared.channels, node.using)
    template = _named(*place, ANY, node.using)
    if not template:
        raise _unknown(node, direction, name)
    return copy_of_template(template[0], name)


@built_once
def _named(
    node: int, create_time: datetime, direction: str, name: str, using: str
) -> QuerySet[NodePort]:
    """Return the port of a node that has this name; see `PortQuerySet.of_node`."""
    of_node = NodePort.objects.using(using).filter(node=node, node__create_time=create_time)
    return of_node.filter(direction=direction, name=name)


def declared_port(node: Node, direction: str, name: str) -> PortOptions | None:
    """Return the options that the component of a node declares for a port, or None."""
    declared = get_declared(node.instance, node.job_type.name)
    if isinstance(declared, ComponentDeclaration):
        return declared.ports(direction).get(name)
    return None


def check_known_name(name: object) -> None:
    """Raise `UnknownPortError` for a name that no port can have."""
    try:
        checked_port_name(name)
    except InvalidPortError as error:
        raise UnknownPortError(str(error)) from error


def copy_of_template(template: NodePort, name: str) -> NodePort:
    """Create the port that a `*` stands for, with its default and its channels.

    Node and template are locked as a port that is written to: who deletes the node, or changes its
    ports, sees the new one, too.
    """
    node, using = template.node_id, template.using
    with write_transaction(using):
        lock_against_deletion(node, using)
        if not for_key_share(NodePort.objects.using(using).filter(pk=template.pk)):
            raise UnknownPortError(f"port {name!r} of node {node} was deleted.")
        copied = ("mode", "type", "has_default", "value", "value_context", "meta")
        columns = {column: getattr(template, column) for column in copied}
        channels = template.channel_rows.values_list("name", flat=True)
        return _create(node, template.direction, name, columns, channels, using)


def _create(
    node: int,
    direction: str,
    name: str,
    columns: dict[str, Any],
    channels: Iterable[str],
    using: str,
) -> NodePort:
    """Return a new port, or the one that somebody else has created meanwhile."""
    with write_transaction(using):
        lock_against_deletion(node, using)
        row, is_new = NodePort.objects.using(using).get_or_create(
            node_id=node, direction=direction, name=name, defaults=columns
        )
        if is_new and (room := current_group().room):
            room.take(row.value, row.value_context, row.meta)
        if is_new:
            set_channels(row, channels)
    return row


def lock_against_deletion(node: int, using: str) -> None:
    """Keep a node from being deleted before this transaction ends."""
    if not for_key_share(Node.objects.using(using).filter(pk=node)):
        raise NodeDeletedError(f"node {node} was deleted.")


def _unknown(node: Node, direction: str, name: str) -> Exception:
    if not node.exists():
        return deleted(node)
    rows = NodePort.objects.using(node.using).filter(node=node.pk, direction=direction)
    known = list(rows.exclude(name=ANY).values_list("name", flat=True))
    near = nearest_name(name, known) if known else "; it has none."
    return UnknownPortError(f"node {node.pk} has no {direction}-port {name!r}{near}")


class Ports(Mapping[str, Port]):
    """The ports of one side of a node, by their names."""

    def __init__(self, node: Node, direction: str, run: Any = None) -> None:
        self._node = node
        self._direction = direction
        self._run = node.of_run if run is None else run

    def __getitem__(self, name: str) -> Port:
        if self._run is not None:
            return self._run.opened(self._node, self._direction, name)  # type: ignore[no-any-return]  # a port; runs stand above
        row = find_row(self._node, self._direction, name)
        return Port(self._node, self._direction, row.name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a port, or the default where there is none."""
        try:
            return self[name]
        except UnknownPortError:
            return default

    async def aget(self, name: str) -> Port:
        """Return a port in async code; raise `UnknownPortError` where there is none."""
        return await sync_to_async(self.__getitem__)(name)

    def __iter__(self) -> Iterator[str]:
        found = self._names
        if not (found or self._node.exists()):
            raise deleted(self._node)
        return iter(found)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the names in async code."""
        for name in await sync_to_async(lambda: list(self))():
            yield name

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def _names(self) -> list[str]:
        rows = NodePort.objects.using(self._node.using).of_node(self._node)
        named = rows.filter(direction=self._direction).exclude(name=ANY)
        return list(named.order_by("pk").values_list("name", flat=True))

    def __repr__(self) -> str:
        return f"<{self._direction}-ports of node {self._node.pk}: {', '.join(self._names)}>"
