"""`hipq_consume` as an operator types it; what it does with messages stands beside the brokers."""

import json

import pytest

from tests.processes.conftest import Workers

pytestmark = pytest.mark.processes

SOURCES = {"post": {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}}


def test_a_database_that_cannot_be_reached_is_said_in_one_line(workers: Workers) -> None:
    consumer = workers.consume(
        "post",
        HIPQ_TEST_SOURCES=json.dumps(SOURCES),
        DATABASE_URL="postgres://nobody@127.0.0.1:1/nothing",
    )

    assert consumer.wait(timeout=60) == 1
    [line] = workers.log.read_text().splitlines()
    assert line.startswith("CommandError: database 'default' cannot be reached: ")
