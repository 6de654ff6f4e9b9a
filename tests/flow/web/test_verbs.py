"""Each verb over HTTP does what it does in code."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import LogEntry
from tests.flow.web.conftest import PERMISSIONS, Api
from tests.testapp.flows import Double, Recorder, Sum

pytestmark = pytest.mark.conformance

TWICE = {
    "nodes": {"one": {"component": "flow.connect"}, "two": {"component": "flow.connect"}},
    "edges": ["one.out -> two.in"],
    "inputs": {"in": "one.in"},
    "outputs": {"out": "two.out"},
}


def test_the_index_tells_what_there_is(api: Api) -> None:
    answer = api.get("")

    assert answer["instance"] == "default"
    assert {"method": "POST", "path": "/publish", "permission": "write_port"} in answer["endpoints"]
    assert {each["permission"] for each in answer["endpoints"]} == set(PERMISSIONS)
    paths = {each["path"] for each in answer["endpoints"]}
    assert "/nodes/ID/inputs|outputs/PORT/read" in paths


def test_the_public_components_are_listed(api: Api) -> None:
    found = {component["name"]: component for component in api.get("components")["components"]}

    assert set(found["flow.join"]["inputs"]) == {"in", "sep"}
    assert "t.double" not in found


# Nodes


@flow.component("t.choosy", public=True)
class Choosy(flow.Component):
    """Checks its arguments without the errors that it should raise."""

    @classmethod
    def check_args(cls, args: Sequence[Any]) -> None:
        assert args[0]

    def perform(self, *args: Any) -> None:
        pass


def test_a_node_is_started_fed_run_and_read(api: Api) -> None:
    pk = api.post("nodes", component="flow.join", alias="join")["node"]

    api.post("nodes/join/inputs/sep/write", data="-")
    api.post(f"nodes/{pk}/inputs/in/write", list=[["a", "b"], [], ["c"]])
    assert api.get("nodes/join")["inputs"]["in"] == {"size": 3}
    testing.drain()
    answer = api.get("nodes/join")
    assert (answer["node"], answer["status"], answer["component"]) == (pk, "completed", "flow.join")
    assert answer["outputs"]["out"] == {"size": 3}
    assert api.post("nodes/join/outputs/out/read")["data"] == "a-b"
    flow.get("join").outputs["out"].move_to(flow.start("flow.wait").inputs["in"])
    assert api.post("nodes/join/outputs/out/read") == {}


@flow.component("t.waits", public=True)
class Waits(flow.Component):
    """Takes any arguments."""

    value, trigger = flow.In(name="in"), flow.In()

    def perform(self, *args: Any) -> None:
        self.suspend()


def test_all_options_of_a_start(api: Api) -> None:
    parent = flow.start("flow.placeholder", run=False, alias="parent")
    later = datetime.now(UTC) + timedelta(hours=1)
    pk = api.post(
        "nodes", component="t.waits", args=[1], parent="parent", name="child", alias="w",
        at=later.isoformat(), inputs={"in": {"default": 5}}, outputs={"extra": {}},
        data={"trigger": [1]}, job={"priority": 3},
    )["node"]  # fmt: skip
    answer = api.get("nodes/w")

    assert (answer["args"], answer["parent"], answer["name"]) == ([1], parent.pk, "child")
    assert (answer["created_by"], answer["aliases"]) == ("user:ann", ["w"])
    assert answer["inputs"]["in"] == {"size": 0, "default": 5}
    assert answer["inputs"]["trigger"] == {"size": 1}
    assert "extra" in answer["outputs"]
    assert api.get("nodes/parent")["children"] == {"child": pk}
    assert api.post("nodes", component="t.waits", alias="w", on_conflict="return") == {"node": pk}


def test_state_is_set_and_unset_at_once(api: Api) -> None:
    node = flow.start(Sum, run=False)
    node.state.set(a=1, b=2)

    assert api.post(f"nodes/{node.pk}/state", set={"c": 3}, unset=["a"]) == {
        "state": {"b": 2, "c": 3}
    }
    assert api.post(f"nodes/{node.pk}/state") == {"state": {"b": 2, "c": 3}}
    assert node.state.all() == {"b": 2, "c": 3}


def test_ports_are_set(api: Api) -> None:
    node = flow.start(Double, run=False)

    answer = api.post(f"nodes/{node.pk}/ports", inputs={"extra": {"default": 7}})
    assert answer["inputs"] == {"number": {"size": 0}, "extra": {"size": 0, "default": 7}}
    assert list(answer["outputs"]) == ["out"]
    assert list(api.post(f"nodes/{node.pk}/ports", inputs={})["inputs"]) == ["number"]


def test_a_node_runs(api: Api) -> None:
    parent = flow.start(Recorder, run=False)
    node = parent.spawn("child", Recorder, run=False)

    assert api.post(f"nodes/{node.pk}/run") == {"node": node.pk}
    assert testing.due(node) == 1
    assert api.post(f"nodes/{node.pk}/run", parent=True) == {"node": parent.pk}
    later = (datetime.now(UTC) + timedelta(hours=1)).timestamp()
    other = flow.start(Recorder, run=False)
    assert api.post(f"nodes/{other.pk}/run", at=later) == {"node": other.pk}
    assert testing.due(other) == 0
    other.terminate()
    assert api.post(f"nodes/{other.pk}/run", wait=0) == {"node": None}
    assert api.post(f"nodes/{other.pk}/run", force=True) == {"node": other.pk}


def test_a_node_is_terminated_and_deleted(api: Api) -> None:
    node = flow.start(Recorder, run=False)
    node.spawn("child", Recorder, run=False)
    refused = api.ask("DELETE", f"nodes/{node.pk}")

    assert (refused.status_code, refused.json()["deleted"]) == (409, False)
    assert api.post(f"nodes/{node.pk}/terminate", recursive=True) == {"status": "terminating"}
    testing.drain()
    response = api.ask("DELETE", f"nodes/{node.pk}")
    assert (response.status_code, response.json()) == (200, {"deleted": True})
    assert api.ask("GET", f"nodes/{node.pk}").status_code == 404
    assert not flow.Node.objects.exists()


def test_a_node_is_locked_once(api: Api) -> None:
    node = flow.start(Recorder, run=False, alias="n")
    api.refused("nodes/n/refresh_lock", 409, ttl=5)
    token = api.post("nodes/n/lock", ttl=60)["token"]

    assert "locked" in api.refused("nodes/n/lock", 409, ttl=60)["error"]
    assert api.post("nodes/n/refresh_lock", ttl=60) == {"refreshed": True}
    api.refused("nodes/n/unlock", 409, token="wrong")
    assert api.post("nodes/n/unlock", token=token) == {"unlocked": True}
    assert node.lock(1)


def test_nodes_are_adopted_and_disowned(api: Api) -> None:
    flow.start(Recorder, run=False, alias="parent")
    orphan = flow.start(Recorder, run=False, alias="orphan")

    answer = api.post("nodes/parent/adopt", child="orphan", name="child")
    assert answer == {"children": {"child": orphan.pk}}
    assert (
        "has a parent" in api.refused("nodes/parent/adopt", 422, child="orphan", name="b")["error"]
    )
    assert api.post("nodes/parent/disown", name="child") == {"children": {}}


# Ports


def test_entries_stay_and_are_limited(api: Api) -> None:
    node = flow.start(Double, run=False)
    node.inputs["number"].write_many(range(200))

    answer = api.post(f"nodes/{node.pk}/inputs/number/entries")
    assert answer["size"] == 200
    assert [entry["data"] for entry in answer["entries"]] == list(range(10))
    more = api.post(f"nodes/{node.pk}/inputs/number/entries", count=100)
    assert len(more["entries"]) == 100


# Channels, log, context, run


def test_messages_are_published(api: Api) -> None:
    node = flow.start(Sum, inputs={"number": {"channels": ["/orders"]}}, run=False)

    assert api.post("publish", channel="/orders/new", message={"id": 1}) == {}
    assert node.inputs["number"].peek() == [{"id": 1}]
    assert api.post("publish", channel="/orders", message=None) == {}
    assert node.inputs["number"].size == 2


def test_messages_carry_the_context_of_a_body(api: Api) -> None:
    node = flow.start(Sum, run=False)
    path = f"nodes/{node.pk}/inputs/number"

    api.post(f"{path}/write", data=1, context={"user": "ann"})
    assert api.post(f"{path}/entries")["entries"][0]["context"] == {"user": "ann"}
    assert flow.get(node.pk).inputs["number"].size == 1


def test_a_node_runs_after_another_verb(api: Api) -> None:
    parent = flow.start(Recorder, run=False)
    node = parent.spawn("child", Recorder, run=False)

    answer = api.post(f"nodes/{node.pk}/state", set={"a": 1}, run={"parent": True})
    assert answer == {"state": {"a": 1}, "run": parent.pk}
    assert (testing.due(parent), testing.due(node)) == (1, 0)
    assert api.post(f"nodes/{node.pk}/outputs/out/write", data=1, run={})["run"] == node.pk
    assert testing.due(node) == 1


# Graphs


def test_a_graph_is_started_told_and_changed(api: Api) -> None:
    pk = api.post("nodes", component=TWICE, alias="twice", data={"in": [5]})["node"]
    testing.drain()

    assert api.post("nodes/twice/outputs/out/read")["data"] == 5
    assert api.get("nodes/twice/graph") == {"spec": TWICE}
    spec = {"nodes": {"one": {"component": "flow.connect"}}}
    assert list(api.post("nodes/twice/graph", spec=spec)["children"]) == ["one"]
    assert flow.get(pk).graph == spec


def test_a_wrong_graph_is_refused_with_all_problems(api: Api) -> None:
    node = flow.start(TWICE)
    spec = {
        "nodes": {"a": {"component": "t.double"}, "b": {"component": "no.such"}},
        "edges": ["a.out -> c.in"],
    }

    for said in (
        api.refused(f"nodes/{node.pk}/graph", 422, spec=spec),
        api.refused("nodes", 422, component=spec),
    ):
        paths = {problem["path"] for problem in said["problems"]}
        assert paths == {"nodes.a.component", "nodes.b.component", "edges[0]"}
    assert node.graph == TWICE
    assert flow.Node.objects.count() == 3


def test_what_is_no_graph_has_none(api: Api) -> None:
    node = flow.start(Double, run=False)

    assert api.ask("GET", f"nodes/{node.pk}/graph").status_code == 404
    said = api.refused(f"nodes/{node.pk}/graph", 422, spec={"nodes": {}})
    assert said["problems"] == [{"path": "spec", "message": f"{node} is no graph.", "hint": ""}]


# What is refused

WHEN = "give seconds since 1970, or a time as 2026-12-24T18:00:00+01:00."
WAIT, WRITE = {"component": "flow.wait"}, "nodes/n/inputs/number/write"
REFUSALS: list[tuple[int, str, dict[str, Any], str]] = [
    (422, "nodes", {"component": "t.double"}, "is not public"),
    (422, "nodes", {"component": "flow.graph"}, "Give the spec itself"),
    (422, "nodes", {"component": "t.choosy"}, "check_args refused the arguments"),
    (422, "nodes", WAIT | {"data": {"nope": [1]}}, "has no in-port 'nope'"),
    (422, "nodes", WAIT | {"parent": "nobody", "name": "a"}, "no node"),
    (422, "nodes", WAIT | {"compnent": 1}, "did you mean 'component'"),
    (422, "nodes", {}, "the body has no 'component'"),
    (409, "nodes", WAIT | {"alias": "here"}, "here"),
    (409, "nodes", WAIT | {"parent": "here", "name": "a"}, "has a child 'a'"),
    (422, "nodes", WAIT | {"at": "2026-12-24T18:00"}, WHEN),
    (422, "nodes/n/run", {"at": "soon"}, WHEN),
    (422, "nodes/n/run", {"at": 1e300}, "out of range"),
    (422, "nodes/n/run", {"force": 1}, "force: it is 1; give true or false."),
    (422, "nodes/n/run", {"run": {}}, "'run'"),
    (422, "nodes/n/state", {"set": {"d": 4, "flow.spec": {}}}, "flow.spec"),
    (422, "nodes/n/state", {"set": []}, "give an object"),
    (422, "nodes/n/state", {"set": {"d": 4}, "unset": [5, {}, None]}, "5"),
    (422, "nodes/n/state", {"set": {"d": 4}, "run": {"wait": -1}}, "wait"),
    (422, "nodes/n/state", {"set": {"d": 4}, "run": []}, "run"),
    (422, "nodes/n/ports", {"inputs": {"a b": {}}}, "use letters"),
    (422, "nodes/n/lock", {"ttl": "long"}, "ttl"),
    (422, "nodes/n/adopt", {"child": "here", "name": "above"}, "above it"),
    (422, "nodes/n/disown", {"name": "nobody"}, "has no child 'nobody'"),
    *((422, "nodes/n/inputs/number/entries", {"count": c}, "count") for c in (0, 101)),
    (422, WRITE, {"data": "five"}, "takes int"),
    (422, WRITE, {"list": [1, "five"]}, "takes int"),
    (422, WRITE, {}, "either 'data', one message, or 'list'"),
    (422, WRITE, {"data": 1, "list": [2]}, "either 'data', one message, or 'list'"),
    *((422, WRITE, {"data": 1, "context": c}, "context") for c in ({"node": 1}, ["a"])),
    (413, WRITE, {"list": [2, 3], "context": {"note": "\u00e9" * 4_100}}, "it has 8,212 bytes"),
    (422, "publish", {"channel": "orders", "message": 1}, "a name begins with /"),
    (422, "log", {"entry": 5}, "give a text or an object"),
    *((404, f"nodes/{n}/run", {}, "no node") for n in ("0", "nobody", "9" * 5_000, "%00")),
    *(
        (404, f"nodes/n/inputs/{port}/{verb}", {}, "port")
        for port in ("nope", "*", "a%20b", "%00", "x" * 300)
        for verb in ("read", "entries")
    ),
]  # fmt: skip


def test_what_is_refused_changes_nothing(api: Api) -> None:
    here = flow.start("flow.placeholder", run=False, alias="here")
    here.spawn("n", Double, run=False, alias="n")
    here.spawn("a", "flow.wait", run=False)
    before = list(flow.Node.objects.order_by("pk").values())
    for status, path, body, said in REFUSALS:
        error = api.refused(path, status, **body)["error"]
        assert said in error, (path, body, error)

    assert list(flow.Node.objects.order_by("pk").values()) == before
    assert flow.get("n").inputs["number"].size == 0
    assert not LogEntry.objects.exists()
    taken = api.refused("nodes", 409, component="flow.wait", alias="here")["node"]
    assert taken == here.pk
    assert api.ask("POST", "nodes/n/ports/number/read").status_code == 404


# Instances


@pytest.mark.django_db(databases=["default", "other"])
def test_each_instance_has_its_own_address() -> None:
    other = Api(*PERMISSIONS, prefix="/other_flow/")

    assert other.get("")["instance"] == "other"
    assert other.ask("POST", "log", {"entry": "x"}).status_code == 200
    entry: Any = LogEntry.objects.using("other").get()
    assert entry.instance == "other"
