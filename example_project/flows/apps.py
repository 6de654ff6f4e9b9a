"""The Django app of the flows."""

from django.apps import AppConfig


class FlowsConfig(AppConfig):
    """Its modules `flows` and `jobs` are found when Django starts."""

    name = "example_project.flows"
