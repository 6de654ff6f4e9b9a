"""Two databases of one server that are the shards of an instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connections
from pytest_django import Settings

from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.maintenance import growing
from hipq_django.sharding.map import forget

ALIASES = ["default", "other"]
Configure = Callable[..., None]


@pytest.fixture
def configure(settings: Settings) -> Configure:
    """Give the default instance options, beside those that it has."""

    def configure_(**options: Any) -> None:
        settings.HIPQ = {"default": {**settings.HIPQ["default"], **options}}

    return configure_


@pytest.fixture
def shards(sharded: InstanceSettings) -> None:
    """Two shards; `tenant-1` and `A` lead to the second, `tenant-7` and `a` to the first."""
    growing.add(sharded)
    forget()


@pytest.fixture
def sharded(transactional_db: None, settings: Settings) -> Iterator[InstanceSettings]:
    """The default instance with both databases in SHARDS, which are not added yet."""
    settings.HIPQ = {"default": {"SHARDS": ALIASES}}
    forget()
    yield get_instance()
    forget()
    for alias in ALIASES:
        let_ids_go_by_one(alias)


def let_ids_go_by_one(using: str) -> None:
    """Let the ids of a database be as tests without shards find them."""
    with connections[using].cursor() as cursor:
        for model in apps.get_app_config("hipq").get_models():
            cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [model._meta.db_table])
            cursor.execute(f"ALTER SEQUENCE {cursor.fetchone()[0]} INCREMENT BY 1")
