"""How the admin shows values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from hipq_django.admin.display import (
    MAX_BLOCK_CHARS,
    age,
    block,
    plain,
    read_head,
    span,
    when,
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


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (NOON - timedelta(hours=3), "3 h ago"),
        (NOON + timedelta(minutes=5), "in 5 min"),
        (NOON, "0 s ago"),
    ],
)
def test_an_age_says_whether_it_is_past_or_to_come(moment: datetime, text: str) -> None:
    assert age(moment, NOON) == text


def test_a_moment_is_shown_with_zone_and_age() -> None:
    shown = when(NOON - timedelta(minutes=1), NOON)

    assert ">2025-01-06 11:59:00 UTC</time>" in shown
    assert ">1 min ago</span>" in shown


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Decimal("1.000"), "1"),
        (Decimal("0.500"), "0.5"),
        (100.0, "100"),
        (0, "0"),
        (1e6, "1000000"),
    ],
)
def test_a_number_has_no_empty_digits(number: Any, text: str) -> None:
    assert plain(number) == text


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


def test_a_value_of_many_lines_is_folded_and_whole() -> None:
    shown = block(list(range(100)))

    assert shown.startswith("<details")
    assert "102 lines" in shown
    assert "99\n]</pre>" in shown


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_of_json_that_was_cut_anywhere_the_text_is_read(ensure_ascii: bool) -> None:
    text = '"\\n" ü\n\t🎉\\u00e4\\'
    written = json.dumps(text, ensure_ascii=ensure_ascii)

    read = [read_head(written[:length]) for length in range(1, len(written) + 1)]

    assert set(read) == {text[:length] for length in range(len(text) + 1)}
    assert read == sorted(read, key=len)
    assert read_head('{"code": "decl') == '{"code": "decl'
