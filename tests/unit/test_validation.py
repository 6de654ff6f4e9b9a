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
from hipq_django.domain.parts import checked_part
from hipq_django.domain.schedules import checked_schedule_name
from hipq_django.domain.uniqueness import checked_unique_key
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
GOOGOL = pytest.param(10**400, id="googol")


def test_the_defaults_are_those_of_the_design() -> None:
    """T2: timeout 86,400 s, priority 100, factor 1, no windows."""
    assert [*DEFAULTS.values()] == [100, 1, 86_400, (), ""]


def test_a_new_job_takes_its_data_by_place_and_the_rest_by_name() -> None:
    new = hipq.NewJob("charge_card", {"order": 42}, job_key="order-42")

    assert (new.job_type, new.job_data, new.job_key) == ("charge_card", {"order": 42}, "order-42")
    assert [f.name for f in fields(new)] == ["job_type", "job_data", *JOB_OPTIONS]
    with pytest.raises(TypeError):
        hipq.NewJob("charge_card", {}, "order-42")  # type: ignore[call-arg]  # what is refused


# Names


@pytest.mark.parametrize("name", ["a", "bank", "fast_bank", "bank2", "z_9", "x" * 100])
def test_a_name_has_lower_case_letters_digits_and_underscores(name: str) -> None:
    """T34."""
    assert checked_name("queue", name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "Bank", "BANK", "fast-bank", "fast bank", "bank.eu", "bänk", "2bank", "_bank"),
        *("bank\n", "bank\0", "x" * 101, "٢", None, 5, b"bank", ["bank"]),
    ],
)
def test_any_other_name_is_refused_with_the_rule(name: Any) -> None:
    """T34."""
    with pytest.raises(InvalidJobError, match=r"queue .*lower-case letters, digits and"):
        checked_name("queue", name)


@pytest.mark.parametrize("name", ["charge_card", "Charge Card", "payments.charge", "zahlen-ä"])
def test_a_job_type_may_be_called_anything_printable(name: str) -> None:
    assert checked_type_name(name) == name


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "\ud800", "x" * 201, None, 5, ["a"]])
def test_a_job_type_without_a_printable_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidJobError, match="1 to 200 printable characters"):
        checked_type_name(name)


# Keys


def test_a_job_without_key_has_the_key_none() -> None:
    assert checked_key(None) == "NONE"


@pytest.mark.parametrize("key", ["order-42", "a", "x" * MAX_KEY_CHARS, "Größe 7", "💳", " "])
def test_a_key_is_any_printable_text(key: str) -> None:
    assert checked_key(key) == key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "text that is not empty"),
        (42, r"job_key 42: a key is text .* use str\(…\)"),
        (b"order", "a key is text"),
        (["order"], "a key is text"),
        ("x" * 256, "has 256 characters, at most 255 are allowed; use a hash"),
        ("a\0b", "printable characters only"),
        ("a\nb", "printable characters only"),
        ("\ud800", "printable characters only"),
    ],
)
def test_any_other_key_is_refused_with_the_way_out(key: Any, message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        checked_key(key)


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


# Numbers


@pytest.mark.parametrize("timeout", [0.001, 1, 86_400, 10 * 366 * 86_400])
def test_a_timeout_is_seconds_above_zero(timeout: float) -> None:
    assert checked_timeout(timeout) == timeout


@pytest.mark.parametrize(
    "timeout", [0, -1, NAN, INFINITE, "60", None, True, timedelta(1), 316_224_001, GOOGOL]
)
def test_any_other_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidJobError, match=r"timeout .*: give seconds above 0, at most"):
        checked_timeout(timeout)


@pytest.mark.parametrize("priority", [-1_000_000, 0, 100, 1_000_000])
def test_a_priority_is_a_whole_number(priority: int) -> None:
    assert checked_priority(priority) == priority


@pytest.mark.parametrize(
    "priority", [1.0, "1", None, True, NAN, Decimal(1), 1_000_001, -1_000_001, GOOGOL]
)
def test_any_other_priority_is_refused(priority: Any) -> None:
    with pytest.raises(InvalidJobError, match=r"priority .*: give a whole number from"):
        checked_priority(priority)


@pytest.mark.parametrize("factor", [0, 1, 0.1, 2.5, Decimal("0.125"), 1_000_000, Decimal("1E+3")])
def test_a_factor_is_exact_to_a_thousandth(factor: Any) -> None:
    assert checked_factor(factor) == Decimal(str(factor))


@pytest.mark.parametrize(
    "factor",
    [
        *(-1, -0.001, 0.0001, 1_000_001, NAN, INFINITE, "1", None, True, Decimal("sNaN")),
        *(Decimal("1E+999999"), Decimal("1E-999999"), GOOGOL),
    ],
)
def test_any_other_factor_is_refused(factor: Any) -> None:
    with pytest.raises(InvalidJobError, match=r"throttle_factor .*: give a number from 0 to"):
        checked_factor(factor)


# Moments


def test_a_moment_is_an_aware_datetime_of_any_zone() -> None:
    moment = datetime(2025, 1, 6, 12, tzinfo=timezone(timedelta(hours=-12)))

    assert aware_moment("scheduled_run_time", moment) == moment


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (datetime(2025, 1, 6), "is naive; give an aware datetime"),  # noqa: DTZ001 - what is refused
        (datetime(1969, 12, 31, tzinfo=UTC), "from 1970 to 9000"),
        (datetime(9000, 1, 2, tzinfo=UTC), "from 1970 to 9000"),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))), "from 1970 to 9000"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=12))), "from 1970 to 9000"),
        ("2025-01-06T12:00:00Z", "give an aware datetime"),
        (datetime(2025, 1, 6, tzinfo=UTC).date(), "give an aware datetime"),
        (1_736_164_800, "give an aware datetime"),
        (timedelta(minutes=5), "give an aware datetime"),
    ],
)
def test_any_other_moment_is_refused_with_the_way_out(moment: Any, message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        aware_moment("scheduled_run_time", moment)


# Data, windows, zones


def test_data_is_json_or_text() -> None:
    assert checked_data({"order": (1, 2)}) == {"order": [1, 2]}
    assert checked_data("order 42") == "order 42"


@pytest.mark.parametrize("data", [object(), {"price": NAN}, {1, 2}, b"order"])
def test_data_that_is_not_json_is_refused_with_the_reason(data: Any) -> None:
    with pytest.raises(InvalidJobError, match=r"job_data is not JSON: .*[A-Za-z]"):
        checked_data(data)


def test_windows_are_stored_as_text() -> None:
    windows = ["05:00-07:00", hipq.TimeWindow("22:00", "02:00", days="mon-fri")]

    assert checked_windows(windows) == ["05:00-07:00", "mon-fri 22:00-02:00"]


@pytest.mark.parametrize(
    "windows", ["05:00-07:00", ["05:00"], ["05:00-05:00"], ["25:00-26:00"], [None], 5, {}]
)
def test_malformed_windows_are_refused(windows: Any) -> None:
    with pytest.raises(InvalidJobError, match="time window"):
        checked_windows(windows)


@pytest.mark.parametrize("zone", ["", "Europe/Paris", "UTC"])
def test_a_zone_is_a_name_that_the_machine_knows(zone: str) -> None:
    assert checked_zone(zone) == zone


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "Europe", "a\0b", 5, None])
def test_an_unknown_zone_is_refused(zone: Any) -> None:
    with pytest.raises(InvalidJobError, match=r"time zone .* is unknown; give a name such as"):
        checked_zone(zone)


def test_an_id_is_a_number_of_a_row_or_its_text() -> None:
    assert [id_from(value) for value in (1, "7", 2**63 - 1, str(2**63 - 1))] == [
        1, 7, 2**63 - 1, 2**63 - 1,
    ]  # fmt: skip


NO_TEXTS = ["0", "007", "-1", " 3", "3\n", "٣", "²", "", str(2**63), "9" * 5_000]


@pytest.mark.parametrize("value", [0, -1, 2**63, True, 1.0, None, []], ids=repr)
def test_what_is_no_number_of_a_row_is_no_id(value: Any) -> None:
    assert id_from(value) is None


@pytest.mark.parametrize("text", NO_TEXTS, ids=ascii)
def test_a_text_that_names_no_row_is_no_id(text: str) -> None:
    assert id_from(text) is None


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
        (checked_unique_key, Word.BANK, "bank"),
        (checked_reason, Word.BANK, "bank"),
        (checked_message, Word.BANK, "bank"),
        (checked_part, Word.BANK, "bank"),
        (checked_schedule_name, Word.BANK, "bank"),
        (checked_zone, Word.PARIS, "Europe/Paris"),
        (checked_priority, Number.TWO, 2),
        (checked_timeout, Number.TWO, 2.0),
        (checked_timeout, Share.HALF, 0.5),
        (checked_factor, Number.TWO, Decimal(2)),
        (checked_factor, Share.HALF, Decimal("0.5")),
        (checked_factor, Exact("0.5"), Decimal("0.5")),
        (partial(aware_moment, "at"), Moment(2026, 10, 25, tzinfo=PARIS), PARIS_MIDNIGHT),
        (lambda given: hipq.WAIT_FOR(given).expects, Number.TWO, 2),
        (lambda given: hipq.RetryIn(given).seconds, Share.HALF, 0.5),
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
