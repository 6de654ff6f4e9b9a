"""What may be named from outside."""

from typing import Any

import pytest
from pytest_django import Settings

from hipq_django import flow
from hipq_django.flow.graphs.problem import errors_of
from hipq_django.flow.graphs.publicity import check_public
from tests.testapp.flows import Double


def paths(component_or_spec: Any) -> list[str]:
    return [problem.path for problem in check_public("default", component_or_spec)]


def test_a_component_is_public_if_it_says_so() -> None:
    assert paths("flow.connect") == []
    for private in ("t.double", Double, "flow.graph", "no.such", None, ["flow.connect"], 5):
        assert paths(private) == ["component"]


def test_what_is_never_public_says_what_to_name_in_its_place() -> None:
    nodes = {"a": {"component": "flow.jobs"}, "b": {"component": "flow.graph"}}
    of_stage, of_graph = check_public("default", {"nodes": nodes})

    assert "'jobs'" in of_stage.hint
    assert "the spec itself" in of_graph.hint


def test_all_that_is_private_in_a_spec_is_told(settings: Settings) -> None:
    settings.HIPQ = {"default": {"FLOW": {"PUBLIC_JOBS": ["ship"]}}}
    nodes = {
        "one": {"component": "flow.connect"},
        "two": {"component": "t.double"},
        "three": {"component": "no.such"},
        "four": {"jobs": "ship"},
        "five": {"jobs": "charge"},
        "six": {"jobs": ["ship"], "component": "t.double"},
        "seven": None,
    }

    assert paths({"nodes": nodes}) == [
        "nodes.two.component",
        "nodes.three.component",
        "nodes.five.jobs",
        "nodes.six.component",
        "nodes.six.jobs",
    ]


@pytest.mark.django_db
def test_a_check_tells_each_place_once() -> None:
    spec = {"nodes": {"a": {"component": "no.such"}, "b": {"component": "t.double"}}}

    def paths(spec: Any, **options: Any) -> list[str]:
        return [problem.path for problem in errors_of(flow.check(spec, **options))]

    assert paths(spec, only_public=True) == ["nodes.a.component", "nodes.b.component"]
    assert paths(spec) == ["nodes.a.component"]
    assert paths([], only_public=True) == ["spec"]


@pytest.mark.django_db
def test_a_graph_is_not_changed_to_one_with_private_components() -> None:
    from hipq_django.flow.graphs.applying import apply

    node = flow.start({"nodes": {}})
    with pytest.raises(flow.GraphError, match=r"nodes\.b\.component: 't\.double' is not public"):
        apply(node, {"nodes": {"b": {"component": "t.double"}}}, only_public=True)
    assert node.children == {}
