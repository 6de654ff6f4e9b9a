"""The Django project in which hipq_django is measured."""

import os
from typing import Any

import environ

env = environ.Env()

DATABASES = {"default": env.db_url("DATABASE_URL")}
DATABASES["default"]["CONN_MAX_AGE"] = None  # or each callback would open a connection
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
    }
LIMIT = 40
SHARDS = [f"shard_{number}" for number in range(4)]
if "BENCH_SHARDS" in os.environ:
    for alias in SHARDS:
        DATABASES[alias] = {
            **DATABASES["default"],
            "NAME": f"{DATABASES['default']['NAME']}_{alias}",
        }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
HIPQ: dict[str, dict[str, Any]] = {
    "default": {
        "QUEUES": {
            "held": {"THROTTLERS": ["benchmarks.hipq.limits.hold_all"]},
            "idle": {},
            "limited": {"THROTTLE_LIMIT": 10},
            "tenants": {"THROTTLERS": ["benchmarks.hipq.limits.by_tenant"]},
            "throttled": {"THROTTLE_LIMIT": 100},
            "wide": {"THROTTLE_LIMIT": LIMIT},
        }
    },
    "typed": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"},
}
if "BENCH_SHARDED" in os.environ:
    HIPQ["default"]["SHARDS"] = SHARDS
if "BENCH_NOTIFY" in os.environ:
    HIPQ["default"]["NOTIFY"] = os.environ["BENCH_NOTIFY"] == "yes"
if "BENCH_KAFKA" in os.environ:
    config = {"bootstrap.servers": os.environ["BENCH_KAFKA"], "group.id": "benchmark"}
    HIPQ["default"]["SOURCES"] = {
        "answers": {
            "SOURCE": "hipq_django.sources.kafka.KafkaSource",
            "OPTIONS": {"topics": ["answers"], "config": config},
            "MAP": "benchmarks.hipq.messages.read",
        }
    }
ALLOWED_HOSTS = ["testserver"]
INSTALLED_APPS = ["hipq_django", "benchmarks.hipq.noop"]
if "BENCH_FLOWS" in os.environ:
    INSTALLED_APPS.insert(1, "hipq_django.flow")
ROOT_URLCONF = "benchmarks.hipq.urls"
SECRET_KEY = "only-for-measurements"
TASKS = {"default": {"BACKEND": "hipq_django.tasks_backend.HipqBackend"}}
TIME_ZONE = "UTC"
USE_TZ = True
