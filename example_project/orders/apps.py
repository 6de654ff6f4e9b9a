"""The Django app."""

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """Orders at a supplier, who takes HTTP requests and answers through Kafka."""

    name = "example_project.orders"
