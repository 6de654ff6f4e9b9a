"""What tests in a browser ask of a page."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import Page

# Set to a folder to look at the pages that the tests walk through.
SCREENSHOTS = os.environ.get("HIPQ_TEST_SCREENSHOTS")


def look(page: Page, name: str, *, full: bool = False) -> None:
    """Take a picture of the window, or of the `full` page, if a folder for it is set."""
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=full)


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )


def contrast_of(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG 2 computes it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    """Return how light a colour is."""
    parts = [int(part) / 255 for part in color.removeprefix("rgb(").rstrip(")").split(",")]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
