"""While the database is away, whoever sends an answer is asked to come again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.test import Client
from pytest_django import DjangoDbBlocker, Settings

from hipq_django.answers.callback_urls import Token
from hipq_django.models import Job
from hipq_django.web.receiving import RETRY_AFTER_SECONDS
from tests.integration.webhooks import Partner, succeeded

AWAY = "away"


@pytest.fixture(autouse=True)
def _database_away(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[None]:
    """An instance whose database is in a folder that is not there, and no other database."""
    file = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "gone" / "db")}
    away = {**django_settings.DATABASES["default"], **file, "OPTIONS": {}}
    monkeypatch.setitem(django_settings.DATABASES, AWAY, away)
    settings.HIPQ = {AWAY: {"DATABASE": AWAY}}
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def partner(settings: Settings) -> Partner:
    partner = Partner(settings)
    partner.serve(instance=AWAY)
    return partner


def test_a_webhook_asks_its_sender_to_come_again(
    partner: Partner, caplog: pytest.LogCaptureFixture
) -> None:
    response = partner.send(succeeded(receipt="R-1"))

    assert (response.status_code, response["Retry-After"]) == (503, str(RETRY_AFTER_SECONDS))
    assert json.loads(response.content) == {
        "error": "the database failed, and it is unknown whether anything was stored; try again."
    }
    [line] = [record.getMessage() for record in caplog.records if record.name == "hipq_django"]
    assert line == (
        "event=request_put_off route=hooks/bank/ status=503 "
        'msg="the database failed: unable to open database file"'
    )


def test_a_callback_asks_its_sender_to_come_again() -> None:
    url = f"/hipq/callback/{Token(AWAY, 1, 1).sign()}/"

    response = Client().post(url, '{"response": 1}', content_type="application/json")

    assert (response.status_code, response["Retry-After"]) == (503, str(RETRY_AFTER_SECONDS))


@pytest.mark.parametrize("part", ["verify", "key", "outcome", "message_id"])
def test_an_outage_in_a_function_is_not_the_fault_of_the_message(
    partner: Partner, part: str
) -> None:
    partner.serve(instance=AWAY, **{part: lambda _: Job.objects.using(AWAY).exists()})

    assert partner.send(succeeded()).status_code == 503
