"""Who makes a request, and what they may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_protect

from hipq_django.exceptions import ConfigurationError
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.web.refusals import RefusedCallError

APP, JSON = "hipq_flow", "application/json"


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


def check_origin(request: HttpRequest, instance: str, user: Any) -> None:
    """Raise `RefusedCallError` where another site may have sent a request in a user's name.

    415: a form of another site cannot send JSON. 403: the user is that of the session, whose cookie
    the browser sends along, and the CSRF token is missing. It does not matter whether API_USER has
    found that user: it may have looked at the session, too.
    """
    if request.content_type != JSON and (request.method == "POST" or request.content_type):
        raise RefusedCallError(415, f"send the body as {JSON}, in the header Content-Type.")
    of_session = getattr(request, "session", {}).get(SESSION_KEY)
    is_of_session = of_session == str(getattr(user, "pk", None))
    if flow_settings(instance).api_user is not None and not is_of_session:
        return
    if csrf_protect(lambda _request: HttpResponse(status=204))(request).status_code != 204:
        raise RefusedCallError(
            403, "the CSRF token is missing or wrong; send it as header X-CSRFToken."
        )


def check_permission(user: Any, permission: str) -> None:
    """Raise `RefusedCallError` with 403 if a user has not this permission of flows."""
    if not may(user, permission):
        raise RefusedCallError(403, f"you need the permission {APP}.{permission}.")


def may(user: Any, permission: str) -> bool:
    """Return whether a user has this permission of flows."""
    return bool(user.has_perm(f"{APP}.{permission}"))
