"""How the admin shows values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hipq_django.admin.display import (
    MAX_BLOCK_CHARS,
    block,
    read_head,
    span,
)

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (12_000, "3 h 20 min"),
        (86_400, "1 d"),
        (90_061, "1 d 1 h"),
    ],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(timedelta(seconds=seconds)) == text


BLOCK = '<pre class="hipq-block">{}</pre>'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), ("NONE", "-"), ("", "-"), ({}, "-"), ([], "-"),
        (0, BLOCK.format("0")), (False, BLOCK.format("false")),
        ({"a": "ü"}, BLOCK.replace("{}", "{\n  &quot;a&quot;: &quot;ü&quot;\n}")),
    ],
)  # fmt: skip
def test_a_value_is_a_block_and_nothing_a_dash(value: Any, text: str) -> None:
    assert block(value) == text


@pytest.mark.parametrize(
    "value", ["<script>alert(1)</script>", {"<script>": "</pre>"}, ["<img src=x onerror=y>"]]
)
def test_what_others_sent_is_escaped(value: Any) -> None:
    shown = block(value)

    assert "<script>" not in shown
    assert "<img" not in shown
    assert shown.count("</pre>") == 1


def test_a_long_value_is_folded_and_cut() -> None:
    shown = block("x" * (MAX_BLOCK_CHARS + 1), "Traceback:")

    assert shown.startswith("<details")
    assert "Traceback: 1 line, 20,001 characters" in shown
    assert "the first 20,000 of 20,001 characters" in shown


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_of_json_that_was_cut_anywhere_the_text_is_read(ensure_ascii: bool) -> None:
    text = '"\\n" ü\n\t🎉\\u00e4\\'
    written = json.dumps(text, ensure_ascii=ensure_ascii)

    read = [read_head(written[:length]) for length in range(1, len(written) + 1)]

    assert set(read) == {text[:length] for length in range(len(text) + 1)}
    assert read == sorted(read, key=len)
    assert read_head('{"code": "decl') == '{"code": "decl'
