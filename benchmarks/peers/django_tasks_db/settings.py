"""The project of django-tasks-db."""

import django

from benchmarks.peers.django_settings import *  # noqa: F403 - the same for all peers

INSTALLED_APPS = ["django_tasks_db"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
