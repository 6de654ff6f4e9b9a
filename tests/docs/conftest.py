"""A fresh project for the code of a document, on the database that this run is about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.databases import make, on_server
from tests.docs.project import FreshProject
from tests.plugin import renamed

DATABASE = f"hipq_docs_{os.getpid()}"  # a name of its own in each process of pytest-xdist


@pytest.fixture
def fresh_project(tmp_path: Path) -> Iterator[FreshProject]:
    """An empty folder for a project: with SQLite as Django makes it, or with PostgreSQL."""
    folder = tmp_path / "fresh"
    folder.mkdir()
    with new_database() as url:
        yield FreshProject(folder, url)


@contextmanager
def new_database(name: str = DATABASE, template: str = "template1") -> Iterator[str]:
    """Make a database on the server of this run; yield its address, "" on SQLite."""
    url = os.environ["DATABASE_URL"]
    if not url.startswith("postgres"):
        yield ""
        return
    drop = f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"
    on_server(drop)
    make(name, template)
    yield renamed(url, name)
    on_server(drop)
