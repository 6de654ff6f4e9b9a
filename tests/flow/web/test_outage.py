"""While the database of an instance is away, whoever asks is told to come again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.urls import include, path
from pytest_django import DjangoDbBlocker, Settings

AWAY = "away"
SOMEBODY = SimpleNamespace(is_authenticated=True, is_active=True, has_perm=lambda permission: True)


@pytest.fixture(autouse=True)
def _database_away(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[None]:
    """An instance whose database is in a folder that is not there."""
    file = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "gone" / "db")}
    away = {**django_settings.DATABASES["default"], **file, "OPTIONS": {}}
    monkeypatch.setitem(django_settings.DATABASES, AWAY, away)
    settings.HIPQ = {AWAY: {"DATABASE": AWAY, "FLOW": {"API_USER": lambda request: SOMEBODY}}}

    class Urls:
        urlpatterns = [path("away/", include("hipq_django.flow.urls"), {"instance": AWAY})]

    settings.ROOT_URLCONF = Urls
    with django_db_blocker.unblock():
        yield


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_who_asks_is_told_to_come_again(method: str) -> None:
    response = Client().generic(method, "/away/nodes/1")

    assert (response.status_code, response["Retry-After"]) == (503, "30")
    assert response.json() == {
        "error": "the database failed, and it is unknown whether anything was stored; try again."
    }


def test_an_instance_that_is_not_set_up_is_the_fault_of_this_side(settings: Settings) -> None:
    settings.HIPQ = {}

    assert Client().get("/away/").status_code == 503
