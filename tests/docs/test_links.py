"""What all documents have in common: links that lead somewhere, names that exist, whole tables."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import hipq_django as hipq
from tests.docs.documents import INDEX, README, REFERENCE, Document, all_documents, codes_of

pytestmark = pytest.mark.embedded  # no database is touched

DOCUMENTS = all_documents()
PERMISSIONS = {code for row in REFERENCE.headed("Permission") for code in codes_of(row[0])}


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    anchors = cache(lambda path: Document(path).anchors())
    broken = []
    for document in DOCUMENTS:
        for link in document.links():
            name, _, anchor = link.partition("#")
            target = (document.path.parent / name).resolve() if name else document.path
            leads = target.exists() and (not anchor or anchor in anchors(target))
            if not (leads or re.match(r"[a-z]+:", link)):
                broken.append(f"{document.path.name}: {link}")

    assert not broken


def test_every_name_of_the_package_exists() -> None:
    known = {*dir(hipq), *(name.removeprefix("hipq.") for name in PERMISSIONS)}
    unknown = [
        f"{document.path.name}: {name}"
        for document in DOCUMENTS
        for name in re.findall(r"\bhipq\.([A-Za-z]\w*)", document.text)
        if name not in known and not re.fullmatch(r"[EWI]\d{3}", name)
    ]

    assert not unknown


def test_what_a_document_declares_is_in_a_module_that_workers_import() -> None:
    """In others it would be declared where something imports them, and its jobs wait for ever."""
    imported = {"hipq": "jobs.py", "flow": "flows.py"}
    elsewhere = [
        f"{document.path.name}: {block.file}"
        for document in DOCUMENTS
        for block in document.blocks()
        for package in re.findall(r"^@(hipq|flow)\.", block.text, re.MULTILINE)
        if block.file and not block.file.endswith(f"/{imported[package]}")
    ]

    assert not elsewhere


RUN = {
    "README.md",
    "consumers.md",
    "production.md",
    "tutorial.md",
    "tutorial-flow.md",
    "webhooks.md",
}
"""The pages whose code the tests run, besides those of the reference and the how-to pages."""


def test_every_block_of_code_that_runs_names_its_file() -> None:
    """It is appended to that file; a block that names none would not be run."""
    pages = [d for d in DOCUMENTS if d.path.name in RUN or d.path.parent.name == "reference"]

    assert len(pages) > len(RUN)
    assert not [
        f"{page.path.name}: {block.text[:60]}"
        for page in pages
        for block in page.blocks()
        if block.language == "python" and not block.file
    ]


def test_every_row_of_a_table_has_a_cell_for_each_head() -> None:
    broken = [
        f"{document.path.name}: {row[0]}"
        for document in DOCUMENTS
        for table in document.tables()
        for row in table.rows
        if len(row) != len(table.head)
    ]

    assert not broken


def test_every_document_can_be_found_from_the_index_and_that_from_the_readme() -> None:
    documents = {d.path for d in DOCUMENTS if d.path.parent == INDEX.path.parent} - {INDEX.path}

    assert INDEX.path in _linked(README)
    assert documents <= _linked(INDEX)


def _linked(start: Document) -> set[Path]:
    return {(start.path.parent / link).resolve() for link in start.links()}
