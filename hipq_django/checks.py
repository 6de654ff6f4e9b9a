"""System checks, one for each rule of the HIPQ setting and of what it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connections
from django.urls import URLPattern, URLResolver, get_resolver

from hipq_django.conf import instances, rules
from hipq_django.database.requirements import has_psycopg
from hipq_django.exceptions import nearest_name
from hipq_django.job_types.registry import get_all_declared
from hipq_django.web.webhook_view import WebhookView

SQLITE_OPTIONS = ("init_command", "transaction_mode", "timeout")
"""What the recipe for SQLite sets, and libpq takes for a mistake."""


def register() -> None:
    """Register all checks with Django."""
    for check in (check_setting, check_databases, check_webhooks):
        checks.register(check)


def check_setting(**_: Any) -> list[checks.CheckMessage]:
    """E001 to E014, E016, E020 to E024, E030, E031, as `hipq_django.conf.rules` finds them.

    The code that the setting names is looked for where all else is right.
    """
    return [*rules.problems()] or [*rules.throttler_problems(), *rules.source_problems()]


def check_databases(**_: Any) -> Iterator[checks.CheckMessage]:
    """E015, E032, E033 of PostgreSQL and W001 of SQLite, for each database of an instance."""
    if any(rules.problems()):
        return
    for alias in sorted({instance.database for instance in instances.get_instances()}):
        options: dict[str, Any] = settings.DATABASES[alias].get("OPTIONS", {})
        vendor = connections[alias].vendor
        if vendor == "postgresql":
            yield from _check_postgresql(alias, options)
        elif vendor == "sqlite" and options.get("transaction_mode") != "IMMEDIATE":
            # It begins its transactions deferred.
            yield checks.Warning(
                f"DATABASES[{alias!r}] is SQLite without OPTIONS['transaction_mode'] = "
                "'IMMEDIATE'.",
                hint="Set it, or several processes may meet 'database is locked'.",
                id="hipq.W001",
            )


def _check_postgresql(alias: str, options: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    if not _is_read_committed(options):  # limits would not be exact
        yield checks.Error(
            f"DATABASES[{alias!r}]['OPTIONS']['isolation_level'] is set, but exact limits need "
            "PostgreSQL's default, read committed.",
            hint="Remove 'isolation_level', or give hipq an alias of its own without it.",
            id="hipq.E015",
        )
    if not has_psycopg(alias):  # psycopg2 can neither copy rows in nor wait for messages
        yield checks.Error(
            f"DATABASES[{alias!r}] is reached through psycopg2; hipq_django needs psycopg 3.",
            hint="Install psycopg 3: pip install 'psycopg[binary]'. Django prefers it.",
            id="hipq.E032",
        )
    left = [repr(name) for name in SQLITE_OPTIONS if name in options]
    if left:  # from before the project went from SQLite to PostgreSQL
        yield checks.Error(
            f"DATABASES[{alias!r}] is PostgreSQL, but has SQLite's OPTIONS {', '.join(left)}.",
            hint="Remove them; PostgreSQL needs no options.",
            id="hipq.E033",
        )


def check_webhooks(**_: Any) -> Iterator[checks.CheckMessage]:
    """W002: a webhook whose answers are for a job type that no code declares."""
    try:
        webhooks = list(_webhooks(get_resolver().url_patterns))
    except Exception:  # the project's code is imported here, and may raise anything; Django tells
        return
    for route, view, options in webhooks:
        job_type = options.get("job_type", view.job_type)  # may be a function of the message
        instance = options.get("instance", view.instance)
        known = {declared.name for declared in get_all_declared(instance)}
        if isinstance(job_type, str) and job_type not in known:
            yield checks.Warning(
                f"{view.__name__} at {route!r}: job type {job_type!r} is not declared"
                f"{nearest_name(job_type, known)}",
                hint="Correct the name, or declare the job type in the jobs module of an app.",
                id="hipq.W002",
            )


def _webhooks(
    patterns: Iterable[URLPattern | URLResolver], prefix: str = ""
) -> Iterator[tuple[str, type[WebhookView], dict[str, Any]]]:
    """Yield each webhook of the URLconf: its route, view and the options of that."""
    for entry in patterns:
        route = f"{prefix}{entry.pattern}"
        if isinstance(entry, URLResolver):
            yield from _webhooks(entry.url_patterns, route)
            continue
        view = getattr(entry.callback, "view_class", None)
        if isinstance(view, type) and issubclass(view, WebhookView):
            yield route, view, getattr(entry.callback, "view_initkwargs", {})


def _is_read_committed(options: dict[str, Any]) -> bool:
    level = options.get("isolation_level")
    return level is None or getattr(level, "name", str(level)) == "READ_COMMITTED"
