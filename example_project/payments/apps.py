"""The Django app."""

from django.apps import AppConfig


class PaymentsConfig(AppConfig):
    """A shop whose orders are paid through a bank that answers later."""

    name = "example_project.payments"
