"""Settings of the example project; what differs between machines comes from the environment."""

from pathlib import Path
from urllib.parse import quote

import django
import environ

HERE = Path(__file__).resolve().parent
env = environ.Env()

DEBUG = env.bool("DEBUG", default=True)
# The key signs callback URLs, so all processes need the same one.
SECRET_KEY = env(
    "SECRET_KEY", default="insecure-and-only-for-development" if DEBUG else environ.Env.NOTSET
)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost"])

# SQLite without a server to start; or DATABASE_URL=postgres://user:password@host/name.
DATABASES = {
    "default": env.db_url(
        "DATABASE_URL", default=f"sqlite:///{quote(str(HERE / 'var' / 'example.sqlite3'))}"
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        # With a write-ahead log, web server and worker read while another of them writes.
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        # A transaction takes the one write lock when it begins, and waits for its turn.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,  # seconds
    }

# The address under which the bank reaches this site, and that of the bank.
SITE_URL = env("SITE_URL", default="http://127.0.0.1:8000")
BANK_URL = env("BANK_URL", default="http://127.0.0.1:8001/payments")
# The address of the supplier, who answers through Kafka, and those of the brokers.
SUPPLIER_URL = env("SUPPLIER_URL", default="http://127.0.0.1:8002/orders")
KAFKA_BOOTSTRAP_SERVERS = env("KAFKA_BOOTSTRAP_SERVERS", default="127.0.0.1:9092")
# A real bank gets minutes or hours; here the silent one should not keep you waiting.
BANK_TIMEOUT_SECONDS = env.float("BANK_TIMEOUT_SECONDS", default=3)

HIPQ = {
    "default": {
        "CALLBACK_BASE_URL": SITE_URL,
        # A worker counts as lost after three missed beats.
        "HEARTBEAT_SECONDS": env.float("HEARTBEAT_SECONDS", default=10),
        "QUEUES": {
            # The bank works on at most six normal payments of ours at a time.
            "bank": {"THROTTLE_LIMIT": 6},
            "analytics": {"THROTTLE_LIMIT": 2},
            "supplier": {"THROTTLE_LIMIT": 20},
        },
        # Read by `manage.py hipq_consume supplier`.
        "SOURCES": {
            "supplier": {
                "SOURCE": "hipq_django.sources.kafka.KafkaSource",
                "OPTIONS": {
                    "topics": ["order-answers"],
                    "config": {
                        "bootstrap.servers": KAFKA_BOOTSTRAP_SERVERS,
                        "group.id": "hipq-shop",
                    },
                },
                "MAP": "example_project.orders.messages.read",
            },
        },
    }
}

# Only for `manage.py demo_shards`: the folder in which two PostgreSQL servers have their sockets.
SHARDS_FOLDER = env("SHARDS_FOLDER", default="")
if SHARDS_FOLDER:
    for alias in ("jobs_0", "jobs_1"):
        DATABASES[alias] = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "postgres",
            "HOST": f"{SHARDS_FOLDER}/{alias}",
            "PORT": "5432",
        }
    HIPQ["sharded"] = {
        "SHARDS": ["jobs_0", "jobs_1"],
        "SHARD_KEY": "tenant",
        "QUEUES": {"warehouse": {"THROTTLE_LIMIT": 6}},
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
    "example_project.demo",
    "example_project.payments",
    "example_project.analytics",
    "example_project.reminders",
    "example_project.events",
    "example_project.orders",
    "example_project.flows",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [HERE / "templates"],
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
ROOT_URLCONF = "example_project.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Mail is written to the worker's log. Django 6.1 has a new name for the setting.
CONSOLE = "django.core.mail.backends.console.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": CONSOLE}}
else:
    EMAIL_BACKEND = CONSOLE
STATIC_URL = "static/"
TIME_ZONE = env("TIME_ZONE", default="UTC")
USE_TZ = True
