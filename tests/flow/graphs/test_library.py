"""The standard components."""

from pathlib import Path
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.library import filtering
from hipq_django.flow.models import Message
from tests.testapp.flows import Script

pytestmark = pytest.mark.django_db


BATCH = 1_000
COUNTED = list(range(1_500))
LISTS: list[Any] = [[] for _ in COUNTED]


def result(component: str, inputs: Any = None, out: str = "out", **data: Any) -> list[Any]:
    ports = {name.rstrip("_"): values for name, values in data.items()}
    node = flow.start(component, inputs=inputs, data=ports)
    testing.drain()
    return list(node.outputs[out])


CASES: list[tuple[str, dict[str, list[Any]], list[Any]]] = [
    ("flow.array", {"b": [1], "a": [2]}, [[2, 1]]),
    ("flow.object", {"b": [1], "a": [2]}, [{"a": 2, "b": 1}]),
    ("flow.concat", {"b": [[1]], "a": [[2, 3]]}, [[2, 3, 1]]),
    ("flow.merge", {"a": [{"x": 1, "y": 1}], "b": [{"x": 2}]}, [{"x": 2, "y": 1}]),
    ("flow.each", {"in": [[1, None], []]}, [1, None]),
    ("flow.product", {"in": [[[1, 2], [3]]]}, [[[1, 3], [2, 3]]]),
    ("flow.zip", {"in": [[[1, 2], [3, 4]]]}, [[[1, 3], [2, 4]]]),
    ("flow.flatten", {"in": [[1, [2, [3]]]]}, [[1, 2, 3]]),
    ("flow.flatten", {"in": [[1, [2, [3]]]], "level": [1]}, [[1, 2, [3]]]),
    ("flow.groups_of", {"in": [[1, 2, 3]], "size": [2]}, [[[1, 2], [3]]]),
    ("flow.groups_of", {"in": [[1, 2, 3]], "size": [2], "fill": [0]}, [[[1, 2], [3, 0]]]),
    ("flow.join", {"in": [["a", "b"]]}, ["a,b"]),
    ("flow.join", {"in": [["a", "b"]], "sep": ["-"]}, ["a-b"]),
    ("flow.split", {"in": ["a,b"]}, [["a", "b"]]),
    ("flow.repeat", {"in": ["a"], "times": [3]}, ["a", "a", "a"]),
    ("flow.permutation", {"in": [[1, 2, 3]], "n": [2]}, [[[1, 2], [1, 3], [2, 3]]]),
    ("flow.permutation", {"in": [[1, 2]], "n": [2], "ordered": [True]}, [[[1, 2], [2, 1]]]),
    ("flow.connect", {"in": [1, 2]}, [1, 2]),
    ("flow.wait", {"trigger": [0], "in": [1, 2]}, [1]),
    ("flow.wait_each", {"in": [[1, 2, 2], [9]], "each": [2, 1, 2, 3]}, [[1, 2, 2]]),
    (
        "flow.wait_each",
        {"in": [[{"a": 1, "b": 2}]], "each": [{"b": 2, "a": 1}]},
        [[{"a": 1, "b": 2}]],
    ),
]


@pytest.mark.parametrize(("component", "data", "expected"), CASES)
def test_what_comes_out(component: str, data: dict[str, Any], expected: list[Any]) -> None:
    assert result(component, **data) == expected


def test_key_value_writes_to_the_ports_that_are_there() -> None:
    node = flow.start("flow.key_value", outputs={"a": {}}, data={"in": [{"a": 1, "b": 2}]})
    testing.drain()

    assert list(node.outputs["a"]) == [1]
    assert list(node.outputs) == ["a"]


def test_a_variable_is_a_default_that_goes_along() -> None:
    variable, user = flow.start("flow.set_default"), flow.start("t.add", run=False)
    variable.outputs["out"].connect(user.inputs["y"])
    variable.inputs["in"].write_many([5, 10])
    testing.drain()
    user.inputs["x"].write(1)
    testing.drain()

    assert list(user.outputs["out"]) == [11]


@pytest.mark.parametrize("moves", [False, True])
def test_a_default_is_handed_on_once(moves: bool, script: Script) -> None:
    """Also round a ring, and from outside: where it comes to lie, it lies already."""

    def perform(run: Any) -> None:
        run.item.move_to(run.out)

    one, two = (flow.start("t.scripted" if moves else "flow.connect", run=False) for _ in range(2))
    name = "item" if moves else "in"
    script.perform = perform
    one.outputs["out"].connect(two.inputs[name])
    two.outputs["out"].connect(one.inputs[name])
    one.inputs[name].default = 7
    for _ in range(2):
        one.run()
        testing.drain(timeout=10)
    one.inputs[name].move_to(one.outputs["out"])
    testing.drain(timeout=10)

    assert [flow.Node.objects.get(pk=node.pk).runs for node in (one, two)] == [2, 1]
    assert two.inputs[name].default == 7
    one.inputs[name].default = 8
    one.inputs[name].move_to(one.outputs["out"])
    assert two.inputs[name].default == 8


def test_map_waits_for_what_comes_back() -> None:
    graph = flow.start(
        {
            "nodes": {"map": {"component": "flow.map"}, "double": {"component": "t.double"}},
            "edges": ["map.each -> double.number", "double.out -> map.each"],
            "inputs": {"in": "map.in"},
            "outputs": {"out": "map.out"},
        },
        data={"in": [[1, 2, 3], [4], []]},
    )
    testing.drain()

    assert list(graph.outputs["out"]) == [[2, 4, 6], [8], []]
    assert graph.status == "completed"


@pytest.mark.parametrize("waits", [False, True])
def test_delay_hands_on_so_long_after_it_came(waits: bool) -> None:
    """However long it waits for a worker meanwhile."""
    node = flow.start("flow.delay", inputs={"delay": {"default": 60}}, data={"in": ["a", "b"]})
    if not waits:
        testing.drain()
        assert node.outputs["out"].size == 0
        assert node.status == "queued"
    with hipq.testing.travel(seconds=61):
        testing.drain()
    assert list(node.outputs["out"]) == ["a", "b"]


@pytest.mark.parametrize("component", ["flow.placeholder", "flow.widget"])
def test_people_are_waited_for(component: str) -> None:
    node = flow.start(component, data={"order": [1]})
    testing.drain()
    assert node.status == "suspended"
    node.outputs["yes"].write(1)

    assert node.outputs["yes"].read() == 1


@pytest.mark.parametrize(
    ("component", "port", "values", "expected"),
    [
        ("flow.connect", "in", COUNTED, COUNTED),
        ("flow.set_default", "in", COUNTED, []),
        ("flow.delay", "in", COUNTED, COUNTED),
        ("flow.map", "in", LISTS, LISTS),
        ("flow.wait_each", "in", LISTS, LISTS),
        ("flow.wait_each", "each", COUNTED, []),
    ],
)
def test_a_run_takes_no_more_than_a_batch(
    component: str, port: str, values: list[Any], expected: list[Any]
) -> None:
    options = {"delay": {"default": 0}} if component == "flow.delay" else None
    node = flow.start(component, inputs=options, run=False)
    row = node.inputs[port].row
    Message.objects.bulk_create(Message(port=row, data=value) for value in values)
    testing.run_inline(node)
    assert node.inputs[port].size == len(values) - BATCH
    assert node.status == "queued"
    testing.drain()

    assert node.inputs[port].size == 0
    assert node.outputs["out"].peek(len(values) + 1) == expected


MANY = 10**18
LARGE: list[tuple[str, dict[str, list[Any]]]] = [
    ("flow.product", {"in": [[[1, 2]] * 40]}),
    ("flow.repeat", {"in": ["x" * 600_000], "times": [2]}),
    ("flow.join", {"in": [["a"] * 100_000], "sep": [" " * 1_000]}),
    ("flow.permutation", {"in": [[1, 2]], "n": [MANY], "repeat": [True], "ordered": [True]}),
]


TOO_MUCH = "more than 1,048,576 bytes of JSON (setting FLOW: MAX_MESSAGE_BYTES)"


@pytest.mark.parametrize(("component", "data"), LARGE)
def test_a_message_of_which_too_much_would_be_made_is_refused_before(
    component: str, data: dict[str, list[Any]]
) -> None:
    node = flow.start(component, data=data)
    with pytest.raises(flow.FlowError) as refused:
        testing.drain()
    assert f"{component}: " in str(refused.value)
    assert TOO_MUCH in str(refused.value)
    assert node.status == "failed"
    assert node.inputs["in"].size == 1


# jq


def filtered(program: str, *values: Any) -> flow.Node:
    return flow.start(
        "flow.filter", inputs={"filter": {"default": program}}, data={"in": list(values)}
    )


@pytest.mark.parametrize(
    ("program", "values", "expected"),
    [
        (".a", [{"a": 1}, {"a": [2]}, {}], [1, [2], None]),
        (".[] | select(. > 1)", [[1, 2, 3]], [2, 3]),
        ("empty", [1, 2], []),
        ('env | has("PATH")', [None], [False]),
    ],
)
def test_filter_hands_on_what_jq_makes_of_each_value(
    program: str, values: list[Any], expected: list[Any]
) -> None:
    node = filtered(program, *values)
    testing.drain()

    assert list(node.outputs["out"]) == expected
    assert node.status == "completed"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (".a", "Cannot index number"),
        ("[range(1e9)]", "needs more than 256 MB"),
        ("def f: f; f", "took longer than 0.5 s"),
        ("range(1e6)", "it makes more than 1,048,576 bytes of JSON of one message"),
    ],
)
def test_a_filter_that_cannot_be_used_or_does_not_end_fails_its_node(
    monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    monkeypatch.setattr(filtering, "MAX_SECONDS", 0.5 if "took" in message else 60.0)
    node = filtered(program, 1)
    with pytest.raises(flow.FilterError, match=message):
        testing.drain()

    assert node.status == "failed"
    assert node.inputs["in"].peek() == [1]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (". + 1", "object (…) and number (1) cannot be added"),
        (".card + 1", 'string ("•••") and number (1) cannot be added'),
        ('error("x" * 490 + .card)', "x" * 490 + "•••"),
    ],
)
def test_no_part_of_a_sensitive_value_stays_in_what_jq_says(program: str, said: str) -> None:
    node = filtered(program, {"card": "4111-1111-1111-1111", "n": 1})
    testing.drain(errors=False)

    assert flow.Node.objects.get(pk=node.pk).error == (
        f"FilterError: flow.filter: {program!r}: {said}"
    )


@pytest.mark.parametrize(
    "program",
    [
        'import # a comment \\\n that goes on\n"secret" as $x {search: "DIR"}; $x',
        'import "missing" as $x {search: "DIR"}; $x',
    ],
)
def test_a_filter_reads_no_file(program: str, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('"of the worker"')
    (tmp_path / "secret.jq").write_text('def secret: "of the worker";')
    node = filtered(program.replace("DIR", str(tmp_path)), 1)
    with pytest.raises(flow.FilterError, match="it reads a module, which is not there"):
        testing.drain()

    assert node.outputs["out"].size == 0
