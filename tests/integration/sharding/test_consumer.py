"""A consumer receives answers for the jobs of all shards."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings
from hipq_django.models import Answer, Job, ShardMap
from hipq_django.processes.consumer import ConsumerProcess
from tests import mailbox as module
from tests.mailbox import Mailbox

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

ALIASES = ["default", "other"]
KEYS = [f"k-{number}" for number in range(6)]


@pytest.fixture
def source(sharded: InstanceSettings, settings: Settings) -> None:
    """A source in the setting, and two shards."""
    sources = {"post": {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}}
    settings.HIPQ = {"default": {"SHARDS": ALIASES, "SOURCES": sources}}
    call_command("hipq_shards", "add")


def test_answers_go_to_the_shards_of_their_jobs(
    source: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = Mailbox()
    monkeypatch.setattr(module, "mailbox", mailbox)
    for key in KEYS:
        hipq.enqueue("ask", job_key=key)
    mailbox.put(*[json.dumps({"key": key, "response": 1}).encode() for key in KEYS])
    process = ConsumerProcess("post")
    mailbox.stop = process.stop

    process.run()

    found: dict[str, str] = {}
    for alias in ALIASES:
        answered = set(Answer.objects.using(alias).values_list("job_key", flat=True))
        assert answered == set(Job.objects.using(alias).values_list("job_key", flat=True))
        found |= dict.fromkeys(answered, alias)
    assert sorted(found) == KEYS
    assert {*found.values()} == {*ALIASES}
    assert not mailbox.unacknowledged


def test_a_consumer_with_another_list_of_shards_does_not_start(source: None) -> None:
    ShardMap.objects.update(number=1)

    with pytest.raises(CommandError, match="Deploy the setting that the shards were made with"):
        call_command("hipq_consume", "post")
