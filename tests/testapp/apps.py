from django.apps import AppConfig


class TestAppConfig(AppConfig):
    """A Django app such as a user of hipq_django has: its `jobs` module declares job types."""

    name = "tests.testapp"
    label = "testapp"
