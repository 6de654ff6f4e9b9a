"""Components that wait: for a trigger, for others, for a time, for a person.

Source: the workers of SideJob's workers-core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from hipq_django.database import clock
from hipq_django.domain.validation import MAX_SECONDS
from hipq_django.flow.base import Component
from hipq_django.flow.declared_ports import AnyIn, AnyOut, In, Out
from hipq_django.flow.declaring import component
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.library.shaping import as_list
from hipq_django.flow.values import MAX_HELD, WIDGET, as_text, size_of


@component("flow.wait", public=True)
class Wait(Component):
    """Hand on one value for each trigger."""

    value, trigger, out = In(name="in"), In(), Out()

    def perform(self) -> None:
        for _, value in self.each("trigger", "in"):
            self.out.write(value)


@component("flow.wait_each", public=True)
class WaitEach(Component):
    """Hand on a list once each of its elements has come on `each`, in any order."""

    value, element, out = In(name="in"), In(name="each"), Out()

    def perform(self) -> None:
        received = _Received(self.state.get("received", []))
        for element in self._some("each"):
            received.add(element)
        for _ in self._run.turns():
            wanted = self.inputs["in"].peek()
            if not (wanted and received.take_all(as_list(wanted[0]))):
                break
            self.out.write(self.inputs["in"].read())
        else:
            self.run()
        self.state.set(received=received.as_json())
        if self.inputs["in"].size:
            self.suspend()


class _Received:
    """The elements that have come and that no list has taken yet, each with their number."""

    def __init__(self, kept: list[list[Any]]) -> None:
        self._elements = {as_text(element): element for element, _ in kept}
        self._counts = Counter({as_text(element): count for element, count in kept})

    def add(self, element: Any) -> None:
        """Note one more."""
        text = as_text(element)
        self._elements[text] = element
        self._counts[text] += 1

    def take_all(self, wanted: list[Any]) -> bool:
        """Take the elements of a list, if all of them have come; return whether they have."""
        needed = Counter(map(as_text, wanted))
        if any(self._counts[text] < count for text, count in needed.items()):
            return False
        self._counts.subtract(needed)
        return True

    def as_json(self) -> list[list[Any]]:
        """Return what is kept in the state."""
        return [[self._elements[text], count] for text, count in self._counts.items() if count]


@component("flow.map", public=True)
class Map(Component):
    """Write the elements of a list to `each`; make a list of what comes back on `each`."""

    value, mapped = In(name="in"), In(name="each")
    element, out = Out(name="each"), Out()

    def perform(self) -> None:
        waiting = [*self.state.get("waiting", []), *self._begun()]
        done = self._mapped(waiting, list(self.state.get("done", [])))
        self.state.set(waiting=waiting, done=done)
        if waiting:
            self.suspend()

    def _begun(self) -> Iterator[int]:
        """Write the elements of lists; yield how many each has."""
        for value in self._some("in"):
            elements = as_list(value)
            self.outputs["each"].write_many(elements)
            yield len(elements)

    def _mapped(self, waiting: list[int], done: list[Any]) -> list[Any]:
        """Read what has come back for the lists that wait, and make lists of it; return the rest.

        What nobody waits for yet stays on the port.
        """
        port = self.inputs["each"]
        for _ in self._run.turns():
            while waiting and len(done) >= waiting[0]:
                count = waiting.pop(0)
                self.out.write(done[:count])
                done = done[count:]
            if not (waiting and port.sink.has_messages()):
                return done
            done.append(port.read())
        self.run()
        return done


@component("flow.delay", public=True)
class Delay(Component):
    """Hand on values some seconds after they came."""

    value, seconds, out = In(name="in"), In(float, name="delay"), Out()

    def perform(self) -> None:
        now = clock.now(self.node.using).timestamp()
        held = self._handed_on(self.state.get("held", []), now)
        held = self._handed_on([*held, *self._taken(size_of(held), now)], now)
        self.state.set(held=held)
        if held:
            self.run(at=datetime.fromtimestamp(held[0][0], UTC))
        if held or self.inputs["in"].peek():
            self.suspend()

    def _taken(self, volume: int, now: float) -> Iterator[list[Any]]:
        """Yield values, each with when it is due, until too many bytes are held.

        What is due already is not held. So whenever this ends for the bytes alone, something is
        held, and the run that hands it on takes further values.
        """
        values, delay = self.inputs["in"], self.inputs["delay"]
        for _ in self._run.turns():
            if volume > MAX_HELD or not (values.peek() and delay.has_data):
                return
            seconds = delay.read()
            packet = values.packet()
            assert packet is not None and packet.time is not None  # noqa: S101, PT018 - for type checkers
            if seconds > MAX_SECONDS:
                raise FlowError(
                    f"flow.delay: delay={seconds!r}; give at most {MAX_SECONDS:,} seconds (ten "
                    "years)."
                )
            entry = [packet.time.timestamp() + seconds, packet.value]
            if entry[0] > now:
                volume += size_of(entry)
            yield entry
        self.run()

    def _handed_on(self, held: list[list[Any]], now: float) -> list[list[Any]]:
        """Hand on what is due; return the rest, what is due first at its beginning."""
        held = sorted(held, key=itemgetter(0))
        later = [entry for entry in held if entry[0] > now]
        for _, value in held[: len(held) - len(later)]:
            self.out.write(value)
        return later


class _Waiting(Component):
    any_in, any_out = AnyIn(), AnyOut()

    def perform(self) -> None:
        self.suspend()


@component("flow.placeholder", public=True)
class Placeholder(_Waiting):
    """Stand for a node that is not there yet: messages lie on its ports."""


@component(WIDGET, public=True)
class Widget(_Waiting):
    """Wait for a person: a page reads its in-ports and writes to its out-ports."""
