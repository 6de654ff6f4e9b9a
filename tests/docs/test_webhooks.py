"""The page about webhooks: its code, as written, in a project made by `startproject`."""

from __future__ import annotations

import pytest

from hipq_django.web import receiving
from tests.conftest import ROOT
from tests.docs.documents import Document
from tests.docs.project import FreshProject

WEBHOOKS = Document(ROOT / "docs" / "webhooks.md")


@pytest.mark.processes
def test_the_code_of_the_page_works(fresh_project: FreshProject) -> None:
    fresh_project.create("shop")
    fresh_project.write([block for block in WEBHOOKS.blocks() if block.language == "python"])

    output = fresh_project.manage("test", "shop")
    assert "Ran 6 tests" in output
    assert "OK" in output


def test_every_block_is_a_file_or_a_message() -> None:
    assert {block.language for block in WEBHOOKS.blocks()} == {"python", "json"}
    assert all(block.file for block in WEBHOOKS.blocks() if block.language == "python")


def test_the_wait_before_the_next_try_is_that_of_the_code() -> None:
    assert f"try again in {receiving.RETRY_AFTER_SECONDS} seconds" in WEBHOOKS.text
