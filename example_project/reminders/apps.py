"""The Django app."""

from django.apps import AppConfig


class RemindersConfig(AppConfig):
    """Reminders that are queued ahead, put off and called off, and listed each morning."""

    name = "example_project.reminders"
