"""Which engine an alias has: the one question on which all differences of the engines rest."""

from __future__ import annotations

from django.db import connections

from hipq_django.conf.instances import get_instances


def engine_kind(using: str) -> str:
    """Return "orm" where the setting ENGINE says so, otherwise the vendor of the database.

    With "orm" the server may be any that speaks PostgreSQL's protocol: it is sent no `xmin`, no
    COPY, no NOTIFY or LISTEN and no call of a function of ours.
    """
    is_orm = any(one.engine == "orm" and using in one.shards for one in get_instances())
    return "orm" if is_orm else connections[using].vendor
