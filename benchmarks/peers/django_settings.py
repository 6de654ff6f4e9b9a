"""The settings that the peers which live in a Django project share."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, urlsplit


def database() -> dict[str, object]:
    """Return the entry of DATABASES for the run's database."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    query = parse_qs(parts.query)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": query.get("host", [parts.hostname or ""])[0],
        "PORT": query.get("port", [parts.port or ""])[0],
        "CONN_MAX_AGE": None,
    }


DATABASES = {"default": database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only-for-measurements"
TIME_ZONE = "UTC"
USE_TZ = True
