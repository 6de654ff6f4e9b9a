"""The values of jobs: which are taken, which are refused, and what the refusal says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import hipq_django as hipq
from hipq_django.domain.drafts import JOB_OPTIONS
from hipq_django.domain.job_options import DEFAULTS
from hipq_django.domain.validation import (
    MAX_KEY_CHARS,
    aware_moment,
    checked_data,
    checked_factor,
    checked_key,
    checked_message,
    checked_name,
    checked_number,
    checked_priority,
    checked_reason,
    checked_timeout,
    checked_type_name,
    checked_windows,
    checked_zone,
    id_from,
)
from hipq_django.exceptions import InvalidJobError

NAN, INFINITE = float("nan"), float("inf")
PARIS = ZoneInfo("Europe/Paris")
PARIS_MIDNIGHT = datetime(2026, 10, 25, tzinfo=PARIS)
GOOGOL = 10**400


def test_the_defaults_are_those_of_the_design() -> None:
    """T2: timeout 86,400 s, priority 100, factor 1, no windows."""
    assert [*DEFAULTS.values()] == [100, 1, 86_400, (), ""]


def test_a_new_job_takes_its_data_by_place_and_the_rest_by_name() -> None:
    new = hipq.NewJob("charge_card", {"order": 42}, job_key="order-42")

    assert (new.job_type, new.job_data, new.job_key) == ("charge_card", {"order": 42}, "order-42")
    assert [f.name for f in fields(new)] == ["job_type", "job_data", *JOB_OPTIONS]
    with pytest.raises(TypeError):
        hipq.NewJob("charge_card", {}, "order-42")  # type: ignore[call-arg]  # what is refused


QUEUE_NAME = partial(checked_name, "queue")
MOMENT = partial(aware_moment, "scheduled_run_time")
FAR_WEST = timezone(timedelta(hours=-12))

TAKEN: list[tuple[Callable[[Any], Any], list[Any]]] = [
    (QUEUE_NAME, ["a", "bank", "fast_bank", "z_9", "x" * 100]),
    (checked_type_name, ["charge_card", "Charge Card", "payments.charge", "zahlen-ä"]),
    (checked_key, ["order-42", "a", "x" * MAX_KEY_CHARS, "Größe 7", "💳", " "]),
    (checked_timeout, [0.001, 1, 86_400, 10 * 366 * 86_400]),
    (checked_priority, [-1_000_000, 0, 100, 1_000_000]),
    (checked_factor, [0, 1, 2.5, Decimal("0.125"), 1_000_000, Decimal("1E+3")]),
    (MOMENT, [datetime(2025, 1, 6, 12, tzinfo=FAR_WEST)]),
    (checked_data, ["order 42", {"order": [1, 2]}]),
    (checked_zone, ["", "Europe/Paris", "UTC"]),
    (id_from, [1, 7, 2**63 - 1]),
]
"""Values that are returned as they are."""


@pytest.mark.parametrize(("check", "values"), TAKEN)
def test_a_value_is_taken(check: Callable[[Any], Any], values: list[Any]) -> None:
    """T34."""
    assert list(map(check, values)) == values


@pytest.mark.parametrize(
    ("check", "given", "stored"),
    [
        (checked_key, None, "NONE"),
        (checked_factor, 0.1, Decimal("0.1")),
        (checked_data, {"order": (1, 2)}, {"order": [1, 2]}),
        (checked_windows, ["05:00-07:00"], ["05:00-07:00"]),
        (
            checked_windows,
            [hipq.TimeWindow("22:00", "02:00", days="mon-fri")],
            ["mon-fri 22:00-02:00"],
        ),
        (id_from, "7", 7),
        (id_from, str(2**63 - 1), 2**63 - 1),
    ],
)
def test_a_value_is_stored(check: Callable[[Any], Any], given: Any, stored: Any) -> None:
    assert check(given) == stored


REFUSED: list[tuple[Callable[[Any], Any], str, list[Any]]] = [
    (
        QUEUE_NAME,
        r"queue .*lower-case letters, digits and",
        [
            *("", "Bank", "fast-bank", "bänk", "2bank", "bank\n", "x" * 101, None, b"bank"),
        ],
    ),
    (checked_type_name, "1 to 200 printable characters", ["", "a\nb", "\ud800", "x" * 201, None]),
    (
        checked_key,
        r"a key is text of 1 to 255 printable characters, .* use str\(…\) or a hash",
        ["", 42, "x" * 256, "a\0b", "\ud800", "NONE"],
    ),
    (
        checked_timeout,
        r"timeout .*: give seconds above 0, at most",
        [0, NAN, INFINITE, "60", None, True, timedelta(1), GOOGOL],
    ),
    (
        checked_priority,
        r"priority .*: give a whole number from",
        [1.0, "1", None, True, NAN, 1_000_001, -1_000_001],
    ),
    (
        checked_factor,
        r"throttle_factor .*: give a number from 0 to",
        [
            *(-1, 0.0001, 1_000_001, NAN, "1", None, True, Decimal("sNaN")),
            *(Decimal("1E+999999"), Decimal("1E-999999")),
        ],
    ),
    (
        MOMENT,
        "from 1970 to 9000",
        [
            datetime(1969, 12, 31, tzinfo=UTC),
            datetime(9000, 1, 2, tzinfo=UTC),
            datetime.max.replace(tzinfo=FAR_WEST),
        ],
    ),
    (MOMENT, "give an aware datetime", ["2025-01-06T12:00:00Z", datetime(2025, 1, 6)]),  # noqa: DTZ001 - what is refused
    (checked_data, r"job_data is not JSON: .*[A-Za-z]", [object(), {"price": NAN}, {1, 2}, b"x"]),
    (checked_windows, "time window", ["05:00-07:00", ["25:00-26:00"], [None], 5]),
    (
        checked_zone,
        r"time zone .* is unknown; give a name such as",
        ["Mars/Olympus", "../etc/passwd", "a\0b", None],
    ),
]
"""Checks, and what they say of values that they refuse."""


@pytest.mark.parametrize(("check", "message", "values"), REFUSED)
def test_any_other_value_is_refused_with_the_way_out(
    check: Callable[[Any], Any], message: str, values: list[Any]
) -> None:
    """T34."""
    for value in values:
        with pytest.raises(InvalidJobError, match=message):
            check(value)


@pytest.mark.parametrize("value", [0, True, None, "007", " 3", "٣", "", str(2**63)])
def test_what_names_no_row_is_no_id(value: Any) -> None:
    assert id_from(value) is None


# What is quoted


@pytest.mark.parametrize(
    "check", [checked_reason, checked_message, partial(checked_number, "n", low=0, high=1)]
)
def test_a_value_is_quoted_whole_or_not_at_all(check: Callable[[Any], Any]) -> None:
    """Of a part nobody could tell that it is sensitive."""
    with pytest.raises(InvalidJobError, match="'short'"):
        check({"card": "short"})
    with pytest.raises(InvalidJobError, match="<dict, too long to be shown>"):
        check({"card": "4111" * 50})


# Plain values


class Word(str, Enum):  # noqa: UP042 - as projects have written them before StrEnum
    """Text, whose `str()` is another text."""

    PARIS = "Europe/Paris"
    BANK = "bank"


class Number(int, Enum):
    """Numbers, whose `str()` is no number."""

    TWO = 2


class Share(float, Enum):
    """The same with decimals."""

    HALF = 0.5


class Exact(Decimal):
    """A kind of Decimal."""


class Moment(datetime):
    """A kind of datetime."""


@pytest.mark.parametrize(
    ("check", "given", "plain"),
    [
        (partial(checked_name, "queue"), Word.BANK, "bank"),
        (checked_type_name, Word.BANK, "bank"),
        (checked_key, Word.BANK, "bank"),
        (checked_zone, Word.PARIS, "Europe/Paris"),
        (checked_priority, Number.TWO, 2),
        (checked_timeout, Share.HALF, 0.5),
        (checked_factor, Share.HALF, Decimal("0.5")),
        (checked_factor, Exact("0.5"), Decimal("0.5")),
        (partial(aware_moment, "at"), Moment(2026, 10, 25, tzinfo=PARIS), PARIS_MIDNIGHT),
    ],
)
def test_a_value_of_a_subclass_is_returned_as_the_plain_value(
    check: Callable[[Any], Any], given: Any, plain: Any
) -> None:
    """Its `str()`, which is what is stored or sent in places, may be something else."""
    checked = check(given)

    assert (checked, type(checked)) == (plain, type(plain))


def test_a_moment_of_a_subclass_keeps_which_of_two_hours_it_is_in() -> None:
    given = Moment(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1)

    assert aware_moment("at", given) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
