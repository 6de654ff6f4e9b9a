"""The project that is measured."""

import environ

env = environ.Env()

DATABASES = {"default": env.db_url("DATABASE_URL")}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["hipq_django", "benchmarks.noop"]
SECRET_KEY = "only-for-measurements"
TIME_ZONE = "UTC"
USE_TZ = True
