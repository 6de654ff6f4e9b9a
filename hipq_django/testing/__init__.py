"""The test kit for projects: the real scheduler, in the test's own process and transaction.

Importing it lets hipq use this process's clock, which tests can freeze and move, refuses names of
job types that no code declares, and leaves the log to the logging that the project configures.
Never import it in code that runs in production.
"""

from __future__ import annotations

import logging

from asgiref.sync import sync_to_async

from hipq_django import events
from hipq_django.database import clock
from hipq_django.database.twins import block_twin
from hipq_django.models.undeclared_names import be_strict_in_tests
from hipq_django.testing.asking import (
    ANY,
    Sent,
    assert_enqueued,
    assert_finished,
    assert_waiting,
    captured_signals,
    enqueued,
    refute_enqueued,
)
from hipq_django.testing.case import HipqTestCase, reset
from hipq_django.testing.partners import Partner, forget_partners, partner
from hipq_django.testing.running import (
    BrokenTransactionError,
    NotDrainedError,
    drain,
    immediate,
    run_due_jobs,
    run_job,
)
from hipq_django.testing.travelling import run_for, run_until, travel

__all__ = [
    "ANY",
    "BrokenTransactionError",
    "HipqTestCase",
    "NotDrainedError",
    "Partner",
    "Sent",
    "aassert_enqueued",
    "aassert_finished",
    "aassert_waiting",
    "acaptured_signals",
    "adrain",
    "aenqueued",
    "aimmediate",
    "arefute_enqueued",
    "arun_due_jobs",
    "arun_for",
    "arun_job",
    "arun_until",
    "assert_enqueued",
    "assert_finished",
    "assert_waiting",
    "captured_signals",
    "drain",
    "enqueued",
    "forget_partners",
    "immediate",
    "partner",
    "refute_enqueued",
    "reset",
    "run_due_jobs",
    "run_for",
    "run_job",
    "run_until",
    "travel",
]

# A test may freeze the time, but not the database's. So this process's own clock counts.
clock.follow_process()

# A misspelt name would leave a job that nothing ever runs, and a test that says nothing of it.
be_strict_in_tests()

# Without any handler, Python would print the errors that a test expects, with their tracebacks.
events.LOGGER.addHandler(logging.NullHandler())

aassert_enqueued = sync_to_async(assert_enqueued)
aassert_finished = sync_to_async(assert_finished)
aassert_waiting = sync_to_async(assert_waiting)
acaptured_signals = block_twin(captured_signals)
adrain = arun_due_jobs = sync_to_async(run_due_jobs)
aenqueued = sync_to_async(enqueued)
aimmediate = block_twin(immediate)
arefute_enqueued = sync_to_async(refute_enqueued)
arun_for = sync_to_async(run_for)
arun_job = sync_to_async(run_job)
arun_until = sync_to_async(run_until)
