"""Whatever the order of requests, answers, failures and crashes: each part counts exactly once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import time_machine
from django.db import transaction
from hypothesis import HealthCheck, given, settings, strategies as st

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import early_answers, recovery
from hipq_django.models import Answer, Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.noon import MONDAY_NOON

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

PARTS = ("front", "back")
TIMEOUT = 20  # less than a heart is silent until its worker is lost
ROUNDS = 20

steps = st.lists(
    st.one_of(
        st.sampled_from(["claim", "execute", "save", "claim", "execute", "save", "break_once"]),
        st.sampled_from(["crash", "recover", "wait", "enqueue"]),
        st.tuples(st.sampled_from(PARTS), st.sampled_from([1, 2])),
        st.tuples(st.sampled_from(PARTS), st.just("fail")),
    ),
    max_size=25,
)


class Life:
    """One job, and who has to do with it; `first` are the responses that must count."""

    def __init__(self, declare: Declare, traveller: time_machine.Traveller) -> None:
        self.traveller = traveller
        self.first: dict[str, Any] = {}
        self.handled: list[Any] = []
        self.is_broken = False
        retry = hipq.Fixed(seconds=1, max_attempts=1_000)
        self.type = declare("scan", retry=retry, timeout=TIMEOUT)(self.ask)
        self.type.on_response(self.handle)

    def start(self) -> None:
        self.traveller.move_to(MONDAY_NOON)
        self.first, self.handled, self.is_broken = {}, [], False
        self.worker = HandWorker()

    def ask(self, job: Job) -> Any:
        del job
        if self.is_broken:
            self.is_broken = False
            raise OSError("connection reset")
        return hipq.WAIT_FOR(*PARTS)

    def handle(self, job: Job, response: Any) -> Any:
        del job
        self.handled.append(response)
        return response

    def do(self, step: Any) -> None:
        if isinstance(step, tuple):
            self.answer(*step)
        else:
            getattr(self, step)()

    def answer(self, part: str, payload: Any) -> None:
        if payload == "fail":
            hipq.fail("scan", "k", "no paper", part=part)
        else:
            hipq.complete("scan", "k", payload, part=part)
            self.first.setdefault(part, payload)

    def enqueue(self) -> None:
        if not Job.objects.exists():
            self.type.enqueue(job_key="k")

    def claim(self) -> None:
        self.worker.run_pass()

    def execute(self) -> None:
        self.worker.execute()

    def save(self) -> None:
        self.worker.save()

    def break_once(self) -> None:
        self.is_broken = True

    def crash(self) -> None:
        self.worker.die()
        self.worker = HandWorker()

    def recover(self) -> None:
        recovery.recover_lost(get_instance())

    def wait(self) -> None:
        self.traveller.shift(TIMEOUT + 1)
        self.worker.beat()
        recovery.time_out_overdue(get_instance())
        early_answers.match_early(get_instance())

    def end(self) -> Job:
        """Answer what is missing and let the job run to its end."""
        self.is_broken = False
        self.enqueue()
        for part in PARTS:
            self.answer(part, 3)
        for _ in range(ROUNDS):
            self.recover()
            self.wait()
            self.worker.work()
            if Job.objects.filter(state="final").exists():
                break
        early_answers.expire_early(get_instance())
        return Job.objects.get()


@contextmanager
def rolled_back() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_each_part_counts_exactly_once(
    declare: Declare, frozen_time: time_machine.Traveller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "hipq_django")
    life = Life(declare, frozen_time)

    @settings(max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck))
    @given(steps)
    def lives(steps: list[Any]) -> None:
        with rolled_back():
            life.start()
            for step in steps:
                life.do(step)

            job = life.end()

            assert (job.outcome, job.result) == ("succeeded", life.first), job.error
            assert life.handled[-1] == life.first
            accepted = Answer.objects.filter(status="accepted", kind="response")
            assert sorted(accepted.values_list("part", flat=True)) == sorted(PARTS)
            assert not Answer.objects.filter(status="early").exists()

    lives()
