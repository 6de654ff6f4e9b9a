"""What a package index shows: the README with absolute links, and the project's addresses.

Relative links lead nowhere on an index. A release is built with the address of the repository,
`HIPQ_REPOSITORY_URL=https://… python -m hatchling build`; without it, the words of such links stay
and their targets are dropped.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)]+)\)")
PLACES = {
    "Documentation": "docs/index.md",
    "Changelog": "CHANGELOG.md",
    "Security": "SECURITY.md",
}


class IndexPage(MetadataHookInterface):
    """Give the metadata its readme and its addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what `pyproject.toml` calls dynamic."""
        address = os.environ.get("HIPQ_REPOSITORY_URL", "").rstrip("/")
        readme = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(readme, address),
        }
        metadata["urls"] = addresses(address)


def addresses(repository: str) -> dict[str, str]:
    """Return the addresses that an index shows beside the page; none if there is no repository."""
    if not repository:
        return {}
    places = {name: f"{repository}/blob/main/{path}" for name, path in PLACES.items()}
    return {"Repository": repository, **places}


def with_absolute_links(text: str, repository: str) -> str:
    """Return a page of Markdown whose links lead into the repository, or nowhere without one."""
    replacement = rf"[\1]({repository}/blob/main/\2)" if repository else r"\1"
    return RELATIVE_LINK.sub(replacement, text)
