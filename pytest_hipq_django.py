"""The pytest plugin: the fixtures `hipq_jobs` and `hipq_partner`, and strict names of job types.

It is found by its entry point. `-p no:hipq_django` turns it off. It stands outside the package,
because pytest rewrites the assertions of the package that a plugin is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hipq_django.testing import Partner


def pytest_sessionstart() -> None:
    """Refuse names that no code declares in all tests, whichever of them is the first."""
    from django.apps import apps

    if apps.ready and apps.is_installed("hipq_django"):
        from hipq_django.models.undeclared_names import be_strict_in_tests

        be_strict_in_tests()


@pytest.fixture
def hipq_jobs(db: None) -> Iterator[Any]:
    """The functions of `hipq_django.testing`; what a test moves and declares ends with it."""
    # Late, because the plugin is loaded before Django is set up.
    from hipq_django import testing

    with testing.case.restored():
        yield testing


@pytest.fixture
def hipq_partner(hipq_jobs: Any) -> Callable[..., Partner]:
    """`hipq_django.testing.partner`: lets another system answer the jobs of a type."""
    return hipq_jobs.partner  # type: ignore[no-any-return]  # a function of the module
