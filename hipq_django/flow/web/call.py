"""One request, as its verb gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.functional import cached_property

from hipq_django.flow.aliases import get
from hipq_django.flow.exceptions import UnknownNodeError, UnknownPortError
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Node
from hipq_django.flow.ports import Port
from hipq_django.flow.web.refusals import RefusedCallError
from hipq_django.flow.web.users import check_permission, may


@dataclass(frozen=True)
class Call:
    """Who asks, of which instance, and what address and body say."""

    instance: str
    user: Any
    fields: Mapping[str, Any]
    """The checked fields of the body, without `context` and `run`."""
    place: Mapping[str, str]
    """What the address says: `node`, `side` and `port`."""

    @cached_property
    def node(self) -> Node:
        """The node of the address; raise `RefusedCallError` with 404 if there is none."""
        try:
            return get(self.place["node"], instance=self.instance)
        except UnknownNodeError as error:
            raise RefusedCallError(404, str(error)) from error

    @property
    def ports(self) -> Mapping[str, Port]:
        """The ports of the side that the address names."""
        return self.node.inputs if self.place["side"] == "inputs" else self.node.outputs

    @cached_property
    def port(self) -> Port:
        """The port of the address; raise `RefusedCallError` with 404 if there is none."""
        try:
            return self.ports[self.place["port"]]
        except UnknownPortError as error:
            raise RefusedCallError(404, str(error)) from error

    def named(self, field: str) -> Node:
        """Return the node that a field of the body names; raise `UnknownNodeError`."""
        return get(self.fields[field], instance=self.instance)

    def needs(self, *permissions: str) -> None:
        """Raise `RefusedCallError` with 403 unless the user has more permissions."""
        for permission in permissions:
            check_permission(self.user, permission)

    def needs_family_of(self, node: Node) -> None:
        """Raise `RefusedCallError` with 403 unless the user may give a node other children."""
        self.needs("edit_graph" if node.job_type.name == GRAPH else "edit_node")

    @property
    def by(self) -> str:
        """Who asks, as rows and log entries say it."""
        return f"user:{self.user.get_username()}"[:200]

    @property
    def sees_messages(self) -> bool:
        """Whether the user may see what messages say, and the values of sensitive fields."""
        return may(self.user, "view_message")
