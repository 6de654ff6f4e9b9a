"""What tests in a browser ask of a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page

WIDTHS = (420, 1400)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

# Set to a folder to look at the pages that the tests walk through.
SCREENSHOTS = os.environ.get("HIPQ_TEST_SCREENSHOTS")


def look(page: Page, name: str, *, full: bool = False) -> None:
    """Take a picture of the window, or of the `full` page, if a folder for it is set."""
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=full)


def hidden(page: Page, pages: dict[str, str], lists_fit: Sequence[int] = WIDTHS) -> dict[str, int]:
    """Open pages; return by how many pixels which are wider than a screen or than a phone."""
    found: dict[str, int] = {}
    for name, url in pages.items():
        page.goto(url)
        found |= hidden_now(page, name, lists_fit)
    return found


def hidden_now(page: Page, name: str, lists_fit: Sequence[int] = WIDTHS) -> dict[str, int]:
    """Return by how many pixels the page is wider than a screen or than a phone.

    At the widths of `lists_fit`, a list has to fit into what it is scrolled in, too.
    """
    found = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        look(page, f"{name}-{width}", full=True)
        inner = ", #result_list" if width in lists_fit else ""
        found[f"{name} at {width}"] = int(
            page.locator(f"html{inner}").evaluate_all(
                "es => Math.max(...es.map(e => e.scrollWidth - (e.parentElement || e).clientWidth))"
            )
        )
    return {where: pixels for where, pixels in found.items() if pixels > 0}


def contrast_of(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG 2 computes it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    """Return how light a colour is."""
    parts = [int(part) / 255 for part in color.removeprefix("rgb(").rstrip(")").split(",")]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
