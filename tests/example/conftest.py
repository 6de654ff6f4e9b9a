"""Databases as pytest-django makes them: those of the example are not those of the other tests."""

from pytest_django.fixtures import django_db_setup

__all__ = ["django_db_setup"]
