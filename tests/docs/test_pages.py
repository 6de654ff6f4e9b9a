"""The code of each page, as written, in a project made by `startproject`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from hipq_django.database.requirements import SQLITE_OPTIONS
from tests.conftest import ROOT
from tests.docs.documents import README, REFERENCE, Document
from tests.docs.project import FreshProject

DOCS = ROOT / "docs"
APPS = '\nINSTALLED_APPS += ["hipq_django", "shop"]\n'
SQLITE = f"""
if "sqlite" in DATABASES["default"]["ENGINE"]:
    DATABASES["default"]["OPTIONS"] = {SQLITE_OPTIONS!r}
"""


class Page(NamedTuple):
    """A page, and what it takes for granted."""

    document: Document
    settings: str = ""
    needs: tuple[str, ...] = ()


PAGES = {
    "README": Page(README),
    "consumers": Page(Document(DOCS / "consumers.md")),
    "reference": Page(REFERENCE),
    "webhooks": Page(Document(DOCS / "webhooks.md")),
    **{page.stem: Page(Document(page), APPS) for page in sorted((DOCS / "how-to").glob("*.md"))},
}
PAGES["arguments-with-types"] = PAGES["arguments-with-types"]._replace(needs=("msgspec",))


@pytest.mark.processes
@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_works(fresh_project: FreshProject, name: str) -> None:
    page, settings, needs = PAGES[name]
    for package in needs:
        pytest.importorskip(package)
    code = [block for block in page.blocks() if block.language == "python"]
    fresh_project.create("shop")
    fresh_project.write(code, settings + SQLITE)
    if any(block.file.endswith("models.py") for block in code):
        fresh_project.manage("makemigrations", "shop")

    assert "no issues" in fresh_project.manage("check")
    if in_classes := page.text.count("    def test_"):
        assert f"Ran {in_classes} test" in fresh_project.manage("test", "shop")
    if for_pytest := page.text.count("\ndef test_"):
        output = fresh_project.run("-m", "pytest", "-p", "no:cacheprovider", "--ds=mysite.settings")
        assert f"{in_classes + for_pytest} passed" in output


PAID = """
import json
from unittest import mock

from django.test import TestCase
from hipq_django.testing import assert_finished, run_due_jobs

from shop.checkout import pay


class BankTest(TestCase):
    def test_a_bank_that_answers_later_is_paid(self):
        with mock.patch("shop.jobs.urlopen") as bank:
            job = pay(42, "9.90")
            run_due_jobs()
        [request] = bank.call_args.args
        payment = json.loads(request.data)
        self.assertEqual((payment["order"], payment["amount"]), ("order-42", "9.90"))
        answer = {"response": {"receipt": "R-1"}}
        self.client.post(payment["callback"], answer, "application/json")
        run_due_jobs()
        assert_finished(job, result={"receipt": "R-1"})
"""


@pytest.mark.processes
def test_the_code_of_the_readme_pays_an_order(fresh_project: FreshProject) -> None:
    fresh_project.create("shop")
    fresh_project.write([block for block in README.blocks() if block.language == "python"])
    (fresh_project.folder / "shop" / "test_bank.py").write_text(PAID)

    assert "Ran 1 test" in fresh_project.manage("test", "shop")


def test_the_readme_is_short_and_comes_to_code_at_once() -> None:
    before_code = README.text.partition("```")[0]

    assert len(README.text.split()) <= 800
    assert len(before_code.split()) <= 60


def test_every_make_target_that_the_readme_names_is_there() -> None:
    targets = re.findall(r"^([a-z-]+):", Path(ROOT / "Makefile").read_text(), re.MULTILINE)

    assert set(re.findall(r"`make ([a-z-]+)`", README.text)) <= set(targets)
