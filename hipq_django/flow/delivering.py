"""Delivers messages along connections and channels, with a wake for each node.

Writers lock no node: the ports they write to are locked so weakly that writers do not meet. What
connects, changes or deletes a port waits for them, so no message is left behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple, cast

from hipq_django import events
from hipq_django.database.errors import LockedRowError
from hipq_django.database.locks import takes_writers_together
from hipq_django.database.lookups import ids_in, in_parts
from hipq_django.domain.validation import aware_moment
from hipq_django.engines import engine_for
from hipq_django.flow.contexts import current_group
from hipq_django.flow.declared_ports import ancestors, is_of, wrong_type
from hipq_django.flow.exceptions import FlowError, UnknownPortError
from hipq_django.flow.models import Channel, NodePort
from hipq_django.flow.statements import (
    NewMessage,
    PortPlace,
    channels_of,
    go_with_wakes,
    insert_messages,
    insert_wakes,
    lock_places,
    ways_from,
)
from hipq_django.flow.values import Write

MOST_PASSED = 10_000
"""How many ports a message passes at most, each counted for each path that leads there."""


class LockedPortError(LockedRowError):
    """A port is locked by a transaction that changes it: the run is ended later."""


class Way(NamedTuple):
    """Where a message for a port goes."""

    channels: list[str]
    """On which it is published."""
    targets: list[PortPlace]
    """The ports on which it comes to lie."""


class Routes:
    """Where the messages for some ports go: read once for many messages."""

    def __init__(
        self, ports: Collection[int], instance: str, using: str, *, skip_locked: bool
    ) -> None:
        self.using = using
        self._instance = instance
        self._skip_locked = skip_locked
        self.places: dict[int, PortPlace] = {}
        self._next: dict[int, list[int]] = {}
        self._subscribers: dict[str, dict[int, None]] = {}
        """The ports by channel, as keys: a channel may be read twice, for different ones below."""
        self._channels: dict[int, list[str]] = {}
        self._ways: dict[int, Way] = {}
        self._follow(ports if skip_locked else with_listeners(ports, instance, using))
        passed = {p for port in ports if port in self.places for p in self._passed(port)}
        self.subscribe({name for p in passed for name in self._channels.get(p, ())})

    def _follow(self, ports: Collection[int]) -> None:
        """Lock ports and the ports they are connected to, and read their connections.

        Connections are read after the lock of their source, so that some may be new: their targets
        are locked in turn. A target that is deleted at this moment is connected no more.
        """
        frontier = set(ports) - set(self.places)
        while frontier:
            found = self._lock(frontier)
            targets, channels = ways_from(found, self.using)
            self._next |= {pk: targets.get(pk, []) for pk in found}
            self._channels |= {
                pk: names for pk, names in channels.items() if found[pk].direction == "out"
            }
            frontier = {pk for nexts in targets.values() for pk in nexts} - set(self.places)

    def _lock(self, ids: Collection[int]) -> dict[int, PortPlace]:
        """Lock ports, and those that they lead to, in the order of the ids; return the new ones.

        Those that are gone are left out.
        """
        found = lock_places(ids, self.using, skip_locked=self._skip_locked)
        missing = set(ids) - set(found)
        if missing and self._skip_locked and self._exists_any(missing):
            raise LockedPortError(sorted(missing))
        new = {pk: place for pk, place in found.items() if pk not in self.places}
        self.places |= new
        return new

    def _exists_any(self, ids: Collection[int]) -> bool:
        return NodePort.objects.using(self.using).filter(ids_in("pk", ids)).exists()

    def subscribe(self, channels: Collection[str]) -> None:
        """Read who gets what is published on these channels."""
        for name, port in _listening(channels, self._instance, self.using):
            self._subscribers.setdefault(name, {})[port] = None
        self._follow({port for ports in self._subscribers.values() for port in ports})

    def way(self, port: int) -> Way:
        """Return what becomes of a message for a port."""
        if port not in self._ways:
            passed = self._passed(port)
            channels = [name for p in passed for name in self._channels.get(p, ())]
            self._ways[port] = Way(channels, [self.places[p] for p in passed if not self._nexts(p)])
        return self._ways[port]

    def way_from_channel(self, subscriber: int) -> Way:
        """Return what becomes of a published message for a port: nothing if it leads too far."""
        try:
            return self.way(subscriber)
        except FlowError as error:
            events.warning("subscriber_left_out", str(error), port=subscriber)
            self._ways[subscriber] = Way([], [])  # said once
            return self._ways[subscriber]

    def _nexts(self, port: int) -> list[int]:
        """Return the ports that a port is connected to and that are there."""
        return [target for target in self._next[port] if target in self.places]

    def subscribers(self, channel: str) -> list[int]:
        """Return the ports that get what is published on a channel, the deepest path first."""
        found = [port for path in ancestors(channel) for port in self._subscribers.get(path, ())]
        return [port for port in found if port in self.places]

    def _passed(self, port: int) -> list[int]:
        """Return a port and those that a message for it passes, its targets included.

        Each is named once for each path that leads there. Raise `FlowError` for too many: a few
        ports, each connected to several that are connected to the same next ones, are enough.
        """
        passed, left = [], [port]
        while left:
            passed.append(left.pop())
            left += reversed(self._nexts(passed[-1]))
            if len(passed) > MOST_PASSED:
                place = self.places[port]
                raise FlowError(
                    f"{place.direction}-port {place.name!r} of node {place.node_id} leads to more "
                    f"than {MOST_PASSED:,} ports, counted along each path; disconnect some."
                )
        return passed


def with_listeners(ports: Collection[int], instance: str, using: str) -> set[int]:
    """Return ports with those that listen to what is published when one writes to them.

    Who waits for locks takes all of them together, in the order of the ids: so does who is going to
    change or delete ports, and neither waits for the other for ever.
    """
    if not (ports and takes_writers_together(using)):
        return set(ports)
    channels = channels_of(ports, using)
    return {*ports, *(port for _, port in _listening(channels, instance, using))}


def _listening(channels: Collection[str], instance: str, using: str) -> list[tuple[str, int]]:
    """Return the subscriptions to channels, and to those above them."""
    wanted = {path for channel in channels for path in ancestors(channel)}
    rows = Channel.objects.using(using).filter(port__direction="in", port__node__instance=instance)
    found: list[tuple[str, int]] = []
    for names in in_parts(wanted, using):
        found += rows.filter(name__in=names).values_list("name", "port_id")
    return sorted(found, key=itemgetter(1, 0))


class Delivery:
    """Messages that are about to be stored, and the nodes that they wake."""

    def __init__(self, routes: Routes, now: datetime) -> None:
        self._routes = routes
        self._now = now
        self.messages: list[NewMessage] = []
        self._woken: set[int] = set()
        self._room = current_group().room

    def write(self, item: Write) -> None:
        """Write one value to its port, and to what is joined with it, or to its channel."""
        if isinstance(item.place, str):
            self._publish(item.place, item)
            return
        way = self._routes.way(cast("int", item.place))
        for channel in way.channels:
            self._publish(channel, item)
        for target in way.targets:
            if not is_of(target.type, item.value):
                # Who connects ports, or moves messages, need not be allowed to see them.
                raise wrong_type(target.name, target.type, type(item.value).__name__)
            self._lay(target, item)

    def _publish(self, channel: str, item: Write) -> None:
        """Write one value to all ports that subscribe to a channel, and are of its type.

        A publisher does not know its subscribers, so what they do not take is no error.
        """
        context = {**item.context, "channel": item.context.get("channel", channel)}
        for subscriber in self._routes.subscribers(channel):
            for target in self._routes.way_from_channel(subscriber).targets:
                if is_of(target.type, item.value):
                    self._lay(target, replace(item, context=context))

    def _lay(self, port: PortPlace, item: Write) -> None:
        if self._room is not None:
            self._room.take(item.value, item.context)
        as_default = item.as_default or port.mode == "memory"
        self.messages.append(
            NewMessage(port.id, item.value, item.context, as_default, item.log, item.text)
        )
        if item.notify:
            woken = port.node_id if port.direction == "in" else port.parent
            if woken is not None:
                self._woken.add(woken)

    def store(self, instance: str) -> None:
        """Store the messages, with a wake for each node that got some."""
        messages, using = _without_replaced(self.messages), self._routes.using
        if self._woken and go_with_wakes(messages, using):
            wake(self._woken, instance, using, self._now, messages=messages)
        else:
            insert_messages(messages, self._now, using)
            wake(self._woken, instance, using, self._now)


def _without_replaced(messages: Sequence[NewMessage]) -> Sequence[NewMessage]:
    """Leave out the defaults that a later message for the same port replaces."""
    newest = {message.port: message for message in messages if message.as_default}
    if not newest:  # as nearly always
        return messages
    return [m for m in messages if not m.as_default or m is newest[m.port]]


def write(
    items: Sequence[Write], instance: str, using: str, now: datetime, *, skip_locked: bool = False
) -> None:
    """Write values to ports, and to those that subscribe to channels, in the current transaction.

    They come to lie in their order.
    """
    if not items:
        return
    places = {item.place for item in items}
    ports = {place for place in places if isinstance(place, int)}
    routes = Routes(ports, instance, using, skip_locked=skip_locked)
    if gone := ports - routes.places.keys():
        raise UnknownPortError(f"there is no port {min(gone)} any more.")
    routes.subscribe({place for place in places if isinstance(place, str)})
    delivery = Delivery(routes, now)
    for item in items:
        delivery.write(item)
    delivery.store(instance)


def wake(
    nodes: Iterable[int],
    instance: str,
    using: str,
    now: datetime,
    due: datetime | None = None,
    messages: Sequence[NewMessage] = (),
) -> None:
    """Note that nodes have something to look at, and wake workers after the commit.

    `messages` that `go_with_wakes` are what they have.
    """
    ids = sorted(set(nodes))
    if not ids:
        return
    if due is not None:
        due = aware_moment("due", due)
    queues = insert_wakes(ids, due, instance, now, using, messages)
    engine_for(using).wake_workers(instance, queues)
