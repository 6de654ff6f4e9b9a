"""The HIPQ setting: what it means, and what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import (
    get_instance,
    get_instances,
    get_throttlers,
)
from hipq_django.conf.options import INSTANCE, QUEUE, SOURCE
from hipq_django.conf.rules import problems, source_problems, throttler_problems
from hipq_django.domain.options import Options
from hipq_django.exceptions import ConfigurationError
from hipq_django.sources import MessageSource
from tests.mailbox import read

by_tenant = hipq.KeyLimit("tenant", 5)
NAN = float("nan")
GOOGOL = 10**400
OPEN = {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}


def queues(**options: Any) -> dict[str, Any]:
    return {"default": {"QUEUES": {"bank": options}}}


def source(**options: Any) -> dict[str, Any]:
    return {"default": {"SOURCES": {"post": OPEN | options}}}


def throttled(*paths: Any) -> dict[str, Any]:
    return queues(THROTTLERS=list(paths))


def test_no_setting_at_all_means_the_defaults(settings: Settings) -> None:
    del settings.HIPQ

    [found] = get_instances()

    assert found == get_instance()
    read = {name: getattr(found, name.lower()) for name in INSTANCE.defaults}
    assert read == {**INSTANCE.defaults, "SHARDS": ("default",)}


def test_a_queue_that_is_not_named_has_the_defaults(settings: Settings) -> None:
    settings.HIPQ = {}

    queue = get_instance().queue("bank")

    read = {name: getattr(queue, name.lower()) for name in QUEUE.defaults}
    assert read == {**QUEUE.defaults, "THROTTLERS": ()}


def test_the_default_instance_is_always_there(settings: Settings) -> None:
    settings.HIPQ = {"shop": {"DATABASE": "other"}}

    assert [(i.name, i.database) for i in get_instances()] == [
        ("default", "default"),
        ("shop", "other"),
    ]


def test_a_changed_setting_counts_at_once(settings: Settings) -> None:
    settings.HIPQ = {"default": {"HEARTBEAT_SECONDS": 5}}
    before = get_instance().heartbeat_seconds
    settings.HIPQ = {"default": {"HEARTBEAT_SECONDS": 6}}

    assert (before, get_instance().heartbeat_seconds) == (5, 6)


@pytest.mark.parametrize("limit", [-1, 0.999, Decimal("0.5")])
def test_a_limit_below_one_is_unlimited(settings: Settings, limit: Any) -> None:
    """T20."""
    settings.HIPQ = queues(THROTTLE_LIMIT=limit)

    assert 0 <= get_instance().queue("bank").throttle_limit < 1


def test_an_unknown_instance_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="no instance 'defualt', did you mean 'default'"):
        get_instance("defualt")


# What is wrong, by check id


def of_instance(**options: Any) -> dict[str, Any]:
    return {"default": options}


SHAPES = [
    ("E001", [], "HIPQ is [], not a dict."),
    ("E001", {"default": "database"}, "HIPQ['default'] is 'database', not a dict."),
    ("E001", {"QUEUES": {}}, """write HIPQ = {"default": {"QUEUES": …}}."""),
    ("E002", {5: {}}, "HIPQ instance 5: a name consists of lower-case letters"),
    ("E003", {"default": {5: {}}}, "unknown option 5; known are"),
    ("E003", of_instance(QUEUE={}), "unknown option 'QUEUE', did you mean 'QUEUES'?"),
    ("E008", of_instance(QUEUES={"Bank": {}}), "HIPQ['default'] queue 'Bank': a name consists"),
    ("E009", queues(throttle_limit=3), "'throttle_limit', did you mean 'THROTTLE_LIMIT'?"),
    (
        "E012",
        queues(RETENTION_DAYS={"success": 1}),
        "HIPQ['default']['QUEUES']['bank']['RETENTION_DAYS'] has 'success': give a number of days, "
        "or 'succeeded' and 'others'.",
    ),
    ("E021", of_instance(SOURCES={"Post": OPEN}), "HIPQ['default'] source 'Post': a name consists"),
    ("E022", source(OPTION={}), "unknown option 'OPTION', did you mean 'OPTIONS'?"),
    ("E005", of_instance(DATABASE="othr"), "'othr' is not in DATABASES, did you mean 'other'?"),
    ("E023", source(OPTIONS=["secret"]), "['OPTIONS'] is wrong, and of type list."),
    ("E005", of_instance(SOURCES={"post": "secret"}), "['SOURCES'] is wrong, and of type dict."),
]
"""What is wrong with the setting apart from single values, and what is said of it."""

WRONG_VALUES: dict[str, list[Any]] = {
    "DATABASE": [None, ["default"]],
    "SHARDS": [[], "default", ["default", 5], ["default"] * 65],
    "SHARD_KEY": [None, len],
    "ENGINE": ["sql", None, ["orm"]],
    "CALLBACK_BASE_URL": [
        None, "shop.example", "ftp://shop.example", "https://", "https://shop.example:http",
        "https://[::1", "https://shop.example/?a=1", "https://shop example",
    ],
    "CALLBACK_MAX_BYTES": [-1, 5e6, True],
    "HEARTBEAT_SECONDS": [0, "10", NAN],
    "ANSWER_TTL_SECONDS": [GOOGOL],
    "ANSWER_RETENTION_DAYS": [0, 36_501],
    "NOTIFY": ["yes", None],
    "ARGUMENTS": [dict, "JsonArguments"],
    "TABLE_NAMING_STRATEGY": [len, "by_tenant"],
    "AUTODISCOVER": ["jobs", ["a-b"]],
    "STRICT": ["yes"],
    "MAX_DATA_BYTES": [999, "1MB"],
    "FLOW": [[], {5: 1}],
    "QUEUES": [["bank"], {"bank": 10}],
    "SOURCES": [["post"]],
    "THROTTLE_LIMIT": ["10", NAN, GOOGOL, True, 1.0001],
    "ORDER": ["prority", ["time"]],
    "GRANULARITY_SECONDS": [0],
    "AGEING_SECONDS": [-1, NAN],
    "RETENTION_DAYS": [GOOGOL, True, {"succeeded": -1}, {"others": None}],
    "THROTTLERS": ["a.b", [by_tenant]],
    "OWN_TABLE": ["yes", 1],
    "SOURCE": ["", "KafkaSource"],
    "MAP": [None],
    "OPTIONS": [{5: "secret"}],
    "BATCH_SIZE": [0, True, 10_001, "500"],
}  # fmt: skip


@pytest.mark.parametrize(("check_id", "setting", "message"), SHAPES)
def test_what_is_wrong_is_named_by_its_check(
    settings: Settings, check_id: str, setting: Any, message: str
) -> None:
    settings.HIPQ = setting

    [found] = problems()

    assert (found.id, bool(found.hint)) == (f"hipq.{check_id}", True)
    assert message in found.msg


@pytest.mark.parametrize(
    ("place", "put"), [(INSTANCE, of_instance), (QUEUE, queues), (SOURCE, source)]
)
def test_a_wrong_value_is_named_with_those_that_are_allowed(
    settings: Settings, place: Options, put: Callable[..., dict[str, Any]]
) -> None:
    for option in place.options:
        assert WRONG_VALUES[option.name]
        for value in WRONG_VALUES[option.name]:
            settings.HIPQ = put(**{option.name: value})

            [found] = problems()

            wrong_id = option.wrong_id or place.wrong_id
            assert (found.id, found.hint) == (wrong_id, f"Give {option.allowed}.")
            assert f"[{option.name!r}]" in found.msg


# Sources


def test_the_options_of_a_source_are_read(settings: Settings) -> None:
    settings.HIPQ = source(OPTIONS={"greeting": "hello"})

    found = get_instance().source("post")

    opened = found.open()
    assert isinstance(opened, MessageSource)
    assert (opened.greeting, found.map_function()) == ("hello", read)  # type: ignore[attr-defined]  # of any source


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (source(SOURCE="no.such.Source"), "SOURCE 'no.such.Source' cannot be imported"),
        (source(SOURCE="tests.mailbox.Headless"), "has no method acknowledge, close"),
        (source(SOURCE="tests.mailbox.not_a_function"), "is 'read', which cannot be called"),
        (source(MAP="tests.mailbox.not_a_function"), "is 'read', which cannot be called"),
        (source(OPTIONS={"speed": 5}), "OPTIONS do not fit SOURCE"),
    ],
)
def test_a_source_without_code_that_fits_is_named(
    settings: Settings, setting: Any, message: str
) -> None:
    """E024."""
    settings.HIPQ = setting

    [found] = source_problems()

    assert found.id == "hipq.E024"
    assert message in found.msg


# Throttlers


def test_throttlers_are_imported_by_their_path(settings: Settings) -> None:
    settings.HIPQ = throttled(f"{__name__}.by_tenant")

    assert get_throttlers("default", "bank") == [by_tenant]
    assert get_throttlers("default", "other_queue") == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no.such.module.limit", "cannot be imported: No module named 'no'"),
        ("hipq_django.KeyLimit", "name a function or an instance"),
        ("hipq_django.__version__", "is '0.1.0'; name a function or an instance"),
        ("broken_limits.limit", "cannot be imported: KeyError"),
    ],
)
def test_a_throttler_that_is_none_is_named_with_its_path(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    """E014."""
    (tmp_path / "broken_limits.py").write_text("limit = {}['missing']\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    settings.HIPQ = throttled(path)

    with pytest.raises(ConfigurationError, match=message):
        get_throttlers("default", "bank")
    assert [problem.id for problem in throttler_problems()] == ["hipq.E014"]
