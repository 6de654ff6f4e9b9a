"""Settings of the project under test; the harness gives the rest in environment variables."""

import environ

env = environ.Env()

DATABASES = {"default": env.db_url("DATABASE_URL")}
DATABASES["default"]["CONN_MAX_AGE"] = 60
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {  # as the tutorial says
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
HIPQ = {
    "default": {
        "HEARTBEAT_SECONDS": env.float("CHAOS_HEARTBEAT_SECONDS"),
        "QUEUES": {
            "bank": {"THROTTLE_LIMIT": 12},
            "limited": {"THROTTLE_LIMIT": 6},
            "rated": {"THROTTLERS": ["chaos.project.limits.RATE"]},
            "tenants": {"THROTTLERS": ["chaos.project.limits.PER_TENANT"]},
        },
    }
}
INSTALLED_APPS = ["hipq_django", "chaos.project"]
SECRET_KEY = "only-for-crash-tests"
TIME_ZONE = "UTC"
USE_TZ = True
