"""The application with a task that is due at each whole second."""

from celery.schedules import schedule

from benchmarks.peers.celery.jobs import app

__all__ = ["app"]

app.conf.beat_schedule = {
    "tick": {"task": "handle", "schedule": schedule(1.0, relative=True), "args": ("tick", 0)}
}
