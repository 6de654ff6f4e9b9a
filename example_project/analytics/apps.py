"""The Django app."""

from django.apps import AppConfig


class AnalyticsConfig(AppConfig):
    """Nightly reports of what the accounts did."""

    name = "example_project.analytics"
