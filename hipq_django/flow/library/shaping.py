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
)
from typing import Any

from hipq_django.domain.redaction import quoted
from hipq_django.flow.base import Component
from hipq_django.flow.declared_ports import AnyIn, AnyOut, In, Out
from hipq_django.flow.declaring import component
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.library.sizes import (
    COMMA,
    size_of,
    size_of_choices,
    size_of_groups,
    size_of_product,
)


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
            self._check_size(dict(zip(names, given, strict=True)))
            for made in self.made(*given):
                self.out.write(made)

    def _check_size(self, values: dict[str, Any]) -> None:
        most = self._run.settings.max_message_bytes
        if self.size_made(most, *values.values()) <= most:
            return
        given = ", ".join(f"{name}={quoted(value)}" for name, value in values.items())
        raise FlowError(
            f"{type(self).declaration.name}: of {given} it would make more than {most:,} bytes of "
            "JSON (setting FLOW: MAX_MESSAGE_BYTES); give it less, or let it make less of that."
        )

    def size_made(self, most: int, *values: Any) -> int:
        """Return how many bytes of JSON are made of the values; above `most` any number above it.

        What is made of most is not much larger than they are, so the port checks that.
        """
        del most, values
        return 0

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

    def size_made(self, most: int, *values: Any) -> int:
        return size_of_product([as_list(value) for value in as_list(values[0])], most)

    def made(self, *values: Any) -> Iterable[Any]:
        return [[list(choice) for choice in cartesian(*values[0])]]


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

    def size_made(self, most: int, *values: Any) -> int:
        value, fill, size = values
        if size < 1:
            text = f"flow.groups_of: size={size}; give how long the lists are to be, 1 or more."
            raise FlowError(text)
        return size_of_groups(as_list(value), size, fill=fill, is_filled=fill is not False)

    def made(self, *values: Any) -> Iterable[Any]:
        value, fill, size = values
        groups = [value[start : start + size] for start in range(0, len(value), size)]
        if groups and fill is not False:
            groups[-1] += [fill] * (size - len(groups[-1]))
        return [groups]


@component("flow.join", public=True)
class Join(_OfOne):
    """Join texts into one."""

    sep = In(str, default=",")

    def size_made(self, most: int, *values: Any) -> int:
        value, sep = values
        return len(sep) * (len(value) - 1)  # of what is joined there is not more than came

    def made(self, *values: Any) -> Iterable[Any]:
        value, sep = values
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

    def size_made(self, most: int, *values: Any) -> int:
        value, times = values
        return int(times) * (size_of(value) + COMMA)

    def made(self, *values: Any) -> Iterable[Any]:
        value, times = values
        return [value] * times


@component("flow.permutation", public=True)
class Permutation(_OfOne):
    """Make all choices of n elements of a list: in each order if `ordered`, or with repeats."""

    n = In(int)
    ordered = In(bool, default=False)
    repeat = In(bool, default=False)

    def size_made(self, most: int, *values: Any) -> int:
        value, n, ordered, repeat = values
        if n < 0:
            raise FlowError(f"flow.permutation: n={n}; give how many are chosen, 0 or more.")
        return size_of_choices(list(value), n, is_ordered=ordered, may_repeat=repeat, most=most)

    def made(self, *values: Any) -> Iterable[Any]:
        value, n, ordered, repeat = values
        if repeat:
            made = cartesian(value, repeat=n) if ordered else _with_repeats(value, n)
        else:
            made = permutations(value, n) if ordered else combinations(value, n)
        return [[list(choice) for choice in made]]


def _with_repeats(value: list[Any], n: int) -> Any:
    return combinations_with_replacement(value, n)


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
        run, port = self._run, self._run.port("in", "in")
        port.move_some(run.turns(), self.out)
        if port.unread:
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
