"""The project of django-q2."""

from benchmarks.peers.django_settings import *  # noqa: F403 - the same for all peers

INSTALLED_APPS = ["django_q"]
Q_CLUSTER = {
    "name": "bench",
    "orm": "default",
    "workers": 2,
    "bulk": 50,
    "queue_limit": 200,
    "poll": 0.01,
    "timeout": 60,
    "retry": 600,
    "recycle": 1_000_000,
    "save_limit": 0,
    "scheduler": False,
    "log_level": "WARNING",
}
