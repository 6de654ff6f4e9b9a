"""Graphs as SVG: nodes in layers from left to right, their ports at fixed places. Pure.

What leads back is found by a depth-first search; the rest is layered by its longest paths, and each
layer is ordered by the mean place of the boxes that lead to it. There are classes and attributes
only, no styles and no scripts, so that any content security policy lets it pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple
from unicodedata import category

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


@dataclass(frozen=True, slots=True)
class Box:
    """A node. `tone` names the colour of its status, `url` is its page."""

    key: str
    title: str
    subtitle: str = ""
    status: str = ""
    tone: str = ""
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


class Line(NamedTuple):
    """A connection: from the out-port of a box to the in-port of a box."""

    source: str
    out: str
    target: str
    into: str


class Point(NamedTuple):
    """A place in the picture."""

    x: int
    y: int


Pair = tuple[str, str]


def draw(boxes: Iterable[Box], lines: Iterable[Line], label: str) -> str:
    """Return the picture; lines whose ends are not there are left out."""
    shown = {box.key: box for box in boxes}
    joined = [line for line in dict.fromkeys(lines) if _has_ends(line, shown)]
    corners = place(shown, [(line.source, line.target) for line in joined])
    bottom = max((corners[key].y + box.height for key, box in shown.items()), default=0) + MARGIN
    right = max((corner.x for corner in corners.values()), default=0) + WIDTH + INDENT
    below = [line for line in joined if not _leads_on(corners[line.source], corners[line.target])]
    lanes = {line: number % LANES for number, line in enumerate(below)}
    drawn = [_path(line, shown, corners, bottom, lanes.get(line)) for line in joined]
    height = bottom + LANE * min(len(below), LANES)
    fits = " hipq-fits" if right <= MAX_SHRUNK else ""
    return (
        f'<svg class="hipq-picture{fits}" role="group" aria-label="{_text(label)}" '
        f'width="{right}" height="{height}" viewBox="0 0 {right} {height}" '
        'xmlns="http://www.w3.org/2000/svg">'
        f"{''.join(drawn)}"
        f"{''.join(_box(box, corners[key]) for key, box in shown.items())}</svg>"
    )


# Where things are


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
    order, back = _sorted(after)
    layer = dict.fromkeys(order, 0)
    for source in order:
        for target in after[source]:
            if (source, target) not in back:
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


def _sorted(after: Mapping[str, Sequence[str]]) -> tuple[list[str], set[Pair]]:
    """Return the nodes so that edges lead on, but for those that lead back, which come second."""
    entered = {target for targets in after.values() for target in targets}
    done: list[str] = []
    is_open: dict[str, bool] = {}
    back: set[Pair] = set()
    for first in sorted(after, key=lambda key: key in entered):
        stack = [] if first in is_open else [(first, iter(after[first]))]
        is_open.setdefault(first, True)
        while stack:
            key, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                is_open[key] = False
                done.append(stack.pop()[0])
            elif target not in is_open:
                is_open[target] = True
                stack.append((target, iter(after[target])))
            elif is_open[target]:
                back.add((key, target))
    return done[::-1], back


# What is drawn


def _has_ends(line: Line, boxes: Mapping[str, Box]) -> bool:
    source, target = boxes.get(line.source), boxes.get(line.target)
    return (
        source is not None
        and target is not None
        and any(mark.name == line.out for mark in source.outputs)
        and any(mark.name == line.into for mark in target.inputs)
    )


def _leads_on(source: Point, target: Point) -> bool:
    """Return whether an edge goes to the next layer; a box could hide any other one."""
    return target.x - source.x == WIDTH + GAP_X


def _path(
    line: Line,
    boxes: Mapping[str, Box],
    corners: Mapping[str, Point],
    bottom: int,
    lane: int | None,
) -> str:
    """Return a curve to the right, or a way in a lane below all boxes."""
    start = _end(corners[line.source], boxes[line.source].outputs, line.out, WIDTH)
    end = _end(corners[line.target], boxes[line.target].inputs, line.into, 0)
    if lane is None:
        middle = (start.x + end.x) // 2
        way = f"C{middle} {start.y} {middle} {end.y} {end.x} {end.y}"
    else:
        out, level = 10 + lane, bottom + LANE * lane
        way = f"H{start.x + out}V{level}H{end.x - out}V{end.y}H{end.x}"
    back = ' class="hipq-back"' if start.x > end.x else ""
    return f'<path{back} d="M{start.x} {start.y}{way}"/>'


def _end(corner: Point, marks: Sequence[Mark], name: str, x: int) -> Point:
    row = next(number for number, mark in enumerate(marks) if mark.name == name)
    return Point(corner.x + x, corner.y + HEAD + ROW * row + ROW // 2)


def _box(box: Box, corner: Point) -> str:
    tone = f"hipq-is-{box.tone}" if box.tone.isidentifier() else "hipq-is-none"
    end = WIDTH - 8
    inside = "".join(
        [
            f"<title>{_text(box.says)}</title>",
            f'<rect class="hipq-box" width="{WIDTH}" height="{box.height}" rx="5"/>',
            f'<rect class="hipq-tone {tone}" width="6" height="{box.height}" rx="3"/>',
            f'<text class="hipq-title" x="14" y="18">{_cut(box.title, 14)}</text>',
            f'<text class="hipq-small" x="14" y="35">{_cut(box.subtitle, 25)}</text>',
            f'<text class="hipq-status {tone}" x="{end}" y="18">{_cut(box.status, 12)}</text>',
            *_marks(box.inputs, "hipq-in", 0),
            *_marks(box.outputs, "hipq-out", WIDTH),
        ]
    )
    if box.url:
        inside = f'<a href="{_text(box.url)}" aria-label="{_text(box.says)}">{inside}</a>'
    return f'<g transform="translate({corner.x} {corner.y})">{inside}</g>'


def _marks(marks: Sequence[Mark], side: str, x: int) -> Iterator[str]:
    inward = -10 if x else 10
    for number, mark in enumerate(marks):
        y = HEAD + ROW * number + ROW // 2
        count = (
            f'<tspan class="hipq-count" dx="5">{_text(mark.unread)}</tspan>' if mark.unread else ""
        )
        yield f'<circle class="{side}" cx="{x}" cy="{y}" r="4"/>'
        yield (
            f'<text class="hipq-small {side}" x="{x + inward}" y="{y + 4}">'
            f"{_cut(mark.name, 9)}{count}</text>"
        )


def _cut(text: str, chars: int) -> str:
    return _text(text if len(text) <= chars else f"{text[: chars - 1]}…")


def _text(text: str) -> str:
    """Return a text for XML, which has no place for control characters."""
    return escape(
        "".join(char if _is_shown(char) else "\N{REPLACEMENT CHARACTER}" for char in text)
    )


def _is_shown(char: str) -> bool:
    """Return whether a character can be seen, or is a space: some languages have several."""
    return char.isprintable() or category(char) == "Zs"
