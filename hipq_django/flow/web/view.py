"""The view of all endpoints: who asks, what for, may he, do it, say what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from django.db import DataError, IntegrityError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from hipq_django import events
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.serialization import NotJsonError, to_json
from hipq_django.exceptions import ConfigurationError, HipqError
from hipq_django.flow.contexts import Room, context, set_group
from hipq_django.flow.family import ancestors_of, lock_nodes
from hipq_django.flow.graphs.locking import nodes_of_change
from hipq_django.flow.grouping import group
from hipq_django.flow.models import Request
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.web.call import JSON, Call, check_origin, find_user
from hipq_django.flow.web.endpoints import OBJECT, RUN, Endpoint, checked_context, checked_fields
from hipq_django.flow.web.operations import run_node
from hipq_django.flow.web.refusals import RefusedCallError, refusal_of
from hipq_django.web.receiving import ReceivingView, RefusedError, read_body, read_json


class EndpointView(ReceivingView):
    """Answers the methods of one address in JSON; a request counts as a whole, or not at all.

    401: nobody who is known asks. 403: the permission is missing, or another site asks in the
    user's name. 404: there is no such node, port or graph. 409: a name is taken, or a node locked
    or running. 411: the length of the body is missing. 413: the body, a message or the context is
    too large. 415: the body is not sent as JSON. 405: another method. 422: the body is not as it
    must be; `problems` says what is wrong with a graph. 503: the database or the configuration
    failed. Each of these changes nothing.
    """

    endpoints: Mapping[str, Endpoint] = {}

    @classmethod
    def of(cls, endpoints: Sequence[Endpoint]) -> Callable[..., HttpResponseBase]:
        """Return the view of endpoints with the same address."""
        by_method = {endpoint.method: endpoint for endpoint in endpoints}
        if "GET" in by_method:
            by_method["HEAD"] = by_method["GET"]
        methods = [method.lower() for method in by_method]
        return cls.as_view(endpoints=by_method, http_method_names=methods)

    def get(self, request: HttpRequest, **place: Any) -> HttpResponse:
        """Tell something."""
        return self.post(request, **place)

    def delete(self, request: HttpRequest, **place: Any) -> HttpResponse:
        """Delete something."""
        return self.post(request, **place)

    def receive(
        self, request: HttpRequest, *, instance: str = DEFAULT, **place: Any
    ) -> HttpResponse:
        """Do what is asked for, and say what became of it or why it is refused."""
        endpoint = self.endpoints[str(request.method)]
        try:
            return _answer(request, endpoint, instance, place)
        except ConfigurationError:
            raise  # the trouble is on this side
        except (RefusedError, HipqError, DataError, IntegrityError) as error:
            return self._refused(refusal_of(error))

    def _refused(self, refusal: RefusedCallError) -> JsonResponse:
        """Say why; the log does not, because the reason may quote the body."""
        events.warning("request_refused", "", route=self.route, status=refusal.status)
        response = JsonResponse({"error": str(refusal), **refusal.more}, status=refusal.status)
        if refusal.status == 401:
            response["WWW-Authenticate"] = "Session"  # HTTP wants a name of the way to log in
        return response


def _answer(
    request: HttpRequest, endpoint: Endpoint, instance: str, place: Mapping[str, str]
) -> HttpResponse:
    call = Call(instance, find_user(request, instance), place, {})
    call.needs(endpoint.permission)
    if endpoint.method == "GET":
        return JsonResponse(endpoint.verb(call))
    check_origin(request, instance, call.user)
    limits = flow_settings(instance)
    said = _read(read_body(request, limits.max_body_bytes), endpoint)
    how = said.pop("run", None) if endpoint.may_run else None
    if how is not None:
        call.needs("run_node")
        how = checked_fields(how, RUN, "run")
    around = checked_context(said.pop("context", {}))
    call = replace(call, fields=said)
    room, using = Room(limits.max_written_bytes), get_instance(instance).database
    with write_transaction(using), context(**around), set_group(room=room):
        return _once(request, call, lambda: _done(call, endpoint, how))


def _once(request: HttpRequest, call: Call, do: Callable[[], dict[str, Any]]) -> HttpResponse:
    """Do what a request says; if it has a key and was done before, only answer it once more."""
    given = request.headers.get("Idempotency-Key")
    if given is None:
        return JsonResponse(do())
    said = (call.instance, call.by, request.method, request.path, given, request.body)
    rows = Request.objects.using(get_instance(call.instance).database)
    row, is_new = rows.get_or_create(
        key=sha256(ascii(said).encode()).hexdigest(), defaults={"instance": call.instance}
    )
    if is_new:
        row.answer = JsonResponse(do()).content.decode()
        row.save(using=row.using)
    return HttpResponse(row.answer, content_type=JSON)


def _done(call: Call, endpoint: Endpoint, how: Mapping[str, Any] | None) -> dict[str, Any]:
    if how is not None:
        _lock_first(call, endpoint, how)
    with group(instance=call.instance):
        answer = endpoint.verb(call)
    return answer if how is None else {**answer, "run": run_node(call.node, how)}


def _lock_first(call: Call, endpoint: Endpoint, how: Mapping[str, Any]) -> None:
    """Lock all nodes that a verb and the run after it need, before any port.

    So does everybody who locks nodes and ports.
    """
    ids = {call.node.pk}
    if endpoint.locks_tree:
        ids |= nodes_of_change(call.node)
        ids |= {call.named("child").pk} if "child" in call.fields else set()
    if how.get("parent"):
        ids.update(ancestors_of(call.node)[1:2])
    lock_nodes(ids, call.node.using)


def _read(body: bytes, endpoint: Endpoint) -> dict[str, Any]:
    """Return what a body says; raise `RefusedCallError` also for what no database can hold."""
    beside = {"context": OBJECT, "run": OBJECT} if endpoint.may_run else {"context": OBJECT}
    try:
        said = to_json(read_json(body)) if body else {}
    except NotJsonError as error:
        raise RefusedCallError(422, f"the body cannot be stored: {error}.") from error
    return checked_fields(said, {**endpoint.fields, **beside})
