"""The errors of flows. Each message names the value, the rule and the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django.exceptions import HipqError

if TYPE_CHECKING:
    from hipq_django.flow.models import Node


class FlowError(HipqError):
    """Base class of the errors of flows; nothing was changed."""


class UnknownComponentError(FlowError, LookupError):
    """No code declares this component; the message suggests the nearest name."""


class UnknownNodeError(FlowError, LookupError):
    """There is no node with this id or alias."""


class UnknownPortError(FlowError, LookupError):
    """The node has no such port, and no port `*` that would stand for it."""


class InvalidPortError(FlowError, ValueError):
    """A port cannot have this name or these options, or this message."""


class PortTypeError(InvalidPortError, TypeError):
    """A message is not of the type of its port."""


class MessageTooLargeError(InvalidPortError):
    """A message is larger than the setting MAX_MESSAGE_BYTES allows."""


class InvalidAliasError(FlowError, ValueError):
    """An alias must begin with a letter."""


class _OfNodeError(Exception):
    """Has the node that it is about."""

    def __init__(self, message: str, node: Node) -> None:
        super().__init__(message)
        self.node = node

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled."""
        return type(self), (*self.args, self.node), super().__reduce__()[2]


class AliasTakenError(_OfNodeError, FlowError):
    """Another node has this alias; `node` is that node."""


class NameTakenError(_OfNodeError, FlowError):
    """The parent has a child of this name; `node` is that child."""


class FamilyError(FlowError, ValueError):
    """A node cannot have this parent, or this child."""


class GraphError(FlowError, ValueError):
    """A graph is invalid; `problems` are all that are wrong with it."""

    def __init__(self, problems: Any) -> None:
        self.problems = list(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"the graph has problems:\n{lines}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled."""
        return type(self), (self.problems,), super().__reduce__()[2]


class FilterError(FlowError):
    """A program of `flow.filter` cannot be used, raises, or does not end."""


class NodeDeletedError(FlowError, LookupError):
    """The node was deleted, or the transaction that started it was rolled back."""
