"""The project of dj_queue."""

import os

from benchmarks.peers.django_settings import *  # noqa: F403 - the same for all peers

INSTALLED_APPS = ["dj_queue"]
WORKER = {
    "queues": "*",
    "threads": int(os.environ.get("BENCH_THREADS", "8")),
    "processes": 1,
    "polling_interval": 0.01,
    "prefetch_multiplier": int(os.environ.get("BENCH_PREFETCH", "20")),
}
TASKS = {
    "default": {
        "BACKEND": "dj_queue.backend.DjQueueBackend",
        "QUEUES": [],
        "OPTIONS": {
            "mode": "async",
            "workers": [WORKER],
            "scheduler": {"dynamic_tasks_enabled": True, "polling_interval": 0.01},
        },
    }
}
