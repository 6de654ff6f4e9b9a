"""Graphs as SVG: nodes in layers from left to right, their ports at fixed places. Pure.

What leads back is found by a depth-first search; the rest is layered by its longest paths, and each
layer is ordered by the mean place of its neighbours (barycentre). Edges that pass layers get a free
place in each, so that no box hides them. There are classes and attributes only, no styles and no
scripts, so that any content security policy lets it pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import NamedTuple
from unicodedata import category

WIDTH, HEAD, ROW = 168, 46, 20
"""The width of a box, and the heights of its head and of a port's row."""

GAP_X, GAP_Y, MARGIN = 40, 22, 14
MAX_SPAN = 12
"""An edge that passes more layers goes straight: a place in each would cost too much."""

MAX_SHRUNK = 1_300
"""The widest picture that is shrunk to fit a page and can still be read; others are scrolled."""

SWEEPS = 4
LANES, LANE, INDENT = 12, 7, 28
"""What leads back runs below all boxes, in lanes; the indent leaves room for them to go there."""


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
    corners, ways = place(shown, [(line.source, line.target) for line in joined])
    bottom = max((corners[key].y + box.height for key, box in shown.items()), default=0)
    bottom = max([bottom, *(spot.y + ROW for way in ways.values() for spot in way or ())])
    right = max((corner.x for corner in corners.values()), default=0) + WIDTH
    back = [pair for pair, way in ways.items() if way is None]
    lanes = {pair: number % LANES for number, pair in enumerate(back)}
    under = {pair: Point(10 + lane, bottom + MARGIN + LANE * lane) for pair, lane in lanes.items()}
    drawn = [_path(line, shown, corners, ways, under) for line in joined]
    below = MARGIN + LANE * min(len(lanes), LANES) if lanes else 0
    size = Point(right + INDENT, bottom + MARGIN + below)
    fits = " hipq-fits" if size.x <= MAX_SHRUNK else ""
    return (
        f'<svg class="hipq-picture{fits}" role="group" aria-label="{_text(label)}" '
        f'width="{size.x}" height="{size.y}" viewBox="0 0 {size.x} {size.y}" '
        'xmlns="http://www.w3.org/2000/svg">'
        f"{''.join(drawn)}"
        f"{''.join(_box(box, corners[key]) for key, box in shown.items())}</svg>"
    )


# Where things are


def place(
    boxes: Mapping[str, Box], pairs: Sequence[Pair]
) -> tuple[dict[str, Point], dict[Pair, list[Point] | None]]:
    """Return the corner of each box, and what each edge passes: None if it leads back."""
    after: dict[str, list[str]] = {key: [] for key in boxes}
    for source, target in dict.fromkeys(pairs):
        after[source].append(target)
    order, back = _sorted(after)
    layer = _longest_paths(order, after, back)
    bends = {pair: _bends(pair, layer) for pair in pairs if pair not in back}
    layers = _ordered(layer, after, bends)
    spots = _spots(layers, boxes)
    ways: dict[Pair, list[Point] | None] = dict.fromkeys(back)
    ways |= {pair: [spots[bend] for bend in passed] for pair, passed in bends.items()}
    return {key: spots[key] for key in boxes}, ways


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


def _longest_paths(
    order: Sequence[str], after: Mapping[str, Sequence[str]], back: set[Pair]
) -> dict[str, int]:
    layer = dict.fromkeys(order, 0)
    for source in order:
        for target in after[source]:
            if (source, target) not in back:
                layer[target] = max(layer[target], layer[source] + 1)
    return layer


def _bends(pair: Pair, layer: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Return the places that an edge needs in the layers that it passes."""
    first, last = layer[pair[0]] + 1, layer[pair[1]]
    return [(*pair, between) for between in range(first, last)] if last - first < MAX_SPAN else []


def _ordered(
    layer: Mapping[str, int],
    after: Mapping[str, Sequence[str]],
    bends: Mapping[Pair, Sequence[tuple[str, str, int]]],
) -> list[list[Hashable]]:
    """Return what stands in each layer, from the top down, so that few edges cross."""
    layers: list[list[Hashable]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for key in after:
        layers[layer[key]].append(key)
    for bend in (bend for passed in bends.values() for bend in passed):
        layers[bend[2]].append(bend)
    left, right = _neighbours(bends)
    for sweep in range(SWEEPS):
        rows, neighbours = (layers, left) if sweep % 2 == 0 else (layers[::-1], right)
        for before, row in pairwise(rows):
            _sort_row(row, before, neighbours)
    return layers


def _neighbours(
    bends: Mapping[Pair, Sequence[tuple[str, str, int]]],
) -> tuple[dict[Hashable, list[Hashable]], dict[Hashable, list[Hashable]]]:
    """Return what is joined with each node and each place of an edge, to its left and right."""
    left: dict[Hashable, list[Hashable]] = {}
    right: dict[Hashable, list[Hashable]] = {}
    for pair, passed in bends.items():
        for one, other in pairwise([pair[0], *passed, pair[1]]):
            right.setdefault(one, []).append(other)
            left.setdefault(other, []).append(one)
    return left, right


def _sort_row(
    row: list[Hashable],
    before: Sequence[Hashable],
    neighbours: Mapping[Hashable, Sequence[Hashable]],
) -> None:
    at = {key: index for index, key in enumerate(before)}
    now = {key: index for index, key in enumerate(row)}

    def mean(key: Hashable) -> float:
        places = [at[other] for other in neighbours.get(key, ()) if other in at]
        return sum(places) / len(places) if places else now[key]

    row.sort(key=mean)


def _spots(layers: Sequence[Sequence[Hashable]], boxes: Mapping[str, Box]) -> dict[Hashable, Point]:
    def height(key: Hashable) -> int:
        return (boxes[key].height if isinstance(key, str) else ROW) + GAP_Y

    highest = max((sum(map(height, row)) for row in layers), default=0)
    spots: dict[Hashable, Point] = {}
    for number, row in enumerate(layers):
        y = MARGIN + (highest - sum(map(height, row))) // 2
        for key in row:
            spots[key] = Point(INDENT + number * (WIDTH + GAP_X), y)
            y += height(key)
    return spots


# What is drawn


def _has_ends(line: Line, boxes: Mapping[str, Box]) -> bool:
    source, target = boxes.get(line.source), boxes.get(line.target)
    return (
        source is not None
        and target is not None
        and any(mark.name == line.out for mark in source.outputs)
        and any(mark.name == line.into for mark in target.inputs)
    )


def _path(
    line: Line,
    boxes: Mapping[str, Box],
    corners: Mapping[str, Point],
    ways: Mapping[Pair, Sequence[Point] | None],
    under: Mapping[Pair, Point],
) -> str:
    way = ways[line.source, line.target]
    start = _end(corners[line.source], boxes[line.source].outputs, line.out, WIDTH)
    end = _end(corners[line.target], boxes[line.target].inputs, line.into, 0)
    if way is None:
        out, level = under[line.source, line.target]
        bend = f"H{start.x + out}V{level}H{end.x - out}V{end.y}H{end.x}"
        return f'<path class="hipq-back" d="M{start.x} {start.y}{bend}"/>'
    parts, at = [f"M{start.x} {start.y}"], start
    for spot in way:
        level = spot.y + ROW // 2
        parts += [_curve(at, Point(spot.x, level)), f"H{spot.x + WIDTH}"]
        at = Point(spot.x + WIDTH, level)
    return f'<path d="{"".join(parts)}{_curve(at, end)}"/>'


def _curve(start: Point, end: Point) -> str:
    middle = (start.x + end.x) // 2
    return f"C{middle} {start.y} {middle} {end.y} {end.x} {end.y}"


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
            f"{_cut(mark.name, 9)}{count if mark.unread else ''}</text>"
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
