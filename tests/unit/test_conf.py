"""The HIPQ setting: what it means, and what is wrong with it."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.utils.module_loading import import_string
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import (
    InstanceSettings,
    QueueSettings,
    get_instance,
    get_instances,
    get_throttlers,
)
from hipq_django.conf.rules import RULES, problems, source_problems, throttler_problems
from hipq_django.exceptions import ConfigurationError
from hipq_django.sources import MessageSource
from hipq_django.sources.settings import SourceSettings
from tests.mailbox import read

by_tenant = hipq.KeyLimit("tenant", 5)
NAN = float("nan")
GOOGOL = 10**400


def queues(**options: Any) -> dict[str, Any]:
    return {"default": {"QUEUES": {"bank": options}}}


def base_url(address: str) -> dict[str, Any]:
    return {"default": {"CALLBACK_BASE_URL": address}}


def source(**options: Any) -> dict[str, Any]:
    values = {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}
    return {"default": {"SOURCES": {"post": values | options}}}


def throttled(*paths: Any) -> dict[str, Any]:
    return queues(THROTTLERS=list(paths))


def test_no_setting_at_all_means_the_defaults(settings: Settings) -> None:
    del settings.HIPQ

    assert (
        get_instances()
        == [get_instance()]
        == [
            InstanceSettings(
                name="default",
                database="default",
                callback_base_url="",
                callback_max_bytes=1_048_576,
                heartbeat_seconds=10,
                notify=True,
                answer_ttl_seconds=86_400,
                answer_retention_days=14,
                arguments="hipq_django.arguments.JsonArguments",
                autodiscover=("jobs",),
                strict=None,
                max_data_bytes=1_000_000,
                flow={},
            )
        ]
    )


def test_a_queue_that_is_not_named_has_the_defaults(settings: Settings) -> None:
    settings.HIPQ = {}

    assert get_instance().queue("bank") == QueueSettings(
        throttle_limit=Decimal(0),
        order="time",
        ageing_seconds=60,
        granularity_seconds=1,
        retention_days=14,
    )


def test_the_options_of_a_queue_are_read(settings: Settings) -> None:
    settings.HIPQ = queues(
        THROTTLE_LIMIT=10,
        ORDER="ageing",
        AGEING_SECONDS=30,
        GRANULARITY_SECONDS=0.5,
        THROTTLERS=["payments.limits.by_region"],
        RETENTION_DAYS=7,
    )

    assert get_instance().queue("bank") == QueueSettings(
        throttle_limit=Decimal(10),
        order="ageing",
        ageing_seconds=30,
        granularity_seconds=0.5,
        retention_days=7,
        throttlers=("payments.limits.by_region",),
    )


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


@pytest.mark.parametrize("limit", [0, -1, 0.5, 0.999, Decimal("0.5"), Decimal(-1)])
def test_a_limit_below_one_is_unlimited(settings: Settings, limit: Any) -> None:
    """T20."""
    settings.HIPQ = queues(THROTTLE_LIMIT=limit)

    assert 0 <= get_instance().queue("bank").throttle_limit < 1


def test_an_unknown_instance_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="no instance 'defualt', did you mean 'default'"):
        get_instance("defualt")


def test_a_wrong_setting_is_refused_when_it_is_read(settings: Settings) -> None:
    settings.HIPQ = {"default": {"HEARTBEET_SECONDS": 5}}

    with pytest.raises(ConfigurationError, match="HEARTBEET_SECONDS', did you mean 'HEARTBEAT"):
        get_instance()


# What is wrong, by check id

WRONG = [
    ("E016", {"default": {"STRICT": "yes"}}, "HIPQ['default']['STRICT'] is 'yes'."),
    ("E036", {"default": {"MAX_DATA_BYTES": 999}}, "['MAX_DATA_BYTES'] is 999."),
    ("E036", {"default": {"MAX_DATA_BYTES": "1MB"}}, "['MAX_DATA_BYTES'] is '1MB'."),
    ("E029", {"default": {"ARGUMENTS": dict}}, "HIPQ['default']['ARGUMENTS'] is <class 'dict'>."),
    ("E034", {"default": {"AUTODISCOVER": "jobs"}}, "HIPQ['default']['AUTODISCOVER'] is 'jobs'."),
    ("E034", {"default": {"AUTODISCOVER": ["a-b"]}}, "['AUTODISCOVER'] is ['a-b']."),
    ("E001", [], "HIPQ is [], not a dict."),
    ("E001", {"default": "database"}, "HIPQ['default'] is 'database', not a dict."),
    (
        "E001",
        {"QUEUES": {"bank": {}}},
        """HIPQ['QUEUES'] is an option of an instance; write HIPQ = {"default": {"QUEUES": …}}.""",
    ),
    ("E002", {"Shop": {}}, "HIPQ instance 'Shop': a name consists of lower-case letters"),
    ("E002", {5: {}}, "HIPQ instance 5: a name consists of lower-case letters"),
    ("E003", {"default": {"QUEUE": {}}}, "unknown option 'QUEUE', did you mean 'QUEUES'?"),
    ("E003", {"default": {5: {}}}, "unknown option 5; known are"),
    ("E009", queues(throttle_limit=3), "'throttle_limit', did you mean 'THROTTLE_LIMIT'?"),
    ("E004", {"default": {"DATABASE": "othr"}}, "'othr', which DATABASES does not have, did you"),
    ("E004", {"default": {"DATABASE": None}}, "is None, which DATABASES does not have"),
    ("E004", {"default": {"DATABASE": ["default"]}}, "which DATABASES does not have"),
    ("E005", {"default": {"HEARTBEAT_SECONDS": 0}}, "HIPQ['default']['HEARTBEAT_SECONDS'] is 0."),
    ("E005", {"default": {"HEARTBEAT_SECONDS": "10"}}, "['HEARTBEAT_SECONDS'] is '10'."),
    ("E005", {"default": {"ANSWER_TTL_SECONDS": NAN}}, "['ANSWER_TTL_SECONDS'] is nan."),
    ("E005", {"default": {"ANSWER_TTL_SECONDS": GOOGOL}}, "['ANSWER_TTL_SECONDS'] is 1000"),
    ("E005", {"default": {"CALLBACK_MAX_BYTES": -1}}, "['CALLBACK_MAX_BYTES'] is -1."),
    ("E005", {"default": {"CALLBACK_MAX_BYTES": 5e6}}, "['CALLBACK_MAX_BYTES'] is 5000000.0."),
    ("E005", {"default": {"CALLBACK_MAX_BYTES": True}}, "['CALLBACK_MAX_BYTES'] is True."),
    ("E006", {"default": {"CALLBACK_BASE_URL": "shop.example"}}, "is 'shop.example'."),
    ("E006", {"default": {"CALLBACK_BASE_URL": None}}, "['CALLBACK_BASE_URL'] is None."),
    ("E006", base_url("ftp://shop.example"), "is 'ftp://shop.example'."),
    ("E006", base_url("https://"), "is 'https://'."),
    ("E006", base_url("https:///hipq"), "is 'https:///hipq'."),
    ("E006", base_url("https://:8000"), "is 'https://:8000'."),
    ("E006", base_url("https://shop.example:http"), "is 'https://shop.example:http'."),
    ("E006", base_url("https://[::1"), "is 'https://[::1'."),
    ("E006", base_url("https://shop.example/?a=1"), "is 'https://shop.example/?a=1'."),
    ("E006", base_url("https://shop.example/#a"), "is 'https://shop.example/#a'."),
    ("E006", base_url("https://shop.example\n"), "is 'https://shop.example\\n'."),
    ("E006", base_url("https://shop example"), "is 'https://shop example'."),
    ("E006", base_url(" "), "is ' '."),
    ("E007", {"default": {"QUEUES": ["bank"]}}, "HIPQ['default']['QUEUES'] is ['bank']."),
    ("E007", {"default": {"QUEUES": {"bank": 10}}}, "['QUEUES'] is {'bank': 10}."),
    (
        "E008",
        {"default": {"QUEUES": {"Bank": {}}}},
        "HIPQ['default'] queue 'Bank': a name consists of",
    ),
    ("E009", queues(THROTTLE_LIMITS=10), "'THROTTLE_LIMITS', did you mean 'THROTTLE_LIMIT'?"),
    ("E010", queues(THROTTLE_LIMIT="10"), "['bank']['THROTTLE_LIMIT'] is '10'."),
    ("E010", queues(THROTTLE_LIMIT=NAN), "['THROTTLE_LIMIT'] is nan."),
    ("E010", queues(THROTTLE_LIMIT=GOOGOL), "['THROTTLE_LIMIT'] is 1000"),
    ("E011", queues(ORDER="prority"), "['ORDER'] is 'prority', did you mean 'priority'?"),
    ("E011", queues(ORDER=["time"]), "['ORDER'] is ['time']"),
    ("E012", queues(GRANULARITY_SECONDS=0), "['GRANULARITY_SECONDS'] is 0."),
    ("E012", queues(AGEING_SECONDS=-1), "['AGEING_SECONDS'] is -1."),
    ("E012", queues(RETENTION_DAYS=GOOGOL), "['RETENTION_DAYS'] is 1000"),
    ("E012", queues(RETENTION_DAYS=True), "['RETENTION_DAYS'] is True."),
    ("E013", queues(THROTTLERS="a.b"), "['bank']['THROTTLERS'] is 'a.b'."),
    ("E013", queues(THROTTLERS=[by_tenant]), "['bank']['THROTTLERS'] is [KeyLimit("),
    ("E016", {"default": {"NOTIFY": "yes"}}, "HIPQ['default']['NOTIFY'] is 'yes'."),
    ("E020", {"default": {"SOURCES": ["post"]}}, "HIPQ['default']['SOURCES'] is a list"),
    ("E020", {"default": {"SOURCES": {"post": "kafka"}}}, "['SOURCES']['post'] is not a dict."),
    (
        "E021",
        {"default": {"SOURCES": {"Post": {}}}},
        "HIPQ['default'] source 'Post': a name consists of",
    ),
    ("E022", source(TOPIC="a"), "['SOURCES']['post']: unknown option 'TOPIC'"),
    ("E022", source(OPTION={}), "unknown option 'OPTION', did you mean 'OPTIONS'?"),
    ("E023", source(SOURCE=""), "SOURCE is '', not a dotted path."),
    ("E023", source(SOURCE="KafkaSource"), "SOURCE is 'KafkaSource', not a dotted path."),
    ("E023", source(MAP=None), "MAP is None, not a dotted path."),
    ("E023", source(OPTIONS=["secret"]), "OPTIONS is a list, not a dict with text as keys."),
    ("E023", source(OPTIONS={5: "secret"}), "OPTIONS is a dict, not a dict with text as keys."),
    ("E023", source(BATCH_SIZE=0), "BATCH_SIZE is 0, not a whole number from 1 to 10,000."),
    ("E023", source(BATCH_SIZE=True), "BATCH_SIZE is True"),
    ("E023", source(BATCH_SIZE=10_001), "BATCH_SIZE is 10001"),
    ("E023", source(BATCH_SIZE="500"), "BATCH_SIZE is '500'"),
]


@pytest.mark.parametrize(
    ("check_id", "setting", "message"), WRONG, ids=[f"{c[0]}-{i}" for i, c in enumerate(WRONG)]
)
def test_what_is_wrong_is_named_by_its_check(
    settings: Settings, check_id: str, setting: Any, message: str
) -> None:
    settings.HIPQ = setting

    found = list(problems())

    assert [problem.id for problem in found] == [f"hipq.{check_id}"]
    assert message in found[0].msg
    assert found[0].hint


@pytest.mark.parametrize(
    "address",
    ["", "https://shop.example", "http://[::1]:8000/", "https://shop.example/a%20site/"],
)
def test_an_address_that_a_path_may_follow_is_right(settings: Settings, address: str) -> None:
    settings.HIPQ = base_url(address)

    assert list(problems()) == []


def test_every_check_of_the_setting_has_a_case_here() -> None:
    of_other_settings = {f"hipq.E0{n}" for n in (25, 26, 41)}  # these are in test_checks.py

    assert {f"hipq.{check_id}" for check_id, *_ in WRONG} == {
        rule.check_id for rule in RULES
    } - of_other_settings


def test_two_wrong_queues_are_both_named(settings: Settings) -> None:
    settings.HIPQ = {"default": {"QUEUES": {"a": {"ORDER": "x"}, "b": {"ORDER": "y"}}}}

    assert [problem.id for problem in problems()] == ["hipq.E011"] * 2


# Sources


def test_the_options_of_a_source_are_read(settings: Settings) -> None:
    settings.HIPQ = source(OPTIONS={"greeting": "hello"})

    found = get_instance().source("post")

    assert found == SourceSettings(
        name="post",
        source="tests.mailbox.MailboxSource",
        map="tests.mailbox.read",
        options={"greeting": "hello"},
        batch_size=500,
    )
    opened = found.open()
    assert isinstance(opened, MessageSource)
    assert (opened.greeting, found.map_function()) == ("hello", read)  # type: ignore[attr-defined]  # of any source


@pytest.mark.parametrize(
    ("sources", "message"),
    [({}, "has no source 'pots'."), ({"post": {}}, "no source 'pots', did you mean 'post'?")],
)
def test_a_source_that_is_not_in_the_setting_is_refused(
    settings: Settings, sources: dict[str, Any], message: str
) -> None:
    settings.HIPQ = source() if sources else {}

    with pytest.raises(ConfigurationError) as caught:
        get_instance().source("pots")

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (source(SOURCE="no.such.Source"), "SOURCE 'no.such.Source' cannot be imported"),
        (source(SOURCE="tests.mailbox.Headless"), "has no method acknowledge, close"),
        (source(SOURCE="tests.mailbox.not_a_function"), "is 'read', which cannot be called"),
        (source(MAP="tests.mailbox.nothing"), "MAP 'tests.mailbox.nothing' cannot be imported"),
        (source(MAP="tests.mailbox.not_a_function"), "is 'read', which cannot be called"),
        (source(OPTIONS={"speed": 5}), "OPTIONS do not fit SOURCE"),
        (
            source(SOURCE="hipq_django.sources.kafka.KafkaSource"),
            "OPTIONS do not fit SOURCE 'hipq_django.sources.kafka.KafkaSource': missing",
        ),
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


@pytest.mark.parametrize(
    ("library", "path", "extra"),
    [
        ("confluent_kafka", "kafka.KafkaSource", "kafka"),
        ("kombu", "amqp.AmqpSource", "amqp"),
    ],
)
def test_a_source_without_its_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, library: str, path: str, extra: str
) -> None:
    options: dict[str, dict[str, Any]] = {
        "kafka": {"topics": ["t"], "config": {"bootstrap.servers": "x", "group.id": "g"}},
        "amqp": {"url": "amqp://broker", "queue": "q"},
    }
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(ConfigurationError, match=rf"pip install 'hipq-django\[{extra}\]'"):
        import_string(f"hipq_django.sources.{path}")(**options[extra])


# Throttlers


def test_throttlers_are_imported_by_their_path(settings: Settings) -> None:
    settings.HIPQ = throttled(f"{__name__}.by_tenant")

    assert get_throttlers("default", "bank") == [by_tenant]
    assert get_throttlers("default", "other_queue") == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no.such.module.limit", "cannot be imported: No module named 'no'"),
        ("hipq_django.conf.instances.no_such_name", "cannot be imported"),
        ("nodots", "cannot be imported"),
        ("hipq_django.KeyLimit", "name a function or an instance"),
        ("hipq_django.__version__", "is '0.1.0'; name a function or an instance"),
    ],
)
def test_a_throttler_that_is_none_is_named_with_its_path(
    settings: Settings, path: str, message: str
) -> None:
    """E014."""
    settings.HIPQ = throttled(path)

    with pytest.raises(ConfigurationError, match=message):
        get_throttlers("default", "bank")
    assert [problem.id for problem in throttler_problems()] == ["hipq.E014"]


def test_a_module_that_breaks_while_it_is_imported_is_a_throttler_that_cannot_be_used(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E014."""
    (tmp_path / "broken_limits.py").write_text("limit = {}['missing']\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    settings.HIPQ = throttled("broken_limits.limit")

    with pytest.raises(ConfigurationError, match=r"broken_limits\.limit"):
        get_throttlers("default", "bank")
    assert [problem.id for problem in throttler_problems()] == ["hipq.E014"]
