"""OWN_TABLE and TABLE_NAMING_STRATEGY: what they mean, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from hipq_django.conf import rules
from hipq_django.conf.instances import get_instance
from hipq_django.exceptions import ConfigurationError
from tests.databases import named_databases

DATABASES = {
    "jobs": {"ENGINE": "django.db.backends.postgresql", "NAME": "never_connected_to"},
    "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
not_a_function = 5


@pytest.fixture(autouse=True)
def databases() -> Iterator[None]:
    with named_databases(DATABASES):
        yield


def one_name(instance: str, queue: str) -> str:
    return "jobs"


def with_tables(*queues: str, database: str = "jobs", **options: Any) -> dict[str, Any]:
    own = {queue: {"OWN_TABLE": True} for queue in queues}
    return {"pay": {"DATABASE": database, "QUEUES": {"mail": {}, **own}, **options}}


def test_only_the_queues_that_say_so_have_tables(settings: Settings) -> None:
    settings.HIPQ = with_tables("bank", "cash")

    assert get_instance("pay").own_tables == {"bank", "cash"}


def test_without_own_tables_nothing_is_asked_of_the_strategy(settings: Settings) -> None:
    settings.HIPQ = with_tables(TABLE_NAMING_STRATEGY="no.such")

    assert [*rules.problems(), *rules.table_problems()] == []


@pytest.mark.parametrize(
    ("check_id", "setting", "message", "hint"),
    [
        (
            "E061",
            with_tables("bank", database="lite"),
            "HIPQ['pay']: queue 'bank' has OWN_TABLE, but DATABASES['lite'] is sqlite.",
            "Only PostgreSQL has tables of queues.",
        ),
        (
            "E062",
            with_tables(*map("queue_{}".format, range(9))),
            "HIPQ['pay'] has 9 queues with OWN_TABLE.",
            "At most 8: each makes every claim slower.",
        ),
    ],
)
def test_tables_that_cannot_be_stop_all_use_of_the_setting(
    settings: Settings, check_id: str, setting: dict[str, Any], message: str, hint: str
) -> None:
    settings.HIPQ = setting

    [found] = rules.problems()

    assert (found.id, found.msg, found.hint) == (f"hipq.{check_id}", message, hint)
    with pytest.raises(ConfigurationError):
        get_instance()


STRATEGY = "HIPQ['pay']['TABLE_NAMING_STRATEGY'] "
DEFAULT = "'hipq_django.naming.instance_and_queue'"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (with_tables("bank"), ""),
        (
            with_tables("bank", TABLE_NAMING_STRATEGY="no.such"),
            f"{STRATEGY}'no.such' cannot be imported.",
        ),
        (
            with_tables("bank", TABLE_NAMING_STRATEGY=f"{__name__}.not_a_function"),
            f"{STRATEGY}'{__name__}.not_a_function' cannot be imported.",
        ),
        (
            with_tables("b" * 50),
            f"{STRATEGY}{DEFAULT} gave 'pay_{'b' * 50}' for queue '{'b' * 50}'.",
        ),
        (
            with_tables("bank", "cash", TABLE_NAMING_STRATEGY=f"{__name__}.one_name"),
            f"{STRATEGY}'{__name__}.one_name' gave 'jobs' for queue 'cash'.",
        ),
    ],
)
def test_a_strategy_without_a_name_for_each_queue_is_e060(
    settings: Settings, setting: dict[str, Any], message: str
) -> None:
    settings.HIPQ = setting

    assert [*rules.problems()] == []
    found = [(problem.id, problem.msg) for problem in rules.table_problems()]
    assert found == ([("hipq.E060", message)] if message else [])
