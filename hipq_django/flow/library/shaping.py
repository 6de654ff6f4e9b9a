"""Components that shape data.

Source: the workers of SideJob's workers-core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import (
    chain,
    combinations,
    combinations_with_replacement,
    permutations,
    product as cartesian,
    repeat as repeated,
)
from operator import or_
from typing import Any

from hipq_django.domain.redaction import quoted
from hipq_django.flow.base import Component
from hipq_django.flow.contexts import set_group
from hipq_django.flow.declared_ports import AnyIn, AnyOut, In, Out
from hipq_django.flow.declaring import component
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.values import size_of

Made = Callable[..., Any]


class _OfAll(Component):
    """Takes one value of each in-port, in the alphabetical order of their names."""

    any_in, out = AnyIn(), Out()
    made: Made

    def perform(self) -> None:
        names = sorted(self.inputs)
        for values in self.each(*names):
            given = values if len(names) > 1 else (values,)
            self.out.write(self.made(dict(zip(names, given, strict=True))))


class _OfOne(Component):
    """Makes messages of each value of `in`, and of one value of each other in-port."""

    value, out = In(name="in"), Out()
    made: Made

    def perform(self) -> None:
        others = [name for name in type(self).declaration.inputs if name != "in"]
        for values in self.each("in", *others):
            value, *more = values if others else (values,)
            self.out.write_many(self.made(value, **dict(zip(others, more, strict=True))))

    def bounded(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yield values, as long as all of them together are no larger than a message may be.

        A few bytes may ask for more than any memory holds: all orders of twenty elements.
        """
        most = self._run.settings.max_message_bytes
        for value in values:
            most -= size_of(value) + len(", ")
            self.check(most >= 0)
            yield value

    def check(self, fits: bool) -> None:
        """Raise `FlowError` if too much would be made of the values."""
        if not fits:
            raise FlowError(
                f"{type(self).declaration.name}: of the values at the head of its in-ports it "
                f"would make more than {self._run.settings.max_message_bytes:,} bytes of JSON "
                "(setting FLOW: MAX_MESSAGE_BYTES); give it less, or let it make less of that."
            )


def _component(name: str, base: type[Component] = _OfOne, **ports: In) -> Callable[[Made], Made]:
    """Declare a function as what a component makes of the values of its ports."""

    def declare(made: Made) -> Made:
        members = {"made": made, "__doc__": made.__doc__, "__module__": __name__, **ports}
        component(name, public=True)(type(made.__name__, (base,), members))
        return made

    return declare


@_component("flow.array", _OfAll)
def array(self: _OfAll, values: dict[str, Any]) -> list[Any]:
    """Make a list of one value from each in-port."""
    return list(values.values())


@_component("flow.object", _OfAll)
def make_object(self: _OfAll, values: dict[str, Any]) -> dict[str, Any]:
    """Make an object of one value from each in-port, by the names of the ports."""
    return values


@_component("flow.concat", _OfAll)
def concat(self: _OfAll, values: dict[str, Any]) -> list[Any]:
    """Join the lists of all in-ports into one."""
    return list(chain.from_iterable(map(as_list, values.values())))


@_component("flow.merge", _OfAll)
def merge(self: _OfAll, values: dict[str, Any]) -> dict[str, Any]:
    """Merge the objects of all in-ports; for equal keys the later in-port by name wins."""
    return reduce(or_, values.values(), {})


@_component("flow.each")
def each(self: _OfOne, value: Any) -> list[Any]:
    """Write each element of a list by itself."""
    return as_list(value)


@_component("flow.product")
def product(self: _OfOne, value: Any) -> list[Any]:
    """Make all choices of one element from each list in a list."""
    return [list(self.bounded(map(list, cartesian(*map(as_list, as_list(value))))))]


@_component("flow.zip")
def zipped(self: _OfOne, value: Any) -> list[Any]:
    """Make lists of the first elements, the second ones and so on of the lists in a list."""
    return [[list(row) for row in zip(*map(as_list, value), strict=False)]]


@_component("flow.flatten", level=In(default=None))
def flatten(self: _OfOne, value: Any, level: int | None) -> list[Any]:
    """Flatten the lists inside a list: all of them, or down to a level."""
    return [list(_flat(as_list(value), level))]


def _flat(values: list[Any], level: int | None) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list) and level != 0:
            yield from _flat(value, None if level is None else level - 1)
        else:
            yield value


@_component("flow.groups_of", size=In(int), fill=In(default=False))
def groups_of(self: _OfOne, value: Any, size: int, fill: Any) -> list[Any]:
    """Cut a list into lists of one size; the last one is filled up unless `fill` is false."""
    starts = range(0, len(as_list(value)), size)
    groups = [value[start : start + size] for start in starts]
    if groups and fill is not False:
        groups[-1] += self.bounded(repeated(fill, size - len(groups[-1])))
    return [groups]


@_component("flow.join", sep=In(str, default=","))
def join(self: _OfOne, value: Any, sep: str) -> list[Any]:
    """Join texts into one."""
    # Of what is joined there is not more than came.
    self.check(len(sep) * (len(value) - 1) <= self._run.settings.max_message_bytes)
    return [sep.join(map(str, value))]


@_component("flow.split", sep=In(str, default=","))
def split(self: _OfOne, value: Any, sep: str) -> list[Any]:
    """Split a text into several."""
    return [value.split(sep)]


@_component("flow.repeat", times=In(int))
def repeat(self: _OfOne, value: Any, times: int) -> Iterable[Any]:
    """Write a value several times."""
    self.check(times * (size_of(value) + len(", ")) <= self._run.settings.max_message_bytes)
    return repeated(value, times)


@_component(
    "flow.permutation", n=In(int), ordered=In(bool, default=False), repeat=In(bool, default=False)
)
def permutation(self: _OfOne, value: Any, n: int, ordered: bool, repeat: bool) -> list[Any]:
    """Make all choices of n elements of a list: in each order if `ordered`, or with repeats."""
    self.check(n <= self._run.settings.max_message_bytes)
    made: Iterable[Any]
    if repeat:
        made = cartesian(value, repeat=n) if ordered else combinations_with_replacement(value, n)
    else:
        made = permutations(value, n) if ordered else combinations(value, n)
    return [list(self.bounded(map(list, made)))]


@component("flow.key_value", public=True)
class KeyValue(Component):
    """Write the values of an object to the out-ports that are named like its keys."""

    value, any_out = In(dict, name="in"), AnyOut()

    def perform(self) -> None:
        ports = set(self.outputs)
        for value in self.each("in"):
            for key in sorted(ports & set(value)):
                self.outputs[key].write(value[key])


@component("flow.connect", public=True)
class Connect(Component):
    """Hand on what comes, defaults included."""

    value, out = In(name="in"), Out()

    def perform(self) -> None:
        port: Any = self.inputs["in"]
        port.sink.move([self.out], self._run.turns())
        if port.sink.has_messages():
            self.run()


@component("flow.set_default", public=True)
class SetDefault(Component):
    """Make the last value that came the default of the connected ports: a variable."""

    value, out = In(name="in"), Out()

    def perform(self) -> None:
        values = list(self._some("in"))
        if values:
            with set_group(as_default=True):
                self.out.write(values[-1])


def as_list(value: Any) -> list[Any]:
    """Return a value that is a list; raise `TypeError` for any other one."""
    if not isinstance(value, list):
        raise TypeError(f"{quoted(value)} is no list")
    return value
