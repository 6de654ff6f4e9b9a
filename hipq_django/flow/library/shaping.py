"""Components that shape data.

Source: the workers of SideJob's workers-core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import (
    chain,
    combinations,
    combinations_with_replacement,
    permutations,
    product as cartesian,
    repeat as repeated,
)
from typing import Any

from hipq_django.domain.redaction import quoted
from hipq_django.flow.base import Component
from hipq_django.flow.declared_ports import AnyIn, AnyOut, In, Out
from hipq_django.flow.declaring import component
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.values import size_of


class _OfAll(Component):
    """Takes one value of each in-port, in the alphabetical order of their names."""

    any_in, out = AnyIn(), Out()

    def perform(self) -> None:
        names = sorted(self.inputs)
        for values in self.each(*names):
            given = values if len(names) > 1 else (values,)
            self.out.write(self.made(dict(zip(names, given, strict=True))))

    def made(self, values: dict[str, Any]) -> Any:
        """Return what is made of the values."""
        raise NotImplementedError


@component("flow.array", public=True)
class Array(_OfAll):
    """Make a list of one value from each in-port."""

    def made(self, values: dict[str, Any]) -> Any:
        return list(values.values())


@component("flow.object", public=True)
class Object(_OfAll):
    """Make an object of one value from each in-port, by the names of the ports."""

    def made(self, values: dict[str, Any]) -> Any:
        return values


@component("flow.concat", public=True)
class Concat(_OfAll):
    """Join the lists of all in-ports into one."""

    def made(self, values: dict[str, Any]) -> Any:
        return list(chain.from_iterable(map(as_list, values.values())))


@component("flow.merge", public=True)
class Merge(_OfAll):
    """Merge the objects of all in-ports; for equal keys the later in-port by name wins."""

    def made(self, values: dict[str, Any]) -> Any:
        merged: dict[str, Any] = {}
        for value in values.values():
            merged |= value
        return merged


class _OfOne(Component):
    """Makes something of each value of `in`."""

    value, out = In(name="in"), Out()

    def perform(self) -> None:
        names = list(type(self).declaration.inputs)
        names.sort(key=lambda name: name != "in")
        for values in self.each(*names):
            given = values if len(names) > 1 else (values,)
            self.out.write_many(self.made(*given))

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

    def made(self, *values: Any) -> Iterable[Any]:
        """Return what is written for the values: of `in`, then of the others by their names."""
        raise NotImplementedError


@component("flow.each", public=True)
class Each(_OfOne):
    """Write each element of a list by itself."""

    def made(self, *values: Any) -> Iterable[Any]:
        return as_list(values[0])


@component("flow.product", public=True)
class Product(_OfOne):
    """Make all choices of one element from each list in a list."""

    def made(self, *values: Any) -> Iterable[Any]:
        lists = [as_list(value) for value in as_list(values[0])]
        return [list(self.bounded(map(list, cartesian(*lists))))]


@component("flow.zip", public=True)
class Zip(_OfOne):
    """Make lists of the first elements, the second ones and so on of the lists in a list."""

    def made(self, *values: Any) -> Iterable[Any]:
        return [[list(row) for row in zip(*map(as_list, values[0]), strict=False)]]


@component("flow.flatten", public=True)
class Flatten(_OfOne):
    """Flatten the lists inside a list: all of them, or down to a level."""

    level = In(default=None)

    def made(self, *values: Any) -> Iterable[Any]:
        value, level = values
        return [list(_flat(as_list(value), level))]


def _flat(values: list[Any], level: int | None) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list) and level != 0:
            yield from _flat(value, None if level is None else level - 1)
        else:
            yield value


@component("flow.groups_of", public=True)
class GroupsOf(_OfOne):
    """Cut a list into lists of one size; the last one is filled up unless `fill` is false."""

    fill = In(default=False)
    size = In(int)

    def made(self, *values: Any) -> Iterable[Any]:
        value, fill, size = values
        starts = range(0, len(as_list(value)), size)
        groups = [value[start : start + size] for start in starts]
        if groups and fill is not False:
            groups[-1] += self.bounded(repeated(fill, size - len(groups[-1])))
        return [groups]


@component("flow.join", public=True)
class Join(_OfOne):
    """Join texts into one."""

    sep = In(str, default=",")

    def made(self, *values: Any) -> Iterable[Any]:
        value, sep = values
        # Of what is joined there is not more than came.
        self.check(len(sep) * (len(value) - 1) <= self._run.settings.max_message_bytes)
        return [sep.join(map(str, value))]


@component("flow.split", public=True)
class Split(_OfOne):
    """Split a text into several."""

    sep = In(str, default=",")

    def made(self, *values: Any) -> Iterable[Any]:
        value, sep = values
        return [value.split(sep)]


@component("flow.repeat", public=True)
class Repeat(_OfOne):
    """Write a value several times."""

    times = In(int)

    def made(self, *values: Any) -> Iterable[Any]:
        value, times = values
        self.check(times * (size_of(value) + len(", ")) <= self._run.settings.max_message_bytes)
        return repeated(value, times)


@component("flow.permutation", public=True)
class Permutation(_OfOne):
    """Make all choices of n elements of a list: in each order if `ordered`, or with repeats."""

    n = In(int)
    ordered = In(bool, default=False)
    repeat = In(bool, default=False)

    def made(self, *values: Any) -> Iterable[Any]:
        value, n, ordered, repeat = values
        self.check(n <= self._run.settings.max_message_bytes)
        made: Iterable[Any]
        if repeat:
            made = (
                cartesian(value, repeat=n) if ordered else combinations_with_replacement(value, n)
            )
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
        from hipq_django.flow.contexts import set_group

        values = list(self._some("in"))
        if values:
            with set_group(as_default=True):
                self.out.write(values[-1])


def as_list(value: Any) -> list[Any]:
    """Return a value that is a list; raise `TypeError` for any other one."""
    if not isinstance(value, list):
        raise TypeError(f"{quoted(value)} is no list")
    return value
