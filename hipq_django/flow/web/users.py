"""Who makes a request, and what they may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.views.decorators.csrf import csrf_protect

from hipq_django.exceptions import ConfigurationError
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.web.refusals import RefusedCallError

APP = "hipq_flow"


def find_user(request: HttpRequest, instance: str) -> Any:
    """Return who makes a request; raise `RefusedCallError` with 401 if nobody does who is known.

    That is the user of the session, or whom the function of the setting API_USER finds.
    """
    find = flow_settings(instance).api_user
    user = getattr(request, "user", None) if find is None else _found(find, request)
    try:
        is_known = user is not None and user.is_authenticated and user.is_active
    except AttributeError as error:
        raise ConfigurationError(
            f"FLOW: API_USER returned {user!r:.100}; return a user of Django, or None."
        ) from error
    if not is_known:
        raise RefusedCallError(
            401, "log in first." if find is None else "it is not known who you are."
        )
    return user


def _found(find: Callable[[HttpRequest], Any], request: HttpRequest) -> Any:
    try:
        return find(request)
    except (ConfigurationError, InterfaceError, OperationalError):
        raise  # the trouble is on this side
    except Exception as error:  # the project's code, on data from outside
        reason = f"it cannot be found out who you are: {type(error).__name__}."
        raise RefusedCallError(401, reason) from error


def check_origin(request: HttpRequest, instance: str) -> None:
    """Raise `RefusedCallError` with 403 if another site may have sent it with a user's cookie.

    Where API_USER says who asks no cookie does, and no site can send on another's behalf.
    """
    if flow_settings(instance).api_user is not None:
        return
    try:
        passed = csrf_protect(_passes)(request)
    except (SuspiciousOperation, MultiPartParserError) as error:  # of forms, which nobody wants
        raise RefusedCallError(422, "the body is a form that cannot be read; send JSON.") from error
    if passed.status_code != 204:
        raise RefusedCallError(
            403, "the CSRF token is missing or wrong; send it as header X-CSRFToken."
        )


def _passes(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=204)


def check_permission(user: Any, permission: str) -> None:
    """Raise `RefusedCallError` with 403 if a user has not this permission of flows."""
    if not may(user, permission):
        raise RefusedCallError(403, f"you need the permission {APP}.{permission}.")


def may(user: Any, permission: str) -> bool:
    """Return whether a user has this permission of flows."""
    return bool(user.has_perm(f"{APP}.{permission}"))
