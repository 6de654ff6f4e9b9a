"""What the migration gives the tables of flows that Django's models do not say."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from hipq_django import flow
from hipq_django.flow.models import Alias, Node

pytestmark = [pytest.mark.conformance, pytest.mark.django_db, pytest.mark.postgres]


def selected(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def options_of(table: str) -> set[str]:
    ((options,),) = selected("SELECT reloptions FROM pg_class WHERE relname = %s", table)
    return set(options or ())


def test_the_rows_of_nodes_have_room_for_their_next_versions() -> None:
    assert options_of("hipq_flow_node") == {"fillfactor=70"}


def test_only_what_is_changed_seldom_has_a_constraint_of_a_foreign_key() -> None:
    """Each such constraint locks a row of the other table for each row that is inserted."""
    rows = selected("""
        SELECT conrelid::regclass::text, attname FROM pg_constraint
        JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
        WHERE contype = 'f' AND starts_with(conrelid::regclass::text, 'hipq_flow_')
          AND starts_with(confrelid::regclass::text, 'hipq_flow_')""")

    assert set(rows) == {
        ("hipq_flow_alias", "node_id"),
        ("hipq_flow_channel", "port_id"),
        ("hipq_flow_node", "parent_id"),
    }


@pytest.mark.parametrize("name", ["4711", "_x"])
def test_the_database_refuses_an_alias_that_begins_with_no_letter(name: str) -> None:
    node = flow.start("t.sum", run=False)

    with pytest.raises(IntegrityError, match="begins_with_letter"), transaction.atomic():
        Alias.objects.create(name=name, node=Node.objects.get(pk=node.pk))
