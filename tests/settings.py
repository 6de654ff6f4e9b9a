"""A Django project with two databases and a hipq instance on each.

`DATABASE_URL` and `OTHER_DATABASE_URL` name the databases: `tests.plugin` sets both before
these settings are read, and tests hand the same settings to the processes they start.
"""

from pathlib import Path
from typing import Any

import django
import environ

from tests.router import REPLICA

env = environ.Env()


def database(variable: str) -> dict[str, Any]:
    """Return the entry of DATABASES for the address in this environment variable."""
    config: dict[str, Any] = env.db_url(variable, default="sqlite:///:memory:")
    name = Path(config["NAME"])
    # SQLite's tests need a file too: memory cannot be shared with another process.
    config["TEST"] = {"NAME": str(name.with_name(f"test_{name.name}"))}
    if config["ENGINE"].endswith("sqlite3"):
        config["OPTIONS"] = SQLITE_OPTIONS
    return config


SQLITE_OPTIONS = {
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
    "timeout": 20,
    # A transaction that takes the write lock only at its first write can fail at once,
    # whatever the timeout; this one waits for its turn.
    "transaction_mode": "IMMEDIATE",
}

ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
DATABASES = {"default": database("DATABASE_URL"), "other": database("OTHER_DATABASE_URL")}
if env.str("HIPQ_TEST_ROUTER", default="") == "replica":
    DATABASES["replica"] = REPLICA
    DATABASE_ROUTERS = ["tests.router.ReplicaRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SHARDS = env.json("HIPQ_TEST_SHARDS", default=None)
ENGINE = env.str("HIPQ_TEST_ENGINE", default="auto")
HIPQ = {
    "default": {
        **({"SHARDS": SHARDS} if SHARDS else {"DATABASE": "default"}),
        "ENGINE": ENGINE,
        "HEARTBEAT_SECONDS": env.float("HIPQ_TEST_HEARTBEAT_SECONDS", default=10),
        "NOTIFY": env.bool("HIPQ_TEST_NOTIFY", default=True),
        "QUEUES": env.json("HIPQ_TEST_QUEUES", default={}),
        "SOURCES": env.json("HIPQ_TEST_SOURCES", default={}),
    },
    "other": {"DATABASE": "other", "ENGINE": ENGINE},
}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "hipq_django",
    "hipq_django.flow",
    "tests.processapp",
    "tests.testapp",
]
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ROOT_URLCONF = "tests.urls"
SECRET_KEY = "only-for-tests"
STATIC_URL = "static/"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
TIME_ZONE = "UTC"
_TASKS = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
TASKS = {
    "default": {
        "BACKEND": "hipq_django.tasks_backend.HipqBackend",
        "QUEUES": ["default", "mail"],
    },
    "dummy": {"BACKEND": f"{_TASKS}.backends.dummy.DummyBackend", "QUEUES": ["default", "mail"]},
    "immediate": {"BACKEND": f"{_TASKS}.backends.immediate.ImmediateBackend"},
}
USE_TZ = True
