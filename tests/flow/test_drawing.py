"""The picture of a graph: whatever the graph, it is drawn, and no box hides another."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, strategies as st

from hipq_django.flow.drawing import WIDTH, Box, Line, Mark, draw, place

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
def test_no_boxes_overlap_and_all_lie_in_the_picture(graph: tuple[list[Box], list[Line]]) -> None:
    boxes, lines = graph

    drawing = draw(boxes, lines)

    there = {(box.key, mark.name) for box in boxes for mark in box.outputs}
    into = {(box.key, mark.name) for box in boxes for mark in box.inputs}
    drawn = {li for li in lines if (li.source, li.out) in there and (li.target, li.into) in into}
    assert len(drawing.ways) == len(drawn)
    assert [box for box, _corner in drawing.boxes] == boxes
    for box, corner in drawing.boxes:
        assert 0 <= corner.x <= drawing.width - WIDTH
        assert 0 <= corner.y <= drawing.height - box.height
    for (one, a), (other, b) in combinations(drawing.boxes, 2):
        apart = abs(a.x - b.x) >= WIDTH or a.y + one.height <= b.y or b.y + other.height <= a.y
        assert apart, (a, b)


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
    drawing = draw(boxes, [Line(a, "p", b, "p") for a, b in ("ab", "bc", "ac", "ca")])

    assert [("V" in way.path, way.leads_back) for way in drawing.ways] == [
        (False, False),
        (False, False),
        (True, False),
        (True, True),
    ]
