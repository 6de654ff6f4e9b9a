"""The whole life of jobs, in any order of steps: nothing is lost, whatever meets.

Each run takes the same examples, the commit suite few of them; `HIPQ_TEST_EXAMPLES=1000` searches
others at random, for longer.
"""

from __future__ import annotations

import logging
import math
from functools import partial

import pytest
import time_machine
from django.db import connection
from pytest_django import Settings

from hipq_django.models import catalog
from hipq_django.scheduler import context, polling
from tests.declaring import Declare
from tests.job_life import machine
from tests.job_life.actors import Actors
from tests.job_life.scripts import Scripted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def code(
    declare: Declare,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Scripted:
    """Job types, and nothing that depends on another clock than the test's, so that runs repeat."""
    settings.HIPQ = {"default": {"NOTIFY": False}}
    monkeypatch.setattr(context, "TYPES_SECONDS", math.inf)
    monkeypatch.setattr(polling, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(polling, "SHARE", math.inf)
    caplog.set_level(logging.CRITICAL, "hipq_django")  # the steps that failed say more
    code = Scripted(declare)
    catalog.sync("default")
    return code


@pytest.mark.conformance
@pytest.mark.postgres
def test_steps_that_overlap_keep_the_rules_and_every_job_ends(
    code: Scripted, frozen_time: time_machine.Traveller
) -> None:
    """Workers, partners, operators and callers each have a transaction open, or wait for each
    other's locks, while others go on; a step may stop before any of its statements, and crash.
    """
    with Actors(4) as actors:
        machine.run(partial(machine.JobLife, code, actors, frozen_time), examples=40)


@pytest.mark.skipif(connection.vendor == "postgresql", reason="there they overlap")
def test_steps_one_after_another_keep_the_rules_and_every_job_ends(
    code: Scripted, frozen_time: time_machine.Traveller
) -> None:
    """The same on one connection, as SQLite has one writer at a time."""
    with Actors(1) as actors:
        machine.run(partial(machine.JobLife, code, actors, frozen_time), examples=10)
