"""Whatever is sent: never a 500, and a refusal changes nothing."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.flow.models import (
    Alias,
    Channel,
    Connection,
    LogEntry,
    Message,
    NodePort,
    Wake,
)
from hipq_django.flow.runs import dispatching
from hipq_django.flow.web.endpoints import OBJECT, Endpoint, Kind
from hipq_django.flow.web.operations import ENDPOINTS
from tests.flow.web.conftest import PERMISSIONS, Api
from tests.rolling_back import rolled_back

REFUSED = {401, 403, 404, 405, 409, 413, 415, 422}
ROWS = (flow.Node, NodePort, Connection, Channel, Message, Wake, Alias, LogEntry)

# Each example is rolled back, so that the rows of the fixture are as good as new.
fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
strange = st.sampled_from(
    ["\ud800", "\0", "*", "", "/", 10**400, -1, 1e308, 1e15, "x" * 300, "1", "flow.spec", "\n"]
)
json_values = st.recursive(
    scalars | strange,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def mostly(right: Any) -> Any:
    """Return what makes right values, and now and then any others."""
    return st.integers(0, 19).flatmap(lambda chance: right if chance else json_values)


CONNECT = {"component": "flow.connect"}
PORTS: list[Any] = [
    {"in": {"default": 1}}, {"new": {"mode": "memory", "channels": ["/orders"]}}, {"*": {}},
    {"out": {"channels": ["/flow/log"]}}, {"a b": {"type": "dict"}},
]  # fmt: skip
# Others are tried by tests/flow/graphs/test_check.py, and what changes by test_applying.py.
SPECS: list[Any] = [
    {"nodes": {}},
    {"nodes": {"a": CONNECT, "b": CONNECT}, "edges": ["a.out -> b.in"], "inputs": {"in": "a.in"}},
    {"nodes": {"a": CONNECT}, "edges": ["a.out -> a.in", "a.out -> c.in"], "removed": "keep"},
    {"nodes": {"a": {"component": "t.double"}, "a.b": {**CONNECT, "init": 1}}, "outputs": 5},
]
OTHERS: list[Any] = [
    {"priority": 3, "queue": "Bank"}, {"timeout": 1e15, "time_windows": ["10:00-11:00"]},
    {"in": [1]}, {"": [1]}, {"force": True}, {"at": 1e300}, {"parent": True, "wait": 0},
]  # fmt: skip
WORDS = [
    "flow.connect", "flow.wait", "t.double", "graph", "number", "any", "child", "a", "5",
    "return", "/orders", "/", "/flow/log", "2026-12-24T18:00:00+01:00", "2026-12-24",
]  # fmt: skip
BY_TYPE: dict[type, Any] = {
    bool: st.booleans(),
    int: st.integers(-1, 100) | st.just(10**20),
    float: st.sampled_from([0.5, 1e9, 1e300]),
    str: st.sampled_from(WORDS) | st.text(max_size=5),
    list: st.lists(json_values, max_size=3),
    dict: st.sampled_from([*PORTS, *SPECS, *OTHERS])
    | st.dictionaries(st.text(max_size=5), json_values, max_size=2),
    object: json_values,
}


def values_of(kind: Kind) -> Any:
    """Return what makes values of a kind mostly."""
    return mostly(st.one_of(*(BY_TYPE[each] for each in kind.types)))


def bodies_of(endpoint: Endpoint) -> Any:
    """Return what makes bodies of an endpoint: with what they must have, mostly."""
    fields = {**endpoint.fields, "context": OBJECT}
    fields |= {"run": OBJECT} if endpoint.may_run else {}
    made = {name: values_of(kind) for name, kind in fields.items()}
    required = {name: made.pop(name) for name, kind in fields.items() if kind.is_required}
    return mostly(st.fixed_dictionaries(required, optional=made))


requests = st.sampled_from(ENDPOINTS).flatmap(
    lambda endpoint: st.tuples(st.just(endpoint), bodies_of(endpoint))
)


def everything() -> list[Any]:
    """Return all rows of flows."""
    return [list(model.objects.order_by("pk").values()) for model in ROWS]


def check(status: int, content: bytes, before: list[Any]) -> None:
    """Fail unless the reply is one of those that are documented, and true."""
    assert status == 200 or status in REFUSED, content
    answer = json.loads(content) if content else {}
    if status != 200:
        assert status == 405 or "error" in answer
        assert everything() == before
    else:
        dispatching.dispatch(get_instance("default"))  # and nothing holds the others up


@pytest.fixture
def api(db: None) -> Api:
    """Who may do all, among nodes."""
    api = Api(*PERMISSIONS)
    flow.start(
        {"nodes": {"a": {"component": "flow.connect"}, "b": {"component": "flow.wait"}}},
        alias="graph",
    )
    node = flow.start("t.double", alias="number", run=False)
    node.inputs["number"].write(1)
    flow.start("flow.placeholder", alias="any", run=False, inputs={"*": {"channels": ["/orders"]}})
    return api


endpoints = st.sampled_from(ENDPOINTS)
nodes = st.sampled_from(["graph", "number", "any"])
names = st.sampled_from(["number", "in", "out", "new"]) | st.text(max_size=5)


@pytest.mark.conformance
@fuzzed
@given(request=requests, node=nodes, port=names)
def test_any_fields(api: Api, request: tuple[Endpoint, Any], node: str, port: str) -> None:
    endpoint, body = request
    send(api, endpoint.method, address(endpoint.route, node, port), json.dumps(body).encode())


@pytest.mark.conformance
@fuzzed
@given(
    endpoint=endpoints,
    node=nodes | st.text(max_size=5),
    port=names,
    body=st.binary(max_size=50)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.integers(1, 3_000).map(lambda depth: b'{"set": ' + b"[" * depth + b"]" * depth + b"}"),
)
def test_any_bytes(api: Api, endpoint: Endpoint, node: str, port: str, body: bytes) -> None:
    send(api, endpoint.method, address(endpoint.route, node, port), body)


def address(route: str, node: str, port: str) -> str:
    """Return the address of an endpoint."""
    path = route.replace("<hipq_side:side>", "inputs")
    for converter, name in (("<str:node>", node), ("<str:port>", port)):
        path = path.replace(converter, quote(name.encode(errors="replace"), safe=""))
    return path


def send(api: Api, method: str, path: str, body: bytes) -> None:
    """Send a request, and check what became of it."""
    before = everything()
    with rolled_back():
        url = f"/flow/{path}"
        response = api.client.generic(method, url, body, content_type="application/json")
        if response.status_code == 404 and response["Content-Type"].startswith("text/html"):
            return  # no address of flows
        check(response.status_code, response.content, before)
