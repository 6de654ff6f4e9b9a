"""Small SVG charts that are readable in light and in dark. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 760
LABEL_WIDTH = 200
VALUE_WIDTH = 110
BAR_HEIGHT = 20
GAP = 8
TOP = 44
MARGIN = 16
PLOT_HEIGHT = 180
AXIS_WIDTH = 90

# The background is the chart's own, because a page's theme and the reader's may differ.
STYLE = """
  .back { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2328; font: 13px system-ui, sans-serif }
  .title { font-weight: 600; font-size: 14px }
  .quiet { fill: #59636e }
  .peer { fill: #9aa7b4 }
  .floor { fill: #d3dae1 }
  .ours { fill: #1a7f37 }
  .line { fill: none; stroke: #1a7f37; stroke-width: 2 }
  .grid { stroke: #d0d7de }
  .marked { fill: #fff1c2 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117; stroke: #3d444d }
    text { fill: #e6edf3 }
    .quiet { fill: #9198a1 }
    .peer { fill: #656e78 }
    .floor { fill: #3a424b }
    .ours { fill: #3fb950 }
    .line { stroke: #3fb950 }
    .grid { stroke: #3d444d }
    .marked { fill: #3d3210 }
  }
"""


@dataclass(frozen=True)
class Bar:
    """One bar; `kind` is "ours", "peer" or "floor", `text` is the value as it is shown."""

    label: str
    value: float
    text: str
    kind: str = "peer"


def bars(title: str, what: str, entries: Sequence[Bar]) -> str:
    """Return a chart of horizontal bars; `what` says what is drawn and which way is better."""
    height = TOP + len(entries) * (BAR_HEIGHT + GAP) + MARGIN
    longest = max((entry.value for entry in entries), default=0.0) or 1.0
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH - MARGIN
    parts = []
    for index, entry in enumerate(entries):
        y = TOP + index * (BAR_HEIGHT + GAP)
        width, middle = max(entry.value / longest * room, 1.0), y + BAR_HEIGHT * 0.72
        parts += [
            _text(LABEL_WIDTH - 8, middle, entry.label, anchor="end"),
            f'<rect class="{entry.kind}" x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" '
            f'height="{BAR_HEIGHT}" rx="2"/>',
            _text(LABEL_WIDTH + width + 6, middle, entry.text),
        ]
    return _svg(title, what, height, parts)


@dataclass(frozen=True)
class Line:
    """Values over time, each at its second; `unit` is that of the values."""

    title: str
    unit: str
    seconds: Sequence[float]
    values: Sequence[float]


def lines(title: str, what: str, plots: Sequence[Line], marked: tuple[float, float] | None) -> str:
    """Return plots over the same time, one below the other; the `marked` seconds are shaded."""
    end = max((plot.seconds[-1] for plot in plots if plot.seconds), default=0.0) or 1.0
    parts: list[str] = []
    for index, plot in enumerate(plots):
        parts += _plot(plot, TOP + index * (PLOT_HEIGHT + 3 * MARGIN), end, marked)
    height = TOP + len(plots) * (PLOT_HEIGHT + 3 * MARGIN)
    return _svg(title, what, height, parts)


def _plot(plot: Line, top: float, end: float, marked: tuple[float, float] | None) -> list[str]:
    bottom, right = top + PLOT_HEIGHT, WIDTH - MARGIN
    most = max(plot.values, default=0.0) * 1.1 or 1.0

    def across(second: float) -> float:
        return AXIS_WIDTH + second / end * (right - AXIS_WIDTH)

    parts = []
    if marked:
        width = across(marked[1]) - across(marked[0])
        parts.append(
            f'<rect class="marked" x="{across(marked[0]):.1f}" y="{top}" width="{width:.1f}" '
            f'height="{PLOT_HEIGHT}"/>'
        )
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * PLOT_HEIGHT
        parts.append(f'<line class="grid" x1="{AXIS_WIDTH}" x2="{right}" y1="{y}" y2="{y}"/>')
        text = f"{most * share:,.0f} {plot.unit}"
        parts.append(_text(AXIS_WIDTH - 6, y + 4, text, anchor="end", kind="quiet"))
    points = " ".join(
        f"{across(second):.1f},{bottom - value / most * PLOT_HEIGHT:.1f}"
        for second, value in zip(plot.seconds, plot.values, strict=True)
    )
    parts.append(f'<polyline class="line" points="{points}"/>')
    parts.append(_text(AXIS_WIDTH + 6, top + 14, plot.title))
    parts.append(_text(right, bottom + 16, f"{end / 60:.0f} min", anchor="end", kind="quiet"))
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'
    )


def _svg(title: str, what: str, height: float, parts: Sequence[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        _text(MARGIN, 26, title, kind="title"),
        _text(WIDTH - MARGIN, 26, what, anchor="end", kind="quiet"),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
