"""The Django app."""

from django.apps import AppConfig


class EventsConfig(AppConfig):
    """An endpoint that only enqueues."""

    name = "example_project.events"
