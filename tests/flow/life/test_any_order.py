"""The whole life of nodes, in any order of steps: all data arrive, once, whatever meets.

Each run takes the same examples; `HIPQ_TEST_EXAMPLES=1000` searches others at random, for longer.
"""

from __future__ import annotations

import logging
import math
from functools import partial

import pytest
import time_machine
from django.db import connection
from pytest_django import Settings

from hipq_django.database import isolation
from hipq_django.flow.runs import ending
from hipq_django.models import catalog
from hipq_django.scheduler import context, polling
from tests.flow.life.machine import FlowLife
from tests.job_life.actors import Actors
from tests.job_life.machine import run

pytestmark = [pytest.mark.conformance, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def same_each_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing depends on another clock than the test's, so that runs repeat."""
    settings.HIPQ = {"default": {"NOTIFY": False}}
    monkeypatch.setattr(context, "TYPES_SECONDS", math.inf)
    monkeypatch.setattr(isolation, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(isolation, "MOST_PAUSE", 0.0)
    monkeypatch.setattr(ending, "LOCK_SECONDS", -1.0)  # nobody waits for real time
    monkeypatch.setattr(polling, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(polling, "SHARE", math.inf)
    caplog.set_level(logging.CRITICAL, "hipq_django")  # the steps that failed say more
    catalog.sync("default")


@pytest.mark.postgres
def test_steps_that_overlap_keep_the_rules_and_all_data_arrive(
    frozen_time: time_machine.Traveller,
) -> None:
    """Writers, workers, operators and partners each have a transaction open, or wait for each
    other's locks, while others go on; a step may stop before any of its statements, and crash.
    """
    with Actors(4) as actors:
        run(partial(FlowLife, actors, frozen_time), examples=32)


@pytest.mark.skipif(connection.vendor == "postgresql", reason="there they overlap")
def test_steps_one_after_another_keep_the_rules_and_all_data_arrive(
    frozen_time: time_machine.Traveller,
) -> None:
    """The same on one connection, as SQLite has one writer at a time."""
    with Actors(1) as actors:
        run(partial(FlowLife, actors, frozen_time), examples=10)
