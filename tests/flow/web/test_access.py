"""Who may do what: each endpoint, without each permission, and by nobody who is known."""

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.management import call_command
from django.test import Client
from pytest_django import Settings

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import Channel, LogEntry, Message, Request
from hipq_django.flow.web.operations import ENDPOINTS
from tests.flow.web.conftest import PERMISSIONS, Api

pytestmark = pytest.mark.django_db

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS")
BY_ROUTE: dict[str, set[str]] = {}
for each in ENDPOINTS:
    BY_ROUTE.setdefault(each.route, set()).add(each.method)


def path_of(route: str, node: Any = 0) -> str:
    """Return the address of an endpoint; no node has the id 0."""
    text = route.replace("<str:node>", str(node)).replace("<str:port>", "number")
    return text.replace("<hipq_side:side>", "inputs")


@pytest.fixture
def node() -> flow.Node:
    return flow.start("t.double", run=False)


def without_effect(node: flow.Node) -> bool:
    """Return whether a node is as it was."""
    return node.exists() and node.status == "completed" and not node.inputs["number"].size


def test_each_endpoint_needs_its_permission(node: flow.Node, user_with: Callable[..., Api]) -> None:
    for endpoint in ENDPOINTS:
        others = [permission for permission in PERMISSIONS if permission != endpoint.permission]
        response = user_with(*others).ask(endpoint.method, path_of(endpoint.route, node.pk))

        assert response.status_code == 403, endpoint
        assert f"hipq_flow.{endpoint.permission}" in response.json()["error"]
        assert without_effect(node)


@pytest.mark.conformance
def test_each_endpoint_needs_no_other_permission(user_with: Callable[..., Api]) -> None:
    for endpoint in ENDPOINTS:
        body: Any = {} if endpoint.method == "POST" else None
        path = path_of(endpoint.route)
        response = user_with(endpoint.permission).ask(endpoint.method, path, body)

        assert response.status_code in {200, 404, 422}, (endpoint, response.content)


@pytest.mark.parametrize(
    "cookies",
    [{}, {"sessionid": "forged"}],
    ids=["anonymous", "forged"],
)
def test_nobody_who_is_known_is_401(
    node: flow.Node, settings: Settings, cookies: dict[str, str]
) -> None:
    """Nobody is sent to a log-in, either."""
    log_in = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, log_in]
    client = Client(enforce_csrf_checks=True)
    for name, value in cookies.items():
        client.cookies[name] = value
    for endpoint in ENDPOINTS:
        response = client.generic(endpoint.method, f"/flow/{path_of(endpoint.route, node.pk)}")

        assert response.status_code == 401, endpoint
        assert response["WWW-Authenticate"]
        assert response.json()["error"]
        assert without_effect(node)


def test_other_methods_are_405_and_a_head_is_answered_as_a_get(api: Api) -> None:
    response = api.ask("HEAD", "")
    assert (response.status_code, response.content) == (200, b"")
    assert api.ask("HEAD", "nodes/0").status_code == 404
    for route, methods in BY_ROUTE.items():
        for method in sorted(set(METHODS) - methods):
            response = api.ask(method, path_of(route))
            assert response.status_code == 405, (method, route)
            assert set(response["Allow"].split(", ")) - {"HEAD"} == methods


# What another permission allows beside the endpoint's


HEARS: dict[str, Any] = {"inputs": {"in": {"channels": ["/orders"]}}}
SAYS: dict[str, Any] = {"outputs": {"out": {"channels": ["/orders"]}}}
CONNECT = {"component": "flow.connect"}
CHILD = {**CONNECT, "parent": "own", "name": "c"}


@pytest.mark.parametrize(
    ("permission", "missing", "path", "body"),
    [
        ("start_node", "edit_graph", "nodes", {"component": {"nodes": {}}}),
        ("start_node", "read_port", "nodes", CONNECT | HEARS),
        ("start_node", "write_port", "nodes", CONNECT | SAYS),
        ("start_node", "edit_node", "nodes", CHILD),
        ("start_node", "edit_graph", "nodes", CHILD | {"parent": "graph"}),
        ("edit_node", "read_port", "nodes/own/ports", HEARS),
        ("edit_node", "edit_graph", "nodes/graph/adopt", {"child": "own", "name": "c"}),
        ("edit_node", "edit_graph", "nodes/graph/disown", {"name": "a"}),
        ("write_port", "run_node", "nodes/own/inputs/in/write", {"data": 1, "run": {}}),
        ("edit_graph", "write_port", "nodes/graph/graph", {"spec": CONNECT | SAYS}),
        ("edit_graph", "edit_node", "nodes/graph/graph", {"spec": CONNECT | {"init": 1}}),
    ],
)  # fmt: skip
def test_a_permission_allows_nothing_else(
    user_with: Callable[..., Api], permission: str, missing: str, path: str, body: dict[str, Any]
) -> None:
    own = flow.start("flow.connect", alias="own", run=False)
    spec = {"nodes": {"a": CONNECT | HEARS}}
    graph = flow.start(spec, alias="graph", run=False)
    if "spec" in body:
        more = body["spec"] | ({"init": own.pk} if "init" in body["spec"] else {})
        body = {"spec": {"nodes": {**spec["nodes"], "b": more}}}

    said = user_with(permission).refused(path, 403, **body)["error"]

    assert said == f"you need the permission hipq_flow.{missing}."
    assert (own.parent, list(graph.children), flow.Node.objects.count()) == (None, ["a"], 3)
    assert not Channel.objects.exclude(port__node=graph.children["a"]).exists()
    user_with(permission, missing).post(path, **body)


def test_a_message_is_told_to_who_may_view_messages(user_with: Callable[..., Api]) -> None:
    node = flow.start("flow.wait_each", run=False, inputs={"in": {"mode": "memory"}})
    node.inputs["in"].write("merger")
    node.inputs["each"].write("merger")
    node.run()
    testing.drain()
    assert node.state.all() == {"received": [["merger", 1]]}
    flow.Node.objects.update(error="no merger")

    told = user_with("view_node").get(f"nodes/{node.pk}")
    assert "merger" not in str(told)
    assert told["state"] == {"received": "•••"}
    assert str(user_with("view_node", "view_message").get(f"nodes/{node.pk}")).count("merger") == 3


# Who said it


def test_nothing_looks_as_if_somebody_else_had_said_it(api: Api) -> None:
    own, says = ["/flow/node/1", "/flow"], []
    for channel in own:
        ports = {"out": {"channels": [channel]}}
        node = flow.start("flow.connect", run=False)
        says += [
            api.refused("publish", 422, channel=channel, message=1)["error"],
            api.refused("nodes", 422, **CONNECT, outputs=ports)["error"],
            api.refused(f"nodes/{node.pk}/ports", 422, outputs=ports)["error"],
            api.refused("nodes", 422, component={"nodes": {"a": CONNECT | {"outputs": ports}}}),
        ]
    assert all("only flows themselves publish" in str(said) for said in says)
    assert "unknown" in api.refused("nodes", 422, **CONNECT, by="user:bob")["error"]
    api.post("log", entry={"error": "failed", "by": "user:bob"})
    assert LogEntry.objects.get().entry["by"] == "user:ann"


# Sessions and other sites


def test_a_session_needs_the_csrf_token(node: flow.Node, user_with: Callable[..., Api]) -> None:
    user = user_with(*PERMISSIONS).user
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    path = f"/flow/nodes/{node.pk}"

    def ask(method: str, path: str, **headers: str) -> Any:
        body = b'{"data": 1}'
        return client.generic(method, path, body, content_type="application/json", headers=headers)

    assert client.get(path).status_code == 200
    assert ask("DELETE", path).status_code == 403
    write = f"{path}/inputs/number/write"
    assert "X-CSRFToken" in ask("POST", write).json()["error"]
    client.cookies["csrftoken"] = token = "a" * 32
    assert ask("POST", write, X_CSRFToken="b" * 32).status_code == 403
    assert without_effect(node)
    assert ask("POST", write, **{"X-CSRFToken": token}).status_code == 200
    assert node.inputs["number"].peek() == [1]


@pytest.mark.parametrize(
    ("method", "content_type", "status"),
    [
        ("POST", "application/json; charset=utf-8", 200),
        ("POST", "text/plain", 415),
        ("POST", "", 415),
        ("DELETE", "text/plain", 415),
        ("DELETE", "", 409),
    ],
)
def test_a_request_that_changes_something_is_json(
    node: flow.Node, api: Api, method: str, content_type: str, status: int
) -> None:
    path = f"/flow/nodes/{node.pk}" + ("/run" if method == "POST" else "")
    response = api.client.generic(method, path, b"{}", content_type)

    assert response.status_code == status, response.content
    assert response.json()["node" if status == 200 else "error"]


# API_USER


def by_header(request: Any) -> Any:
    """Find the user that a header names; there is a secret in real life."""
    return User.objects.filter(username=request.headers["X-User"]).first()


@pytest.fixture
def by_api_user(settings: Settings, api: Api) -> Callable[..., Any]:
    """Return what asks as whom API_USER finds."""

    def ask(find: Any, **headers: str) -> Any:
        settings.HIPQ = {"default": {"FLOW": {"API_USER": find}}}
        client = Client(enforce_csrf_checks=True)
        body = b'{"entry": "x"}'
        return client.post("/flow/log", body, content_type="application/json", headers=headers)

    return ask


@pytest.mark.parametrize("is_bearer", [False, True])
def test_api_user_that_looks_at_the_session_leaves_the_csrf_token_needed(
    settings: Settings, user_with: Callable[..., Api], is_bearer: bool
) -> None:
    user = user_with("write_port").user
    other = User.objects.create_superuser("machine")
    find: Any = lambda request: other if is_bearer else request.user  # noqa: E731 - one of two
    settings.HIPQ = {"default": {"FLOW": {"API_USER": find}}}
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    response = client.post("/flow/log", {"entry": "x"}, content_type="application/json")

    assert response.status_code == (200 if is_bearer else 403)


def test_api_user_says_who_asks(by_api_user: Callable[..., Any], api: Api) -> None:
    path = "tests.flow.web.test_access.by_header"

    assert by_api_user(path, **{"X-User": "ann"}).status_code == 200
    assert by_api_user(path, **{"X-User": "bob"}).status_code == 401
    assert by_api_user(path).json()["error"] == "it cannot be found out who you are: KeyError."
    assert by_api_user(lambda request: AnonymousUser()).status_code == 401
    assert api.ask("POST", "log", {"entry": "x"}).status_code == 401  # a session does not count
    assert by_api_user("no.such").status_code == 503  # the fault is on this side
    User.objects.update(is_active=False)
    assert by_api_user(path, **{"X-User": "ann"}).status_code == 401


# What is too large


@pytest.mark.conformance
def test_a_body_and_a_message_are_limited(api: Api, node: flow.Node) -> None:
    for size in (1_048_576 + 65_536, 10_000_000):
        said = api.refused(f"nodes/{node.pk}/state", 413, set={"a": "x" * size})
        assert "bytes" in said["error"]
    assert node.state.all() == {}

    sink = flow.start("t.sum", run=False)
    path = f"nodes/{sink.pk}/inputs/number/write"
    assert "MAX_MESSAGE_BYTES" in api.refused(path, 413, data="x" * 1_048_575)["error"]
    api.post(path, data="x" * 1_048_574)
    assert sink.inputs["number"].size == 1


def test_what_a_request_writes_is_bounded(
    api: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipq_django.flow.settings.COPIES", 4)
    for _ in range(30):
        flow.start("flow.connect", inputs={"in": {"channels": ["/orders"]}}, run=False)
    settings.HIPQ = {"default": {"FLOW": {"MAX_MESSAGE_BYTES": 8_000}}}
    body = {"channel": "/orders", "context": {"note": "x" * 8_000}}

    assert (
        "this writes more than" in api.refused("publish", 413, **body, message="x" * 7_000)["error"]
    )
    assert not Message.objects.exists()
    api.post("publish", **body, message=1)


# The same request once more


@pytest.fixture
def once(api: Api) -> Callable[..., Any]:
    """Return what sends a request to the ports of a node with a key."""
    flow.start("t.recorder", alias="n", run=False)

    def ask(key: str, path: str = "inputs/a/write", **body: Any) -> Any:
        headers = {"Idempotency-Key": key}
        return api.ask("POST", f"nodes/n/{path}", body, headers=headers)

    return ask


def test_a_request_with_a_key_is_done_once(once: Callable[..., Any], api: Api) -> None:
    for key, value in (("a", 1), ("a", 1), ("b", 1), ("a", 2)):
        assert once(key, data=value).json() == {}
    assert flow.get("n").inputs["a"].peek(9) == [1, 1, 2]

    read, again = (once("a", "inputs/a/read") for _ in range(2))
    assert (read.json()["data"], read.content) == (1, again.content)
    assert read["Content-Type"] == again["Content-Type"] == "application/json"
    for _ in range(2):
        assert once("c", "inputs/a/write").status_code == 422
    api.client.force_login(User.objects.create_superuser("bob"))
    assert once("a", data=1).json() == {}
    assert flow.get("n").inputs["a"].peek(9) == [1, 2, 1]
    call_command("hipq_prune", days=0, stdout=StringIO())
    assert not Request.objects.exists()


# Sensitive fields


@flow.component("t.pays", sensitive=["card", "customer.iban"], public=True)
class Pays(flow.Component):
    """Takes money."""

    order, card = flow.In(), flow.In(default=None)

    def perform(self, *args: Any) -> None:
        """Do nothing."""


SECRETS = {"card": "4711-0815", "customer": {"iban": "DE00", "name": "Ann"}}


def test_sensitive_fields_are_masked(user_with: Callable[..., Api]) -> None:
    data: dict[str, Any] = {"card": {"default": "4711-0815"}, "order": {"default": SECRETS}}
    args = [{**SECRETS, "token": "4711"}]  # a field of another component
    node = flow.start("t.pays", args=args, inputs=data, run=False)
    node.state.set(SECRETS)
    spec = {"nodes": {"a": {"component": "t.pays", "args": [SECRETS]}}}
    graph = flow.start(spec, run=False)

    api = user_with("view_node", "edit_node")
    answers = [
        api.get(f"nodes/{node.pk}"),
        api.get(f"nodes/{graph.pk}/graph"),
        api.post(f"nodes/{node.pk}/state", set={**SECRETS, "x": 1}),
        api.post(f"nodes/{node.pk}/ports", outputs={}),
    ]
    for answer in answers:
        assert "4711" not in str(answer)
        assert "DE00" not in str(answer)
    assert answers[0]["args"][0]["customer"]["name"] == "Ann"
    assert answers[0]["inputs"]["card"] == {"size": 0, "default": "•••"}

    whole = user_with("view_node", "view_message").get(f"nodes/{node.pk}")
    assert whole["state"] == {**SECRETS, "x": 1}
    assert whole["inputs"]["card"]["default"] == "4711-0815"


@flow.component("t.has_a_token", sensitive=["token"], public=True)
class HasAToken(flow.Component):
    """Has a secret as a default, and one in a default."""

    token = flow.In(default="sesame-4711")
    how = flow.In(default={"token": "sesame-0815", "wait": 3})

    def perform(self) -> None:
        """Do nothing."""


def test_sensitive_defaults_of_components_are_masked(user_with: Callable[..., Api]) -> None:
    told = user_with("view_node").get("components")["components"]
    [inputs] = [one["inputs"] for one in told if one["name"] == "t.has_a_token"]

    assert "sesame" not in str(told) + str(flow.components())
    assert inputs["token"]["default"] == "•••"
    assert inputs["how"]["default"] == {"token": "•••", "wait": 3}


def test_what_is_masked_is_replaced_as_a_whole(api: Api) -> None:
    masked, graph = {"card": "•••", "name": "Ann"}, flow.start({"nodes": {}}, run=False)
    node = flow.start("t.pays", inputs={"order": {"default": SECRETS}}, run=False)
    node.state.set(SECRETS)
    spec = {"nodes": {"a": {"component": "t.pays", "args": [masked]}}}
    order = {"order": {"default": masked}}

    for path, body in (
        (f"nodes/{graph.pk}/graph", {"spec": spec}),
        (f"nodes/{node.pk}/state", {"set": masked}),
        (f"nodes/{node.pk}/ports", {"inputs": order}),
        ("nodes", {"component": spec}),
        ("nodes", {"component": "t.pays", "inputs": order}),
    ):
        said = api.refused(path, 422, **body)["error"]
        assert "stands for a value that is not shown" in said

    assert (node.state.all(), node.inputs["order"].default) == (SECRETS, SECRETS)
    assert flow.Node.objects.count() == 2


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_sensitive_value_of_a_state_cannot_be_guessed(
    user_with: Callable[..., Api], is_seen: bool
) -> None:
    node = flow.start("t.pays", run=False)
    node.state.set(card="4711", note="a")
    api, path = user_with("edit_node", *["view_message"] * is_seen), f"nodes/{node.pk}/state"
    guesses = [f"{number:04}" for number in range(10_000)]

    if not is_seen:
        assert "sensitive values" in api.refused(path, 422, set={"note": guesses})["error"]
        assert node.state.all() == {"card": "4711", "note": "a"}
        api.post(path, set={"note": "b"}, unset=["card"])
        assert node.state.all() == {"note": "b"}
    api.post(path, set={"note": guesses})
    assert node.state.all()["note"] == guesses


def test_what_does_not_fit_tells_no_messages_and_no_arguments(
    user_with: Callable[..., Api],
) -> None:
    a = {"component": "t.pays", "outputs": {"out": {}}}
    node = flow.start({"nodes": {"a": a}}, run=False)
    orphan = flow.start("t.pays", args=[SECRETS], run=False)
    b = {"component": "t.pays", "inputs": {"order": {"type": "float"}}}
    spec = {"nodes": {"a": a, "b": b}, "edges": ["a.out -> b.order"]}
    adopts = {"nodes": {"x": {"component": "t.pays", "init": orphan.pk}}}
    api = user_with("edit_graph", "start_node", "edit_node")
    for secret in (SECRETS, "4711-0815"):
        node.children["a"].outputs["out"].write(secret)
        said = api.refused(f"nodes/{node.pk}/graph", 422, spec=spec)["error"]
        assert said == f"port 'order' takes float, and was given {type(secret).__name__}."
        assert node.children["a"].outputs["out"].read() == secret

    said = api.refused("nodes", 422, component=adopts)["error"]
    assert f"node {orphan.pk} does not fit: its args differ." in said
    assert "4711" not in said


def test_the_log_does_not_quote_bodies(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    node = flow.start("t.double", run=False)
    api.refused(f"nodes/{node.pk}/inputs/number/write", 422, data="4711-0815")

    assert "request_refused" in caplog.text
    assert "4711" not in caplog.text
