"""Ports in a run: reads and writes are effects, applied when the run ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

from django.utils.functional import cached_property

from hipq_django.flow.connecting import has_default
from hipq_django.flow.contexts import current_context, current_group
from hipq_django.flow.declared_ports import PortOptions, checked_message, message_with_text
from hipq_django.flow.models import NodePort
from hipq_django.flow.ports import AtOnce, Port, find_row
from hipq_django.flow.runs.unread import UnreadMessages
from hipq_django.flow.statements import UnreadMessage
from hipq_django.flow.values import Packet, Write

if TYPE_CHECKING:
    from hipq_django.flow.runs.run import Run


class InRun(AtOnce):
    """Reads a port as it was when the run began, and notes writes and verbs in the run."""

    def __init__(self, run: Run, port: Port) -> None:
        super().__init__(port)
        self._run = run
        self._place = port.place

    @cached_property
    def row(self) -> NodePort:
        """The port's row; one that a `*` stands for is created at once."""
        rows, place = self._run.rows, self._place
        if place not in rows:
            rows[place] = find_row(self._node, place.direction, place.name)
        return rows[place]

    @cached_property
    def _options(self) -> PortOptions:
        return PortOptions(self._port.name, self.row.type)

    @cached_property
    def _unread(self) -> UnreadMessages:
        run, place = self._run, self._place
        if place not in run.unread:
            run.unread[place] = UnreadMessages(self.row, run.volume)
            run.unread[place].pass_over(run.read_before)
        return run.unread[place]

    def write(self, values: Iterable[Any]) -> None:
        """Write messages when the run ends."""
        run = self._run
        run.check_open()
        most = run.settings.max_message_bytes
        for value in values:
            # For each value anew: what yields them may open groups and contexts, and set marks.
            group, context = current_group(), current_context()
            stored, text, size = message_with_text(value, self._options, most)
            run.volume.bytes += size
            how = group.as_default, group.notify, group.log
            run.doing.acts.append(Write(self._place, stored, context, *how, text))
            run.learn({self._port.name: stored}, context)
            self._log("written", stored)

    def read(self, *, or_default: bool) -> Packet | None:
        """Read the oldest message, which is taken when the run ends."""
        if message := self._take():
            return Packet(message.id, message.data, {**message.context}, message.create_time)
        packet = self.default_packet() if or_default else None
        if packet is not None:
            self._log("read", packet.value)
        return packet

    def _take(self) -> UnreadMessage | None:
        run, message = self._run, self._unread.take()
        if message is None:
            return None
        run.doing.taken.append(message.id)
        if run.in_flight is not None:
            run.in_flight.append(message.id)
        run.learn({self._port.name: message.data}, message.context)
        if self._options.type:  # which may have been narrowed since it was written
            checked_message(message.data, self._options)
        if message.log:
            self._log("read", message.data)
        return message

    def _log(self, how: Literal["read", "written"], value: Any) -> None:
        entry = self._run.entry
        if entry is not None and current_group().log:
            entry.note(getattr(entry, how), self._place, [value])

    def peek(self, count: int) -> list[Any]:
        """Return the values of the oldest messages."""
        values = self._unread.peek(count)
        self._run.learn({self._port.name: values})
        return values

    def size(self) -> int:
        """Return how many messages lie there that this run has not read."""
        return len(self._unread)

    def has_messages(self) -> bool:
        """Return whether one lies there that this run has not read."""
        return bool(self._unread)

    def default_packet(self) -> Packet | None:
        """Return the default, or None."""
        packet = self._default()
        if packet is not None:
            self._run.learn({self._port.name: packet.value}, packet.context)
        return packet

    def _default(self) -> Packet | None:
        row = self.row
        if found := self._run.defaults.get(row.pk):
            return Packet(0, found.data, found.context, found.create_time)
        if self._node.pk != self._run.node.pk:
            return super().default_packet()
        return Packet(0, row.value, row.value_context, None) if row.has_default else None

    def set_default(self, value: Any) -> None:
        """Write a message that becomes the default when the run ends."""
        run, context = self._run, current_context()
        stored = checked_message(value, self._options, run.settings.max_message_bytes)
        run.learn({self._port.name: stored}, context)
        run.doing.acts.append(Write(self._place, stored, context, as_default=True, notify=False))

    def do(self, verb: str, *args: Any) -> None:
        """Note it, with ports by their places."""
        given = [[list(i.place) if isinstance(i, Port) else i for i in items] for items in args]
        self._run.note(verb, list(self._place), *given)

    def move(self, targets: Sequence[Port], turns: Iterable[None] = repeat(None)) -> list[Any]:
        """Read a message each turn and write it to other ports, as the default is, too."""
        moved = list[Any]()
        for _ in turns:
            message = self._take()
            if message is None:
                break
            moved.append(message.data)
            for target in targets:
                self._pass_on(target, message.data, {**message.context}, log=message.log)
        self._pass_default_on(targets)
        return moved

    def _pass_default_on(self, targets: Sequence[Port]) -> None:
        packet = self.default_packet()
        if packet is None:
            return
        for target in targets:
            if not has_default(target.row.pk, packet.value, self._run.using):
                self._pass_on(target, packet.value, packet.context, as_default=True)

    def _pass_on(
        self,
        target: Port,
        value: Any,
        context: dict[str, Any],
        *,
        as_default: bool = False,
        log: bool = True,
    ) -> None:
        group = current_group()
        write = Write(target.place, value, context, as_default, group.notify, log and group.log)
        self._run.doing.acts.append(write)
        if isinstance(target.sink, InRun):
            target.sink._log("written", value)
