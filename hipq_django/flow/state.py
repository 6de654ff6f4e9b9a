"""The values that a node keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.database.twins import method_twin
from hipq_django.flow.exceptions import InvalidPortError
from hipq_django.flow.models import Node
from hipq_django.flow.models.node import deleted
from hipq_django.flow.values import stored_json

OF_FLOWS = "flow."
"""The prefix of the keys that flows use in a state themselves."""


class State(Mapping[str, Any]):
    """The state of a node. Each call reads or writes the database at once.

    Values that a run sets are written when it ends; it sees those of its own node.
    """

    def __init__(self, node: Node, run: Any = None) -> None:
        self._node = node
        self._run = node.of_run if run is None else run

    def all(self) -> dict[str, Any]:
        """Return all values."""
        ask = stored_values if self._run is None else self._run.state_values
        return own_values(ask(self._node))

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or the default."""
        return self.all().get(key, default)

    def __getitem__(self, key: str) -> Any:
        return self.all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self.all())

    def set(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set values; others stay as they are."""
        new = checked_state({} if values is None else values, **more)
        if self._run is not None:
            self._run.ask(self._node, "state.set", new)
        else:
            self._write(lambda state: state | new)

    def unset(self, *keys: str) -> None:
        """Remove values."""
        check_keys(keys)
        if self._run is not None:
            self._run.ask(self._node, "state.unset", *keys)
        else:
            self._write(lambda state: {k: v for k, v in state.items() if k not in keys})

    def change(self, function: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Replace the values by the result of a function of them; return that.

        Nobody else changes them meanwhile.
        """
        if self._run is not None:
            self._run.ask(self._node, "state.change")  # which raises
        return self._write(lambda state: checked_state(function(state)))

    aall = method_twin(all)  # noqa: A003 - the method
    aget = method_twin(get)
    aset = method_twin(set)  # noqa: A003 - the method
    aunset = method_twin(unset)
    achange = method_twin(change)

    def _write(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        using = self._node.using
        with write_transaction(using):
            rows = Node.objects.using(using).row_of(self._node)
            row = locked(rows).first()
            if row is None:
                raise deleted(self._node)
            own = own_values(row.state_values)
            kept = {k: v for k, v in row.state_values.items() if k.startswith(OF_FLOWS)}
            new = change(own)
            rows.update(state_values=kept | new, update_time=clock.now(using))
        return new


def stored_values(node: Node) -> dict[str, Any]:
    """Return the state of a node as it is stored; raise `NodeDeletedError` where that is gone."""
    rows = Node.objects.using(node.using).row_of(node)
    found: dict[str, Any] | None = rows.values_list("state_values", flat=True).first()
    if found is None:
        raise deleted(node)
    return found


def own_values(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a stored state without the keys of flows themselves."""
    return {key: value for key, value in state.items() if not key.startswith(OF_FLOWS)}


def check_keys(keys: Iterable[object]) -> None:
    """Raise `InvalidPortError` for keys that are no text or belong to flows themselves."""
    for key in keys:
        if not isinstance(key, str) or key.startswith(OF_FLOWS):
            raise InvalidPortError(
                f"state key {key!r:.100}: give a text that does not begin with {OF_FLOWS!r}."
            )


def checked_state(values: Mapping[str, Any], /, **more: Any) -> dict[str, Any]:
    """Return values as they are stored."""
    stored: dict[str, Any] = stored_json({**values, **more}, "the state", InvalidPortError)
    check_keys(stored)
    return stored
