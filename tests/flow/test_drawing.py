"""The picture of a graph: whatever the graph, it is drawn, and no box hides another."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree as ET

from hypothesis import given, strategies as st

from hipq_django.flow.drawing import WIDTH, Box, Line, Mark, draw, place

SVG = "{http://www.w3.org/2000/svg}"

texts = st.text(max_size=30)
marks = st.lists(st.builds(Mark, texts, st.sampled_from(["", "3", "10,000+"])), max_size=4)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[Line]]:
    """Boxes of any names and ports, and lines between any ports, also such as are not there."""
    keys = draw(st.lists(texts, max_size=12, unique=True))
    boxes = [
        Box(key, draw(texts), draw(texts), draw(texts), draw(texts), draw(marks), draw(marks),
            draw(texts))
        for key in keys
    ]  # fmt: skip
    outs = [(box.key, mark.name) for box in boxes for mark in box.outputs] + [("gone", "a")]
    ins = [(box.key, mark.name) for box in boxes for mark in box.inputs] + [("gone", "b")]
    pairs = draw(st.lists(st.tuples(st.sampled_from(outs), st.sampled_from(ins)), max_size=25))
    return boxes, [Line(*source, *target) for source, target in pairs]


@given(graphs())
def test_any_graph_is_drawn_as_well_formed_xml(graph: tuple[list[Box], list[Line]]) -> None:
    boxes, lines = graph
    svg = draw(boxes, lines, 'a "label" & <more>')

    picture = ET.fromstring(svg)

    there = {(box.key, mark.name) for box in boxes for mark in box.outputs}
    into = {(box.key, mark.name) for box in boxes for mark in box.inputs}
    drawn = {li for li in lines if (li.source, li.out) in there and (li.target, li.into) in into}
    assert len(list(picture.iter(f"{SVG}path"))) == len(drawn)
    assert len(list(picture.iter(f"{SVG}title"))) == len(boxes)
    assert "style=" not in svg.replace("style=&quot;", "")
    assert all(element.tag != f"{SVG}script" for element in picture.iter())


@given(graphs())
def test_no_boxes_overlap_and_all_lie_in_the_picture(graph: tuple[list[Box], list[Line]]) -> None:
    boxes, lines = graph
    shown = {box.key: box for box in boxes}
    pairs = [(li.source, li.target) for li in lines if li.source in shown and li.target in shown]
    corners = place(shown, pairs)

    for one, other in combinations(boxes, 2):
        a, b = corners[one.key], corners[other.key]
        apart = abs(a.x - b.x) >= WIDTH or a.y + one.height <= b.y or b.y + other.height <= a.y
        assert apart, (a, b)
    svg = ET.fromstring(draw(boxes, lines, ""))
    width, height = int(svg.attrib["width"]), int(svg.attrib["height"])
    for box in boxes:
        assert 0 <= corners[box.key].x <= width - WIDTH
        assert 0 <= corners[box.key].y <= height - box.height


def test_spaces_of_all_languages_are_drawn_and_control_characters_replaced() -> None:
    box = Box("one", "1\u00a0234\u202f5\x07\ud800", inputs=[Mark("in", "1\u202f234")])

    svg = draw([box], [], "")

    assert "1\u00a0234\u202f5\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}" in svg
    assert ">1\u202f234<" in svg


def layers(*pairs: str) -> dict[str, int]:
    keys = sorted({key for pair in pairs for key in pair})
    corners = place({key: Box(key, key) for key in keys}, [(p[0], p[1]) for p in pairs])
    columns = sorted({corner.x for corner in corners.values()})
    return {key: columns.index(corner.x) for key, corner in corners.items()}


def test_nodes_stand_right_of_all_that_lead_to_them_but_for_what_leads_back() -> None:
    assert layers("ab", "bc", "ac", "cd") == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert layers("ab", "bc", "cb", "ca") == {"a": 0, "b": 1, "c": 2}


def test_an_edge_that_passes_a_layer_runs_below_the_boxes() -> None:
    port = [Mark("p")]
    boxes = [Box(key, key, inputs=port, outputs=port) for key in "abc"]
    svg = draw(boxes, [Line(a, "p", b, "p") for a, b in ("ab", "bc", "ac", "ca")], "")

    assert [("V" in path, "hipq-back" in path) for path in svg.split("<path")[1:]] == [
        (False, False),
        (False, False),
        (True, False),
        (True, True),
    ]
