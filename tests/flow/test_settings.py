"""The settings of flows: a wrong one is said when it is read first."""

from typing import Any

import pytest
from django.core.checks import run_checks
from pytest_django import Settings

from hipq_django.checks import check_flow
from hipq_django.exceptions import ConfigurationError
from hipq_django.flow.settings import flow_settings


def nobody(request: Any) -> None:
    """Find nobody."""


@pytest.mark.parametrize("given", [nobody, "tests.flow.test_settings.nobody"])
def test_a_function_is_given_or_named(settings: Settings, given: Any) -> None:
    settings.HIPQ = {"default": {"FLOW": {"API_USER": given}}}

    assert flow_settings("default").api_user is nobody


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("API_USER", 5, "is 5. Give a function"),
        ("PUBLIC_JOBS", "ship", "is 'ship'. Give a list of names"),
        ("MAX_DEPTH", 0, "is 0. Give a whole number of at least 1."),
        ("LOG_RETENTION_DAYS", -1, "Give a number from 0 to 36,500."),
        ("API_USR", None, "unknown option 'API_USR', did you mean 'API_USER'?"),
    ],
)
def test_a_wrong_setting_is_said(settings: Settings, key: str, value: Any, said: str) -> None:
    settings.HIPQ = {"default": {"FLOW": {key: value}}}

    with pytest.raises(ConfigurationError) as refused:
        flow_settings("default")
    assert said in str(refused.value)


def test_the_setting_without_the_app_is_refused(settings: Settings) -> None:
    settings.HIPQ = {"default": {"FLOW": {"LOG": "all"}}}
    assert list(check_flow()) == []
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if "flow" not in app]

    assert [problem.id for problem in check_flow()] == ["hipq.E037"]


def test_a_check_says_what_is_wrong_before_anything_runs(settings: Settings) -> None:
    settings.HIPQ = {"default": {"FLOW": {"LOG": "most"}}}

    assert "hipq.E038" in {problem.id for problem in run_checks()}
