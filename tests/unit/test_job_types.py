"""Declaring job types."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hipq_django.domain.job_options import DEFAULTS
from hipq_django.exceptions import InvalidJobTypeError, UnknownOptionError
from hipq_django.job_types.registry import get_all_declared, get_declared
from hipq_django.models import Job
from tests.declaring import Declare


def handler(job: Any) -> Any:
    """Charge the card."""
    return job


def other_handler(job: Any) -> Any:
    return job


def answered(job: Any, response: Any) -> Any:
    return response


def answered_otherwise(job: Any, response: Any) -> Any:
    return job


def test_a_declared_type_is_found_by_instance_and_name(declare: Declare) -> None:
    declared = declare("charge_card", instance="shop")(handler)

    assert get_declared("shop", "charge_card") is declared
    assert get_declared("default", "charge_card") is None
    assert get_all_declared("shop") == [declared]
    assert declare("charge_card")(other_handler) is not declared  # of another instance


def test_a_declared_type_can_be_called_like_the_function(declare: Declare) -> None:
    declared = declare("charge_card")(handler)
    job = Job()

    assert declared(job) is job
    assert declared.__doc__ == "Charge the card."


@pytest.mark.parametrize(
    ("options", "declared"),
    [
        ({}, ["default", 100, 1.0, 86_400, [], ""]),
        (
            {
                "queue": "bank", "priority": 10, "throttle_factor": 2, "timeout": 3_600,
                "time_windows": ["05:00-07:00", "22:00-23:00"], "time_zone": "Europe/Paris",
            },
            ["bank", 10, 2.0, 3_600, ["05:00-07:00", "22:00-23:00"], "Europe/Paris"],
        ),
        (dict.fromkeys(("timeout", "time_windows")), ["default", 100, 1.0, 86_400, [], ""]),
    ],
)  # fmt: skip
def test_options_are_the_defaults_of_the_types_jobs(
    declare: Declare, options: dict[str, Any], declared: list[Any]
) -> None:
    """T2."""
    made = declare("charge_card", **options)(handler)

    assert [*made.as_declared.values()] == declared
    assert made.as_declared.keys() == {"queue", *DEFAULTS}


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("on_response", answered, answered_otherwise), ("on_error", handler, other_handler)],
)
def test_a_type_has_one_handler_of_each_kind(
    declare: Declare, name: str, first: Any, second: Any
) -> None:
    declared = declare("charge_card")(handler)
    getattr(declared, name)(first)

    said = f"'charge_card' already has {name} {first.__name__}"
    with pytest.raises(InvalidJobTypeError, match=said):
        getattr(declared, name)(second)


def test_one_name_for_two_functions_is_refused(declare: Declare) -> None:
    declare("charge_card")(handler)

    with pytest.raises(InvalidJobTypeError, match=r"declared twice .*\.handler and .*other_h"):
        declare("charge_card")(other_handler)


def test_the_same_function_may_be_declared_again(declare: Declare) -> None:
    """A module that is reloaded declares its types anew."""
    declare("charge_card")(handler)

    again = declare("charge_card", priority=5)(handler)

    assert get_declared("default", "charge_card") is again


def test_an_unknown_option_is_refused_with_the_nearest_name(declare: Declare) -> None:
    with pytest.raises(UnknownOptionError, match=r"'charge_card': .* 'priorty', did you mean 'pri"):
        declare("charge_card", priorty=5)(handler)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": -1}, "timeout -1: give seconds above 0"),
        ({"time_windows": ["05:00-05:00"]}, "start and end are the same"),
        ({"time_zone": "Mars/Olympus"}, "time zone 'Mars/Olympus' is unknown"),
        ({"queue": "Bank"}, "queue 'Bank'"),
        ({"instance": "Shop"}, "instance 'Shop'"),
        ({"retry": "always"}, "retry='always' is not a policy"),
    ],
)
def test_a_bad_option_is_refused_by_the_name_of_the_type(
    declare: Declare, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidJobTypeError, match=f"job type 'charge_card': .*{message}"):
        declare("charge_card", **options)(handler)

    assert get_declared("default", "charge_card") is None


@pytest.mark.parametrize("name", ["", None])
def test_a_type_without_a_usable_name_is_refused(declare: Declare, name: Any) -> None:
    with pytest.raises(InvalidJobTypeError, match="1 to 200 printable characters"):
        declare(name)(handler)


def numbers(job: Job) -> Any:
    yield job


@pytest.mark.parametrize("wrong", [None, partial(handler), numbers])
def test_what_is_no_function_is_refused(declare: Declare, wrong: Any) -> None:
    declared = declare("other")(handler)

    for declaring in (declare("charge"), declared.on_response, declared.on_error):
        with pytest.raises(InvalidJobTypeError, match=r"is not a function|is a generator"):
            declaring(wrong)
    assert get_declared("default", "charge") is None
    assert declared.response_handler is declared.retry_handler is None
