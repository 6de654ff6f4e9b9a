"""Components that wait: for a trigger, for others, for a time, for a person.

Source: the workers of SideJob's workers-core.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from hipq_django.database import clock
from hipq_django.domain.serialization import encode_json
from hipq_django.flow.base import Component
from hipq_django.flow.declared_ports import AnyIn, AnyOut, In, Out
from hipq_django.flow.declaring import component
from hipq_django.flow.values import WIDGET


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
        received = Counter(self.state.get("received", {}))
        received.update(encode_json(element) for element in self._some("each"))
        for _ in range(self._run.declared.batch):
            if not self._has_come(received):
                break
            self.out.write(self.inputs["in"].read())
        else:
            self.run()
        self.state.set(received=dict(received))
        if self.inputs["in"].size:
            self.suspend()

    def _has_come(self, received: Counter[str]) -> bool:
        """Take the elements of the next list from those that have come, if all of them have."""
        wanted = self.inputs["in"].peek()
        needed = Counter(encode_json(element) for element in wanted[0]) if wanted else Counter()
        if not wanted or any(received[key] < count for key, count in needed.items()):
            return False
        received -= needed
        return True


@component("flow.map", public=True)
class Map(Component):
    """Write the elements of a list to `each`; make a list of what comes back on `each`."""

    value, mapped = In(name="in"), In(name="each")
    element, out = Out(name="each"), Out()

    def perform(self) -> None:
        waiting = list(self.state.get("waiting", []))
        for value in self._some("in"):
            waiting.append(len(value))
            for element in value:
                self.outputs["each"].write(element)
        done = list(self.state.get("done", []))
        done += list(self._some("each"))
        while waiting and len(done) >= waiting[0]:
            count = waiting.pop(0)
            self.out.write(done[:count])
            done = done[count:]
        self.state.set(waiting=waiting, done=done)
        if waiting:
            self.suspend()


@component("flow.delay", public=True)
class Delay(Component):
    """Hand on values some seconds after they came."""

    value, seconds, out = In(name="in"), In(float, name="delay"), Out()

    def perform(self) -> None:
        now = clock.now(self.node.using).timestamp()
        held: list[tuple[float, Any]] = [tuple(entry) for entry in self.state.get("held", [])]
        values, delay = self.inputs["in"], self.inputs["delay"]
        for _ in range(self._run.declared.batch):
            if not (values.peek() and delay.has_data):
                break
            held.append((now + delay.read(), values.read()))
        else:
            self.run()
        held.sort(key=lambda entry: entry[0])
        for _, value in [entry for entry in held if entry[0] <= now]:
            self.out.write(value)
        later = [entry for entry in held if entry[0] > now]
        self.state.set(held=[list(entry) for entry in later])
        if later:
            self.run(at=datetime.fromtimestamp(later[0][0], UTC))
        if later or values.peek():
            self.suspend()


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
