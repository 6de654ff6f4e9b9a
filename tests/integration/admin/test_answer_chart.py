"""The chart above the inbox: answers by day and status."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from hipq_django.admin import answer_chart
from hipq_django.admin.answer_chart import HEIGHT, STEP, Counts, bars, chart
from hipq_django.database import clock
from hipq_django.models import Answer
from hipq_django.monitoring.counts import COUNT_LIMIT
from tests.admin_pages import html, list_url
from tests.factories import AnswerFactory, JobFactory

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

DAYS = [date(2025, 1, 5), date(2025, 1, 6)]


def add(number: int, status: str, days_ago: float = 0) -> None:
    then = clock.now("default") - timedelta(days=days_ago)
    job = None if status in Answer.JOBLESS else JobFactory.create(state="final")
    kind = "error" if status == "accepted" else "response"
    for _ in range(number):
        AnswerFactory.create(status=status, job=job, receive_time=then, kind=kind)


def drawn() -> dict[str, Any]:
    return chart("default", clock.now("default"))


def test_bars_of_a_day_stand_on_each_other_and_the_highest_day_fills_the_height() -> None:
    counts = Counts({(DAYS[0], "accepted"): 3, (DAYS[0], "late"): 1, (DAYS[1], "late"): 2})

    found = list(bars(counts, DAYS, ["accepted", "late"]))

    assert [(bar.text, bar.x, bar.y, bar.height) for bar in found] == [
        ("2025-01-05: 3 accepted", 0, HEIGHT / 4, HEIGHT * 3 / 4),
        ("2025-01-05: 1 late", 0, 0, HEIGHT / 4),
        ("2025-01-06: 2 late", STEP, HEIGHT / 2, HEIGHT / 2),
    ]


def test_it_counts_the_last_14_days_by_status(frozen_time: Any) -> None:
    add(3, "accepted")
    add(2, "unmatched")
    add(1, "early", days_ago=13)
    add(5, "late", days_ago=14)

    found = drawn()

    assert {status: number for status, _, number in found["statuses"]} == {
        "accepted": 3,
        "early": 1,
        "unmatched": 2,
    }
    assert [numbers for day, numbers in found["table"] if any(numbers)] == [[3, 0, 2], [0, 1, 0]]
    assert len(found["labels"]) == 14


def test_days_are_those_of_the_operators_time_zone(frozen_time: Any, settings: Settings) -> None:
    frozen_time.shift(timedelta(hours=11, minutes=30))  # 23:30 in UTC
    settings.TIME_ZONE = "Asia/Tokyo"
    add(1, "unmatched")

    assert [(day, numbers) for day, numbers in drawn()["table"] if any(numbers)] == [
        ("2025-01-07", [1])
    ]


def test_an_empty_inbox_has_no_chart(admin_client: Client) -> None:
    add(1, "late", days_ago=20)

    page = html(admin_client, list_url(Answer))

    assert "No answers in the last 14 days." in page
    assert "<rect" not in page


@pytest.mark.usefixtures("frozen_time")  # the day is the same all through the test
def test_the_page_draws_it_without_scripts_and_styles(admin_client: Client) -> None:
    add(2, "unmatched")

    page = html(admin_client, list_url(Answer))

    drawing = page.partition('class="hipq-chart"')[2].partition("</section>")[0]
    assert f"<title>{clock.now('default'):%Y-%m-%d}: 2 unmatched</title>" in drawing
    assert "hipq-is-unmatched" in drawing
    assert "style=" not in drawing
    assert "<script" not in drawing


def test_numbers_of_the_drawing_are_not_localized(admin_client: Client, settings: Settings) -> None:
    settings.LANGUAGE_CODE = "de"
    settings.USE_THOUSAND_SEPARATOR = True
    add(1, "unmatched")
    add(2, "unmatched", days_ago=1)

    page = html(admin_client, list_url(Answer))

    for attribute in ("x", "y", "width", "height"):
        for number in re.findall(rf'<rect [^>]*\b{attribute}="([^"]*)"', page):
            float(number)


def test_it_looks_at_the_newest_answers_only_and_says_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_chart, "COUNT_LIMIT", 3)
    add(2, "unmatched", days_ago=1)
    add(5, "accepted")

    with CaptureQueriesContext(connection) as captured:
        found = drawn()

    assert {status: number for status, _, number in found["statuses"]} == {
        "accepted": 3,
        "unmatched": 2,
    }
    assert found["limit"] == 3
    assert all("LIMIT 3" in query["sql"] for query in captured.captured_queries)
    assert "Only the newest 3 answers" in html(admin_client, list_url(Answer))


def test_it_does_not_say_so_where_older_answers_are_out_of_its_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_chart, "COUNT_LIMIT", 3)
    add(3, "unmatched", days_ago=20)
    add(1, "unmatched")

    assert drawn()["limit"] == 0


@pytest.mark.postgres
def test_it_reads_no_more_rows_where_there_are_many() -> None:
    add(1, "late")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO hipq_answer (instance, job_type, job_key, job_id, attempt, part, "
            "message_id, kind, payload, problem, status, receive_time) "
            "SELECT instance, job_type, job_key, job_id, attempt, part, "
            "message_id, kind, payload, problem, status, receive_time "
            "FROM hipq_answer, generate_series(1, 50000)"
        )
        cursor.execute("ANALYZE hipq_answer")
    with CaptureQueriesContext(connection) as captured:
        assert drawn()["limit"] == COUNT_LIMIT

    for query in captured.captured_queries:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {query['sql']}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
        assert "Index Scan Backward" in plan
        assert "Sort" not in plan
