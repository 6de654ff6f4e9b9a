"""The how-to pages: their code, as written, in a project made by `startproject`."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tests.docs.documents import Document
from tests.docs.project import FreshProject

SET_UP = """
INSTALLED_APPS += ["hipq_django", "shop"]
"""
"""What the pages take for granted: the README says it."""

NEEDED = {"arguments-with-types.md": ["msgspec"]}
"""The packages that the code of a page imports, and that this project does not need itself."""

PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))


@pytest.mark.processes
@pytest.mark.parametrize("name", [page.name for page in PAGES])
def test_the_code_of_a_page_works(fresh_project: FreshProject, name: str) -> None:
    page = Document(ROOT / "docs" / "how-to" / name)
    for package in NEEDED.get(name, ()):
        pytest.importorskip(package)
    fresh_project.create("shop")
    code = [block for block in page.blocks() if block.language == "python"]
    fresh_project.write(code, settings=SET_UP)

    if any(block.file.endswith("models.py") for block in code):
        fresh_project.manage("makemigrations", "shop")

    output = fresh_project.manage("test", "shop")

    ran = re.search(r"Ran (\d+) tests?", output)
    assert ran is not None
    assert int(ran.group(1)) == page.text.count("    def test_") > 0
    assert "OK" in output
    for_pytest = page.text.count("\ndef test_")
    if for_pytest:
        output = fresh_project.run("-m", "pytest", "-p", "no:cacheprovider", "--ds=mysite.settings")
        assert f"{int(ran.group(1)) + for_pytest} passed" in output
