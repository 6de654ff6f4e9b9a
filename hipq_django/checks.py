"""System checks, one for each rule of the HIPQ setting and of what it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.core import checks
from django.db import connections
from django.urls import URLPattern, URLResolver, get_resolver

from hipq_django.conf import instances, rules
from hipq_django.database.requirements import has_psycopg
from hipq_django.exceptions import nearest_name
from hipq_django.job_types.registry import get_all_declared
from hipq_django.web.webhook_view import WebhookView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SQLITE_OPTIONS = ("init_command", "transaction_mode", "timeout")
"""What the recipe for SQLite sets, and libpq takes for a mistake."""


def register() -> None:
    """Register all checks with Django."""
    for check in (
        check_setting,
        check_throttlers,
        check_sources,
        check_isolation,
        check_sqlite,
        check_driver,
        check_options,
        check_webhooks,
    ):
        checks.register(check)


def check_setting(**_: Any) -> list[checks.CheckMessage]:
    """E001 to E013, E020 to E023, E030, E031: each id has one rule in `hipq_django.conf.rules`."""
    return [_error(problem) for problem in rules.problems()]


def check_throttlers(**_: Any) -> list[checks.CheckMessage]:
    """E014: a throttler of the setting cannot be imported or is not callable."""
    if any(rules.problems()):
        return []
    return [_error(problem) for problem in rules.throttler_problems()]


def check_sources(**_: Any) -> list[checks.CheckMessage]:
    """E024: a source or map function cannot be imported, or does not take its options."""
    if any(rules.problems()):
        return []
    return [_error(problem) for problem in rules.source_problems()]


def check_isolation(**_: Any) -> list[checks.CheckMessage]:
    """E015: PostgreSQL at an isolation level under which limits would not be exact."""
    return [
        checks.Error(
            f"DATABASES[{alias!r}]['OPTIONS']['isolation_level'] is set, but exact limits need "
            "PostgreSQL's default, read committed.",
            hint="Remove 'isolation_level', or give hipq an alias of its own without it.",
            id="hipq.E015",
        )
        for alias in _aliases("postgresql")
        if not _is_read_committed(_options(alias))
    ]


def check_sqlite(**_: Any) -> list[checks.CheckMessage]:
    """W001: SQLite that begins its transactions deferred."""
    return [
        checks.Warning(
            f"DATABASES[{alias!r}] is SQLite without OPTIONS['transaction_mode'] = 'IMMEDIATE'.",
            hint="Set it, or several processes may meet 'database is locked'.",
            id="hipq.W001",
        )
        for alias in _aliases("sqlite")
        if _options(alias).get("transaction_mode") != "IMMEDIATE"
    ]


def check_driver(**_: Any) -> list[checks.CheckMessage]:
    """E032: PostgreSQL through psycopg2, which cannot copy rows in nor wait for messages."""
    return [
        checks.Error(
            f"DATABASES[{alias!r}] is reached through psycopg2; hipq_django needs psycopg 3.",
            hint="Install psycopg 3: pip install 'psycopg[binary]'. Django prefers it.",
            id="hipq.E032",
        )
        for alias in _aliases("postgresql")
        if not has_psycopg(alias)
    ]


def check_options(**_: Any) -> list[checks.CheckMessage]:
    """E033: OPTIONS that were left when a project went from SQLite to PostgreSQL."""
    return [
        checks.Error(
            f"DATABASES[{alias!r}] is PostgreSQL, but has SQLite's OPTIONS {', '.join(left)}.",
            hint="Remove them; PostgreSQL needs no options.",
            id="hipq.E033",
        )
        for alias in _aliases("postgresql")
        if (left := [repr(name) for name in SQLITE_OPTIONS if name in _options(alias)])
    ]


def check_webhooks(**_: Any) -> list[checks.CheckMessage]:
    """W002: a webhook whose answers are for a job type that no code declares."""
    return [
        checks.Warning(
            f"{webhook.view} at {webhook.route!r}: job type {webhook.job_type!r} is not declared"
            f"{nearest_name(webhook.job_type, _declared_names(webhook.instance))}",
            hint="Correct the name, or declare the job type in the jobs module of an app.",
            id="hipq.W002",
        )
        for webhook in _webhooks()
        if isinstance(webhook.job_type, str)
        and webhook.job_type not in _declared_names(webhook.instance)
    ]


def _error(problem: rules.Problem) -> checks.Error:
    return checks.Error(problem.message, hint=problem.hint, id=problem.check_id)


def _aliases(vendor: str) -> Iterator[str]:
    if not any(rules.problems()):
        names = {instance.database for instance in instances.get_instances()}
        yield from (name for name in sorted(names) if connections[name].vendor == vendor)


def _options(alias: str) -> dict[str, Any]:
    options: dict[str, Any] = settings.DATABASES[alias].get("OPTIONS", {})
    return options


def _is_read_committed(options: dict[str, Any]) -> bool:
    level = options.get("isolation_level")
    return level is None or getattr(level, "name", str(level)) == "READ_COMMITTED"


class _Webhook(NamedTuple):
    """A `WebhookView` in the URLconf; its job type may also be a function of the message."""

    route: str
    view: str
    job_type: object
    instance: str


def _webhooks() -> list[_Webhook]:
    """Return the webhooks of the URLconf; none where that cannot be read, which Django tells."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    try:
        return list(_found(get_resolver().url_patterns, ""))
    except Exception:  # the project's code is imported here, and may raise anything
        return []


def _found(patterns: Iterable[URLPattern | URLResolver], prefix: str) -> Iterator[_Webhook]:
    for entry in patterns:
        route = f"{prefix}{entry.pattern}"
        if isinstance(entry, URLResolver):
            yield from _found(entry.url_patterns, route)
            continue
        view = getattr(entry.callback, "view_class", None)
        if isinstance(view, type) and issubclass(view, WebhookView):
            options = getattr(entry.callback, "view_initkwargs", {})
            job_type = options.get("job_type", view.job_type)
            instance = options.get("instance", view.instance)
            yield _Webhook(route, view.__name__, job_type, instance)


def _declared_names(instance: str) -> set[str]:
    return {declared.name for declared in get_all_declared(instance)}
