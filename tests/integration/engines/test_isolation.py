"""The isolation level under which limits are exact."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from hipq_django.database.requirements import check_isolation
from hipq_django.exceptions import ConfigurationError

pytestmark = [pytest.mark.conformance, pytest.mark.django_db(transaction=True)]


def set_level(level: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")


@pytest.fixture
def repeatable_read(transactional_db: None) -> Iterator[None]:
    """Transactions see the rows as they were at their first statement."""
    set_level("REPEATABLE READ")
    yield
    set_level("READ COMMITTED")


@pytest.mark.postgres
@pytest.mark.usefixtures("repeatable_read")
def test_any_other_level_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_isolation("default")

    said = str(caught.value)
    assert "'repeatable read': exact limits need 'read committed'" in said
    assert "OPTIONS, or default_transaction_isolation from the database or its role" in said
