"""What the commands say when they cannot start: one line, and the exit code 1."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from pytest_django import DjangoDbBlocker, Settings

from hipq_django.conf.options import source_settings
from hipq_django.exceptions import ConfigurationError
from tests.processes.conftest import Workers

KAFKA = {
    "SOURCE": "hipq_django.sources.kafka.KafkaSource",
    "OPTIONS": {"topics": ["answers"], "config": {"bootstrap.servers": "x", "group.id": "shop"}},
    "MAP": "tests.mailbox.read",
}
AMQP = {
    "SOURCE": "hipq_django.sources.amqp.AmqpSource",
    "OPTIONS": {"url": "amqp://127.0.0.1", "queue": "answers"},
    "MAP": "tests.mailbox.read",
}
MAILBOX = {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}


def said(*arguments: str) -> str:
    """Return why a command does not start."""
    with pytest.raises(CommandError) as refused:
        call_command(*arguments)
    return str(refused.value)


def mistaken(cases: dict[tuple[str, ...], str]) -> list[tuple[tuple[str, ...], str]]:
    """Return the arguments to `hipq_worker` that are not refused with these words, and its own."""
    answers = {arguments: said("hipq_worker", *arguments) for arguments in cases}
    return [(a, answers[a]) for a, start in cases.items() if not answers[a].startswith(start)]


@pytest.mark.processes
def test_it_is_one_line_and_the_exit_code_1(workers: Workers, tmp_path: Path) -> None:
    code = workers.run(DATABASE_URL=f"sqlite:///{tmp_path}/empty")

    assert code == 1
    assert workers.log.read_text() == (
        "CommandError: database 'default' lacks migration hipq.0001_initial: run manage.py "
        "migrate.\n"
    )


@pytest.mark.django_db
def test_a_worker_refuses_queues_that_it_cannot_serve() -> None:
    unknown = "unknown queue 'chaoss', did you mean 'chaos'?"
    cases: dict[tuple[str, ...], str] = {
        ("chaoss",): unknown,
        ("held,chaoss",): unknown,
        ("--exclude", "chaoss"): unknown,
        ("chaos;held",): "unknown queue 'chaos;held'",
        ("",): "'' names no queue; give names, such as bank,exports.",
        ("chaos", ","): "',' names no queue; give names, such as bank,exports.",
        ("--exclude", ""): "'' names no queue; give names, such as bank,exports.",
        ("chaos", "--exclude", "held"): "--exclude: give either the queues to serve or the",
    }
    assert mistaken(cases) == []


def test_a_worker_refuses_options_out_of_range() -> None:
    cases: dict[tuple[str, ...], str] = {
        ("--threads", "0"): "--threads 0: give a number from 1 to 1,000.",
        ("--threads", "1001"): "--threads 1001: give a number from 1 to 1,000.",
        ("--processes", "-1"): "--processes -1: give a number from 1 to 1,000.",
        ("--interval", "0"): "--interval 0.0: give a number from 0.001 to 3,600.",
        ("--drain-seconds", "-1"): "--drain-seconds -1.0: give a number from 0 to 86,400.",
        ("--max-jobs", "0"): "--max-jobs 0: give a number from 1 to 1,000,000,000.",
        ("--max-memory", "0"): "--max-memory 0: give a number from 1 to 1,000,000.",
        ("--interval", "nan"): "--interval nan: give a number from 0.001 to 3,600.",
        ("--instance", "defalt"): "HIPQ has no instance 'defalt', did you mean 'default'?",
    }
    assert mistaken(cases) == []


def test_a_wrong_setting_is_refused(settings: Settings) -> None:
    settings.HIPQ = {"default": {"HEARTBEAT": 5}}

    assert said("hipq_worker").startswith(
        "HIPQ['default']: unknown option 'HEARTBEAT', did you mean 'HEARTBEAT_SECONDS'?"
    )


@pytest.fixture
def live_on(settings: Settings, django_db_blocker: DjangoDbBlocker) -> Iterator[Callable[..., str]]:
    """Let the default instance live on a database, given by its part of DATABASES."""
    alias = "mistaken"

    def live_on(**database: Any) -> str:
        connections.databases[alias] = connections.databases["default"] | {"OPTIONS": {}} | database
        settings.HIPQ = {"default": {"DATABASE": alias, "SOURCES": {"post": MAILBOX}}}
        return alias

    with django_db_blocker.unblock():
        yield live_on
        connections[alias].close()
    del connections[alias]
    del connections.databases[alias]


def test_a_database_without_the_tables_says_migrate(
    live_on: Callable[..., str], tmp_path: Path
) -> None:
    alias = live_on(ENGINE="django.db.backends.sqlite3", NAME=str(tmp_path / "empty"))
    lacks = f"database '{alias}' lacks migration {{}}: run manage.py migrate --database {alias}."
    for command in ("hipq_worker", "hipq_status", "hipq_prune"):
        assert said(command) == lacks.format("hipq.0001_initial")


def test_a_database_that_cannot_be_reached_is_said(live_on: Callable[..., str]) -> None:
    engine = "django.db.backends.postgresql"
    alias = live_on(ENGINE=engine, NAME="nothing", HOST="127.0.0.1", PORT=1, USER="nobody")

    for command in (["hipq_worker"], ["hipq_consume", "post"]):
        message = said(*command)
        assert message.startswith(f"database '{alias}' cannot be reached: ")
        assert "\n" not in message


def test_a_source_that_cannot_be_opened_is_said(settings: Settings) -> None:
    config = {"bootstrap.servers": "x", "group.id": "g"}
    wrong: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (KAFKA, {"config": {"group.id": "g"}}, "config lacks 'bootstrap.servers'; add it."),
        (KAFKA, {"config": {"bootstrap.servers": "x"}}, "config lacks 'group.id'"),
        (KAFKA, {"topics": "answers"}, "topics is 'answers'; give a list of names"),
        (KAFKA, {"config": config | {"speed": 1}}, '"speed"'),
        (KAFKA, {"config": config | {"enable.auto.commit": True}}, "remove 'enable.auto.commit'"),
        (AMQP, {"url": "rabbit"}, "url is not an address"),
        (AMQP, {"queue": ""}, "queue is ''"),
        (AMQP, {"prefetch": 0}, "prefetch is 0"),
        (AMQP, {"speed": 1}, "unexpected keyword argument 'speed'"),
    ]
    for source, change, message in wrong:
        mistaken = source | {"OPTIONS": source["OPTIONS"] | change}
        name = "^KafkaSource: .*" if source is KAFKA else ""
        with pytest.raises(ConfigurationError, match=name + re.escape(message)):
            source_settings("post", mistaken).open()
