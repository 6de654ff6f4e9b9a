"""Graphs as pictures: nodes in layers from left to right, their ports at fixed places. Pure.

What leads back is found by a depth-first search; the rest is layered by its longest paths, and each
layer is ordered by the mean place of the boxes that lead to it. The template `picture.html` draws
what is placed here as SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

WIDTH, HEAD, ROW = 168, 46, 20
"""The width of a box, and the heights of its head and of a port's row."""

GAP_X, GAP_Y, MARGIN = 40, 22, 14
MAX_SHRUNK = 1_300
"""The widest picture that is shrunk to fit a page and can still be read; others are scrolled."""

LANES, LANE, INDENT = 12, 7, 28
"""What leads back, or passes a layer, runs below all boxes, in lanes; the indent leaves room."""


class Mark(NamedTuple):
    """A port, and how many unread messages it has, as text; '' for none."""

    name: str
    unread: str = ""


class Point(NamedTuple):
    """A place in the picture."""

    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Box:
    """A node. `tone` names the colour of its status, `url` is its page."""

    key: str
    title: str
    subtitle: str = ""
    status: str = ""
    tone: str = "none"
    inputs: Sequence[Mark] = ()
    outputs: Sequence[Mark] = ()
    url: str = ""

    @property
    def height(self) -> int:
        """How high it is drawn."""
        return HEAD + ROW * max(len(self.inputs), len(self.outputs)) + 6

    @property
    def says(self) -> str:
        """All that the colours and places say, in words."""
        counts = [f"{mark.name} {mark.unread}" for mark in (*self.inputs, *self.outputs)
                  if mark.unread]  # fmt: skip
        return ", ".join(part for part in (self.title, self.subtitle, self.status, *counts) if part)

    @property
    def marks(self) -> list[tuple[Mark, str, Point, int]]:
        """The ports: each with its side, its place in the box, and where its text begins."""
        sides = ((self.inputs, "in", 0, 10), (self.outputs, "out", WIDTH, WIDTH - 10))
        return [
            (mark, side, Point(x, _row(number)), text_x)
            for marks, side, x, text_x in sides
            for number, mark in enumerate(marks)
        ]


class Line(NamedTuple):
    """A connection: from the out-port of a box to the in-port of a box."""

    source: str
    out: str
    target: str
    into: str


class Way(NamedTuple):
    """How a line is drawn: the data of an SVG path."""

    path: str
    leads_back: bool


class Drawing(NamedTuple):
    """All that a picture shows, each thing at its place."""

    width: int
    height: int
    boxes: list[tuple[Box, Point]]
    ways: list[Way]
    box_width: int = WIDTH
    status_x: int = WIDTH - 8
    """Where the status of a box ends."""

    @property
    def is_shrunk(self) -> bool:
        """Whether it is shrunk to fit a page."""
        return self.width <= MAX_SHRUNK


Pair = tuple[str, str]


def draw(boxes: Iterable[Box], lines: Iterable[Line]) -> Drawing:
    """Return the picture of at most some hundred boxes; lines without both ends are left out."""
    shown = {box.key: box for box in boxes}
    joined = [line for line in dict.fromkeys(lines) if _has_ends(line, shown)]
    corners = place(shown, [(line.source, line.target) for line in joined])
    bottom = max((corners[key].y + box.height for key, box in shown.items()), default=0) + MARGIN
    right = max((corner.x for corner in corners.values()), default=0) + WIDTH + INDENT
    ways, lanes = [], 0
    for line in joined:
        start = _end(corners[line.source], shown[line.source].outputs, line.out, WIDTH)
        end = _end(corners[line.target], shown[line.target].inputs, line.into, 0)
        is_next = end.x - start.x == GAP_X
        ways.append(_way(start, end, bottom, None if is_next else lanes % LANES))
        lanes += not is_next
    height = bottom + LANE * min(lanes, LANES)
    return Drawing(right, height, [(box, corners[key]) for key, box in shown.items()], ways)


def _has_ends(line: Line, boxes: Mapping[str, Box]) -> bool:
    source, target = boxes.get(line.source), boxes.get(line.target)
    outs, ins = source.outputs if source else (), target.inputs if target else ()
    return line.out in {mark.name for mark in outs} and line.into in {mark.name for mark in ins}


def _row(number: int) -> int:
    return HEAD + ROW * number + ROW // 2


def _end(corner: Point, marks: Sequence[Mark], name: str, x: int) -> Point:
    number = next(number for number, mark in enumerate(marks) if mark.name == name)
    return Point(corner.x + x, corner.y + _row(number))


def _way(start: Point, end: Point, bottom: int, lane: int | None) -> Way:
    """Return a curve to the next layer, or a way in a lane below all boxes, which could hide it."""
    if lane is None:
        middle = (start.x + end.x) // 2
        way = f"C{middle} {start.y} {middle} {end.y} {end.x} {end.y}"
    else:
        out, level = 10 + lane, bottom + LANE * lane
        way = f"H{start.x + out}V{level}H{end.x - out}V{end.y}H{end.x}"
    return Way(f"M{start.x} {start.y}{way}", start.x > end.x)


# Where boxes are


def place(boxes: Mapping[str, Box], pairs: Iterable[Pair]) -> dict[str, Point]:
    """Return the corner of each box."""
    after: dict[str, list[str]] = {key: [] for key in boxes}
    before: dict[str, list[str]] = {key: [] for key in boxes}
    for source, target in dict.fromkeys(pairs):
        after[source].append(target)
        before[target].append(source)
    layers = _layers(after)
    highest = max((_height(row, boxes) for row in layers), default=0)
    corners: dict[str, Point] = {}
    for number, row in enumerate(layers):
        y = MARGIN + (highest - _height(row, boxes)) // 2
        means = {key: _mean(corners[one].y for one in before[key] if one in corners) for key in row}
        for key in sorted(row, key=means.__getitem__):
            corners[key] = Point(INDENT + number * (WIDTH + GAP_X), y)
            y += boxes[key].height + GAP_Y
    return corners


def _layers(after: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the boxes from left to right, each as far as the longest path to it."""
    search = _Search(after)
    layer = dict.fromkeys(reversed(search.done), 0)
    for source in layer:
        for target in after[source]:
            if (source, target) not in search.back:
                layer[target] = max(layer[target], layer[source] + 1)
    layers: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for key in after:
        layers[layer[key]].append(key)
    return layers


def _height(row: Iterable[str], boxes: Mapping[str, Box]) -> int:
    return sum(boxes[key].height + GAP_Y for key in row)


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0


class _Search:
    """A depth-first search: the boxes that are done, the innermost first, and what leads back."""

    def __init__(self, after: Mapping[str, Sequence[str]]) -> None:
        self.done: dict[str, None] = {}
        self.back: set[Pair] = set()
        self._after = after
        self._above: set[str] = set()
        entered = set(chain.from_iterable(after.values()))
        for first in sorted(after, key=entered.__contains__):
            self._visit(first)

    def _visit(self, key: str) -> None:
        if key in self.done:
            return
        self._above.add(key)
        for target in self._after[key]:
            if target in self._above:
                self.back.add((key, target))
            else:
                self._visit(target)
        self._above.remove(key)
        self.done[key] = None
