"""What operators do by hand."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction
from hypothesis import strategies as st

import hipq_django as hipq
from hipq_django.answers import api
from hipq_django.answers.classification import refusal
from hipq_django.domain.states import NONE, WAITING, State
from hipq_django.exceptions import DuplicateJobKeyError, InvalidAnswerError, InvalidJobError
from hipq_django.maintenance import retention
from hipq_django.models import Answer, Job, Queue
from tests.job_life.actors import END, Until
from tests.job_life.life import Life
from tests.job_life.moves import PICKS, UNTIL, live_job, move, picked
from tests.job_life.scripts import LIMIT, NARROW, UNOWNED

Status = Answer.Status


class Operators(Life):
    """Those who look after the queues."""

    @move(pick=PICKS, other=PICKS, until=UNTIL)
    def match_by_hand(self, pick: int, other: int, until: Until) -> None:
        free = list(Answer.objects.filter(job=None).order_by("pk"))
        job = self._any_job(other)
        if not (free and job):
            return
        answer, pk = picked(free, pick), job.pk
        reason = refusal(answer, job)
        step = self.steps.begin(
            "match", lambda: api.assign(answer, pk), until, refusals=(InvalidAnswerError,)
        )
        if step.was_alone:
            assert bool(step.refusal) == bool(reason)
        if step.was_alone and not step.refusal:
            assert step.result.job == job
            assert step.result.status in (Status.ACCEPTED, Status.EARLY)

    def _any_job(self, pick: int) -> Job | None:
        if not self.before.jobs:
            return None
        pk = picked(sorted(self.before.jobs), pick)
        return Job.objects.select_related("job_type").get(pk=pk)

    @move(
        2,
        pick=PICKS,
        verb=st.sampled_from([hipq.run_now, hipq.requeue, hipq.cancel]),
        until=UNTIL,
    )
    def operate(self, pick: int, verb: Callable[[Job], Job], until: Until) -> None:
        job = self._any_job(pick)
        if job is None:
            return
        is_allowed: dict[Callable[[Job], Job], bool] = {
            hipq.run_now: job.state in WAITING,
            hipq.requeue: job.is_final,
            hipq.cancel: not job.is_final,
        }
        holder = live_job(job.job_type.name, job.job_key)
        step = self.steps.begin(
            verb.__name__,
            lambda: verb(job),
            until,
            refusals=(InvalidJobError, DuplicateJobKeyError),
        )
        if not step.was_alone:
            return
        if isinstance(step.refusal, DuplicateJobKeyError):
            assert step.refusal.job == holder
        else:
            assert bool(step.refusal) != is_allowed[verb]

    @move(until=UNTIL)
    def prune(self, until: Until) -> None:
        self.steps.begin("prune", lambda: retention.prune(self.config, days=0), until)

    @move(2, pick=PICKS, until=UNTIL)
    def prune_what_is_answered(self, pick: int, until: Until) -> None:
        """Final jobs are pruned while an answer to one of them is being stored."""
        final = [job for job in self.before.in_state(State.FINAL) if job["job_key"] != NONE]
        if not final:
            return
        job = picked(final, pick)
        self.traveller.shift(1)
        self.steps.begin(
            "late answer", lambda: hipq.complete(job["type_name"], job["job_key"], "late"), until
        )
        self.prune(END)

    @move(
        name=st.sampled_from([UNOWNED, NARROW]),
        limit=st.sampled_from([1, LIMIT, 2 * LIMIT]),
        is_paused=st.sampled_from([False] * 7 + [True]),
        until=UNTIL,
    )
    def change_queue(self, name: str, limit: int, is_paused: bool, until: Until) -> None:
        """A queue without a limit keeps none: who claims from it does not lock its row."""
        values = {"paused": is_paused} | ({"throttle_limit": limit} if name == NARROW else {})

        def change() -> None:
            with transaction.atomic():  # else it would be committed with whom it waits for
                Queue.objects.filter(name=name).update(**values)

        self.steps.begin("change queue", change, until)
