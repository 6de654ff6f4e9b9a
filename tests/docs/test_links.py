"""What all documents have in common: links that lead somewhere, names that exist, whole tables."""

from __future__ import annotations

import re

import pytest

import hipq_django as hipq
from tests.docs.documents import INDEX, README, REFERENCE, Document, all_documents, codes_of

DOCUMENTS = all_documents()
PERMISSIONS = {code for row in REFERENCE.headed("Permission") for code in codes_of(row[0])}


def by_name(document: Document) -> str:
    return document.path.name


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_every_relative_link_leads_to_a_file_and_a_heading(document: Document) -> None:
    for link in document.links():
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.path.parent / name).resolve() if name else document.path
        assert target.exists(), f"{document.path.name}: {link} leads to no file"
        if anchor:
            assert anchor in Document(target).anchors(), f"{link} leads to no heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_every_name_of_the_package_exists(document: Document) -> None:
    named = set(re.findall(r"\bhipq\.([A-Za-z]\w*)", document.text))
    others = {name.removeprefix("hipq.") for name in PERMISSIONS}
    checks = {name for name in named if re.fullmatch(r"[EWI]\d{3}", name)}

    assert named - others - checks <= set(hipq.__all__)


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_what_a_document_declares_is_in_a_module_that_workers_import(document: Document) -> None:
    """In others it would be declared where something imports them, and its jobs wait for ever."""
    imported = {"hipq": "jobs.py", "flow": "flows.py"}
    for block in document.blocks():
        for package in re.findall(r"^@(hipq|flow)\.", block.text, re.MULTILINE):
            assert not block.file or block.file.endswith(f"/{imported[package]}"), block.file


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_every_row_of_a_table_has_a_cell_for_each_head(document: Document) -> None:
    for table in document.tables():
        assert {len(row) for row in table.rows} == {len(table.head)}


def test_every_document_can_be_found_from_the_readme_and_the_index() -> None:
    documents = {d.path for d in DOCUMENTS if d.path.parent == INDEX.path.parent} - {INDEX.path}

    for start in (README, INDEX):
        linked = {(start.path.parent / link).resolve() for link in start.links()}
        assert documents <= linked
