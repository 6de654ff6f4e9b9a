"""One request, as its verb gets it: who asks, and for what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property
from django.views.decorators.csrf import csrf_protect

from hipq_django.exceptions import ConfigurationError
from hipq_django.flow.aliases import get
from hipq_django.flow.exceptions import UnknownNodeError, UnknownPortError
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Node
from hipq_django.flow.ports import Port
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.web.refusals import RefusedCallError

APP, JSON = "hipq_flow", "application/json"


@dataclass(frozen=True)
class Call:
    """Who asks, of which instance, and what address and body say."""

    instance: str
    user: Any
    place: Mapping[str, str]
    """What the address says: `node`, `side` and `port`."""
    fields: Mapping[str, Any]
    """The checked fields of the body, without `context` and `run`."""

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

    def may(self, permission: str) -> bool:
        """Return whether the user has a permission of flows."""
        return bool(self.user.has_perm(f"{APP}.{permission}"))

    def needs(self, *permissions: str) -> None:
        """Raise `RefusedCallError` with 403 unless the user has these permissions of flows."""
        for permission in permissions:
            if not self.may(permission):
                raise RefusedCallError(403, f"you need the permission {APP}.{permission}.")

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
        return self.may("view_message")


def find_user(request: HttpRequest, instance: str) -> Any:
    """Return who makes a request; raise `RefusedCallError` with 401 if nobody does who is known.

    That is the user of the session, or whom the function of the setting API_USER finds.
    """
    find = flow_settings(instance).api_user
    user = getattr(request, "user", None) if find is None else _found(find, request)
    if user is None or not user.is_authenticated or not user.is_active:
        who = "log in first." if find is None else "it is not known who you are."
        raise RefusedCallError(401, who)
    return user


def _found(find: Callable[[HttpRequest], Any], request: HttpRequest) -> Any:
    try:
        return find(request)
    except (ConfigurationError, InterfaceError, OperationalError):
        raise  # the trouble is on this side
    except Exception as error:  # the project's code, on data from outside
        reason = f"it cannot be found out who you are: {type(error).__name__}."
        raise RefusedCallError(401, reason) from error


def check_origin(request: HttpRequest, instance: str, user: Any) -> None:
    """Raise `RefusedCallError` where another site may have sent a request in a user's name.

    415: a form of another site cannot send JSON. 403: the user is that of the session, whose cookie
    the browser sends along, and the CSRF token is missing. It does not matter whether API_USER has
    found that user: it may have looked at the session, too.
    """
    if request.content_type != JSON and (request.method == "POST" or request.content_type):
        raise RefusedCallError(415, f"send the body as {JSON}, in the header Content-Type.")
    of_session = getattr(request, "session", {}).get(SESSION_KEY)
    is_of_session = of_session == str(getattr(user, "pk", None))
    if flow_settings(instance).api_user is not None and not is_of_session:
        return
    if csrf_protect(lambda _request: HttpResponse(status=204))(request).status_code != 204:
        reason = "the CSRF token is missing or wrong; send it as header X-CSRFToken."
        raise RefusedCallError(403, reason)
