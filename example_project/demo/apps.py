"""The Django app."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """Has the command `demo`, and nothing else."""

    name = "example_project.demo"
