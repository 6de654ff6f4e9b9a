"""The page about consumers: its code, as written, in a project made by `startproject`."""

from __future__ import annotations

import re
from dataclasses import fields

from hipq_django.answers import intake
from hipq_django.processes import outage
from hipq_django.sources import MessageSource, Received
from tests.conftest import ROOT
from tests.docs.documents import Document, codes_of

CONSUMERS = Document(ROOT / "docs" / "consumers.md")
MOST_LINES_OF_A_SOURCE = 20


def test_every_attribute_of_a_message_is_there() -> None:
    written = {
        code for row in CONSUMERS.headed("Attribute of a message") for code in codes_of(row[0])
    }

    assert written == {field.name for field in fields(Received)} - {"receipt"} | {"json()"}


def test_every_method_of_a_source_is_there() -> None:
    written = [codes_of(row[0])[0].partition("(")[0] for row in CONSUMERS.headed("Method")]

    assert written == ["receive", "acknowledge", "close"]
    assert all(callable(getattr(MessageSource, name)) for name in written)


def test_the_sizes_and_times_are_those_of_the_code() -> None:
    assert intake.MAX_KEPT_BYTES == 1024 * 1024
    assert "up to 1 MiB" in CONSUMERS.text
    assert (outage.FIRST_SECONDS, outage.LAST_SECONDS) == (0.1, 5)


def test_a_source_is_twenty_lines() -> None:
    [source] = [b.text for b in CONSUMERS.blocks() if b.file.endswith("sources.py")]
    own = source[source.index("class ") :]

    assert len(re.findall(r"\S.*", own)) <= MOST_LINES_OF_A_SOURCE
