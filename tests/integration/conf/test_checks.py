"""`manage.py check`: every id, with its hint."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from enum import Enum
from io import StringIO
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import CommandError, SystemCheckError
from django.db import connections
from django.db.models import Model
from django.test.utils import isolate_apps
from django.urls import path
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import problems
from hipq_django.database.requirements import SQLITE_OPTIONS
from hipq_django.engines import engine_for
from hipq_django.engines.base import Engine
from hipq_django.engines.sql import SqlEngine
from hipq_django.exceptions import ConfigurationError
from hipq_django.job_types import registry
from hipq_django.processes.start_up import check_pool
from hipq_django.tasks_backend import configured
from tests.declaring import Declare
from tests.integration.webhooks import FORMAT
from tests.testapp.tasks import add as send

# Django's own checks of models ask every database what it can do.
pytestmark = pytest.mark.django_db(databases=["default", "other"])


class Level(Enum):
    """Stands for psycopg.IsolationLevel, which SQLite's users do not have."""

    READ_COMMITTED = 2
    SERIALIZABLE = 4


def found() -> list[str]:
    return [f"{message.id}" for message in complaints()]


def complaints() -> list[CheckMessage]:
    return [message for message in run_checks() if str(message.id).startswith("hipq.")]


@pytest.fixture(autouse=True)
def only_default(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """No other instance, and nothing that other tests declare for one."""
    settings.HIPQ = {}
    declared = {key: each for key, each in registry._declared.items() if key[0] == "default"}
    monkeypatch.setattr(registry, "_declared", declared)


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> dict[str, Any]:
    """The OPTIONS of the default database, which the test may change."""
    database = settings.DATABASES["default"]
    monkeypatch.setitem(database, "OPTIONS", dict(database.get("OPTIONS", {})))
    changed: dict[str, Any] = database["OPTIONS"]
    return changed


def vendor() -> str:
    return connections["default"].vendor


def of_default(**options: Any) -> dict[str, Any]:
    return {"default": options}


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ({}, []),
        ({"shop": {}}, []),
        (of_default(QUEUES={"bank": {"THROTTLERS": 5}}), ["hipq.E012"]),  # nothing is imported
        (of_default(QUEUES={"bank": {"THROTTLERS": ["no.such.limit"]}}), ["hipq.E014"]),
        (of_default(SOURCES={"a": {"SOURCE": "no.such", "MAP": "no.such"}}), ["hipq.E024"]),
        (of_default(ARGUMENTS="no.such"), ["hipq.E035"]),
    ],
)
def test_the_setting(settings: Settings, setting: dict[str, Any], wanted: list[str]) -> None:
    settings.HIPQ = setting

    assert found() == wanted


@pytest.mark.parametrize(
    ("queues", "used", "is_told"),
    [
        (["bnak"], ["bank"], True),
        (["bank", "bnak"], ["bank"], False),  # it has its limit; the other is used by enqueue
        (["mail"], ["bank"], False),
    ],
)
def test_a_queue_whose_name_is_misspelt_is_told(
    settings: Settings, declare: Declare, queues: list[str], used: list[str], is_told: bool
) -> None:
    settings.HIPQ = {"default": {"QUEUES": {name: {"THROTTLE_LIMIT": 10} for name in queues}}}
    for number, name in enumerate(used):
        declare(f"charge_{number}", queue=name)(lambda job: None)

    assert found() == (["hipq.W005"] if is_told else [])


@pytest.mark.parametrize(
    ("field", "is_told"),
    [
        ("acount", True),
        ("PIN", False),  # case is ignored
        ("iban", False),
    ],
)
def test_a_sensitive_field_that_is_a_misspelt_argument_is_told(
    declare: Declare, field: str, is_told: bool
) -> None:
    @declare.task("pay", sensitive=[field])
    def pay(pin: int, account: str, **more: str) -> None: ...

    assert found() == (["hipq.W008"] if is_told else [])
    assert all(f"field {field!r}, which is none of its" in m.msg for m in complaints())


class Urls:
    urlpatterns = (
        path("hooks/bank/", hipq.WebhookView.as_view(**{**FORMAT, "job_type": "charge"})),
    )


def test_wrong_settings_fail_the_check_command_with_their_ids_and_hints(
    settings: Settings,
) -> None:
    """Nothing that is imported before, such as URLs and tasks, raises for them."""
    settings.HIPQ = {"default": {"QUEUE": {}}}
    settings.TASKS = {"default": {"BACKEND": configured.BACKEND, "QUEUES": "mail"}}
    settings.ROOT_URLCONF = Urls
    send.using(queue_name="mail")

    with pytest.raises(SystemCheckError) as caught:
        call_command("check", stderr=StringIO())

    assert "(hipq.E003)" in str(caught.value)
    assert "(hipq.E031)" in str(caught.value)
    assert "HINT: Correct or remove it." in str(caught.value)


@pytest.mark.conformance
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("level", "is_told"),
    [(Level.SERIALIZABLE, True), (4, True), (None, False), (Level.READ_COMMITTED, False)],
)
def test_an_isolation_level_that_makes_limits_inexact_is_e015(
    options: dict[str, Any], level: Any, is_told: bool
) -> None:
    options["isolation_level"] = level

    assert found() == (["hipq.E015"] if is_told else [])


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, [*SQLITE_OPTIONS]),
        ({**SQLITE_OPTIONS, "transaction_mode": "DEFERRED"}, ["transaction_mode"]),
        ({**SQLITE_OPTIONS, "timeout": 60}, []),
    ],
)
def test_sqlite_without_the_recipe_is_w001_with_the_lines_that_it_lacks(
    options: dict[str, Any], given: dict[str, Any], lines: list[str]
) -> None:
    options.clear()
    options.update(given)

    assert found() == (["hipq.W001"] if lines else [])
    for warning in complaints():
        shown = ast.literal_eval("{" + warning.msg.partition("\n")[2] + "}")
        assert shown == {name: SQLITE_OPTIONS[name] for name in lines}


@pytest.mark.parametrize(
    ("entry", "wanted", "text"),
    [
        ({}, [], ""),
        ({"OPTIONS": {"INSTANCE": "default"}}, [], ""),
        ({"OPTIONS": ["INSTANCE"]}, ["hipq.E030"], "is not a dictionary"),
        ({"OPTIONS": {"INSTANSE": "default"}}, ["hipq.E030"], "did you mean 'INSTANCE'"),
        (
            {"OPTIONS": {"INSTANCE": "defualt"}},
            ["hipq.E030"],
            "no instance 'defualt', did",
        ),
        ({"QUEUES": ["default", "My Mail"]}, ["hipq.E031"], "queue 'My Mail'"),
    ],
    ids=str,
)
def test_the_setting_tasks(
    settings: Settings, entry: dict[str, Any], wanted: list[str], text: str
) -> None:
    backend = "hipq_django.tasks_backend.HipqBackend"
    settings.TASKS = {"default": {"BACKEND": backend, **entry}}

    assert found() == wanted
    assert all(text in str(message.msg) for message in complaints())


# What the rest of the project's settings must be


def test_a_project_without_time_zones_is_e025_and_refused(settings: Settings) -> None:
    settings.USE_TZ, settings.HIPQ = False, {}

    assert found() == ["hipq.E025"]
    with pytest.raises(ConfigurationError, match="USE_TZ is False"):
        hipq.enqueue("ask")


def test_a_database_that_does_not_commit_is_e026_and_refused(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setitem(settings.DATABASES["other"], "AUTOCOMMIT", False)
    settings.HIPQ = {"default": {}}
    assert found() == []
    settings.HIPQ = {"other": {"DATABASE": "other"}}

    assert found() == ["hipq.E026"]
    with pytest.raises(ConfigurationError, match="nothing would ever be committed"):
        hipq.enqueue("ask", instance="other")


OF_TWO = (
    "HIPQ['default'] and HIPQ['shop'] are on database 'default' with different ENGINE. "
    "Give both the same."
)


@pytest.mark.parametrize(
    ("setting", "wanted", "said"),
    [
        (of_default(ENGINE="sql"), "E045", "HIPQ['default']['ENGINE'] is 'sql'. Give 'auto' or "),
        ({"default": {"ENGINE": "auto"}, "shop": {"ENGINE": "orm"}}, "E040", OF_TWO),
        ({"shop": {"ENGINE": "orm"}}, "E040", OF_TWO),  # the other one is there in any case
        (
            of_default(DATABASE="other"),
            "E041",
            "DATABASES['other'] is mysql, on which hipq_django does not run. Use PostgreSQL or ",
        ),
    ],
)
def test_what_no_engine_is_for_is_refused_before_anything_connects(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    setting: dict[str, Any],
    wanted: str,
    said: str,
) -> None:
    monkeypatch.setattr(connections["other"], "vendor", "mysql")
    settings.HIPQ, refused = setting, re.escape(said)

    assert found() == [f"hipq.{wanted}"]
    with pytest.raises(SystemCheckError, match=rf"hipq\.{wanted}"):
        call_command("migrate", stderr=StringIO(), skip_checks=False)
    for alias in ("default", "other"):
        monkeypatch.setattr(connections[alias], "cursor", pytest.fail)
    assert any(problems())
    with pytest.raises(ConfigurationError, match=refused):
        hipq.enqueue("ask")
    for command in (["hipq_worker"], ["hipq_consume", "post"]):
        with pytest.raises(CommandError, match=refused):
            call_command(*command)


@pytest.mark.parametrize(
    "setting",
    [
        {"default": {"ENGINE": "orm"}, "shop": {"ENGINE": "orm"}},
        {"default": {"ENGINE": "orm"}, "shop": {"DATABASE": "other"}},
    ],
)
def test_each_database_has_its_engine(settings: Settings, setting: dict[str, Any]) -> None:
    settings.HIPQ = setting

    assert found() == []
    assert type(engine_for("default")) is Engine
    assert isinstance(engine_for("other"), SqlEngine)


class ToOther:
    """A router that sends all models to the other database."""

    def db_for_write(self, model: Any, **_: Any) -> str:
        return "other"


@pytest.mark.parametrize(
    ("database", "routers", "is_told"),
    [
        ("default", [], False),
        ("other", [], True),
        ("default", [ToOther()], True),
        ("other", [ToOther()], False),
    ],
)
def test_jobs_in_another_database_than_the_projects_models_are_w003(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    database: str,
    routers: list[Any],
    is_told: bool,
) -> None:
    settings.HIPQ = {"default": {"DATABASE": database}}
    settings.DATABASE_ROUTERS = routers
    assert found() == []  # without models

    with isolate_apps("tests.testapp") as own:
        type("Order", (Model,), {"__module__": "tests.testapp.models"})
    monkeypatch.setattr("hipq_django.database.requirements.apps", own)

    assert found() == (["hipq.W003"] if is_told else [])


@pytest.fixture
def stored_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    """Store the times of the default database in a zone, as its `TIME_ZONE` says."""
    driver = connections["default"]

    def forget() -> None:
        for name in ("timezone", "timezone_name"):
            driver.__dict__.pop(name, None)

    def store_in(zone: str | None) -> None:
        monkeypatch.setitem(driver.settings_dict, "TIME_ZONE", zone)
        forget()

    yield store_in
    monkeypatch.undo()
    forget()


@pytest.mark.embedded
def test_sqlite_that_stores_local_times_is_e039_and_keeps_a_worker_from_starting(
    stored_zone: Callable[[str | None], None],
) -> None:
    """An hour of them comes twice: jobs would time out early in it."""
    if vendor() != "sqlite":
        pytest.skip("is about SQLite")
    stored_zone("UTC")
    assert found() == []
    stored_zone("Europe/Berlin")

    [error] = complaints()

    assert error.id == "hipq.E039"
    assert "DATABASES['default']['TIME_ZONE'] is 'Europe/Berlin'" in error.msg
    with pytest.raises(CommandError, match="'Europe/Berlin', so times are stored as local times"):
        call_command("hipq_worker", "--until-idle")


@pytest.mark.conformance
@pytest.mark.postgres
def test_psycopg2_is_e027_and_keeps_a_worker_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    # The driver is not installed beside psycopg 3, which Django would take.
    monkeypatch.setattr(type(connections["default"]), "Database", ModuleType("psycopg2"))

    assert set(found()) == {"hipq.E027"}
    with pytest.raises(CommandError, match="psycopg2, which hipq_django does not support: install"):
        call_command("hipq_worker")


@pytest.mark.parametrize(
    ("pool", "threads", "notify", "needed"),
    [
        (True, 8, True, 13),
        (None, 8, True, None),
        ({"min_size": 2}, 1, True, 6),
        ({"max_size": 12}, 8, True, 13),
        ({"max_size": 13}, 8, True, None),
        ({"max_size": 11}, 8, False, None),
    ],
)
def test_a_worker_says_how_large_its_connection_pool_must_be(
    options: dict[str, Any],
    settings: Settings,
    pool: Any,
    threads: int,
    notify: bool,
    needed: int | None,
) -> None:
    settings.HIPQ = of_default(NOTIFY=notify)
    options["pool"] = pool

    if needed is None:
        check_pool(get_instance(), threads)
        return
    with pytest.raises(CommandError, match=f'"max_size": {needed}'):
        call_command("hipq_worker", threads=threads)
