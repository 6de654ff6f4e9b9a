"""The project as a whole."""

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_the_example_lacks_no_migration() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_the_example_passes_the_system_checks() -> None:
    call_command("check", fail_level="INFO")
