"""What partners do: they answer, more than once and at any time, and report."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

import hipq_django as hipq
from hipq_django.answers.api import answer_callback
from hipq_django.answers.callback_urls import Token
from hipq_django.domain.parts import UNNAMED, is_wanted
from hipq_django.domain.states import NONE, Outcome, Phase, State
from hipq_django.models import Answer, Job
from tests.job_life.actors import Until
from tests.job_life.life import LIVE, Life
from tests.job_life.moves import (
    KEYS,
    KINDS,
    MAX_MESSAGES,
    MESSAGES,
    NAMES,
    PAYLOADS,
    PICKS,
    UNTIL,
    live_job,
    move,
    picked,
)
from tests.job_life.scripts import TYPES, WAITS

Kind, Status = Answer.Kind, Answer.Status


class Partners(Life):
    """Those who answer."""

    @move(6, message=MESSAGES, until=UNTIL)
    def answer_by_key(self, message: tuple[Any, ...], until: Until) -> None:
        pick, key, kind, payload, wanted, message_id = message
        name, key, part = self._target(pick, key, wanted)
        live = live_job(name, key)
        known = Answer.objects.filter(job_type=name, message_id=message_id or "").first()
        send = hipq.complete if kind == Kind.RESPONSE else hipq.fail
        step = self.steps.begin(
            "answer", lambda: send(name, key, payload, message_id=message_id, part=part), until
        )
        if step.was_alone and known:
            assert step.result == known
        elif step.was_alone and live and _awaits(live, kind):
            self._check_first(step.result, live)

    def _target(self, pick: int, key: str, part: str | None) -> tuple[str, str, str | None]:
        """Return the type, key and part of an answer: mostly to a job whose handler executes."""
        keyed = [job for job in self.before.in_state(*LIVE) if job["job_key"] != NONE]
        keyed = [job for job in keyed if job["phase"] == Phase.REQUEST] * 3 + keyed
        if pick % 4 and keyed:
            job = picked(keyed, pick)
            name, key = job["type_name"], job["job_key"]
        else:
            name = picked(self.types, pick)
        return name, key, part if name.startswith("parts") else None

    def _check_first(self, answer: Answer, job: Job) -> None:
        name = job.job_type.name
        if name in WAITS:
            self._check_first_part(answer, job)
            return
        if job.expects:  # its handler waits for a part, which this answer does not name
            return
        assert answer.status == Status.ACCEPTED
        job.refresh_from_db()
        if "on_response" in TYPES[name]:
            assert job.has_pending_answer
        else:
            assert (job.outcome, job.result) == (Outcome.SUCCEEDED, answer.payload)

    def _check_first_part(self, answer: Answer, job: Job) -> None:
        is_first = not job.answers.exclude(pk=answer.pk).exists()
        if is_first and answer.part and is_wanted(job.expects or [answer.part], answer.part):
            assert answer.status in (Status.ACCEPTED, Status.EARLY)

    @move(2, messages=st.lists(MESSAGES, min_size=2, max_size=MAX_MESSAGES), until=UNTIL)
    def answer_many(self, messages: list[tuple[Any, ...]], until: Until) -> None:
        new = []
        for pick, key, kind, payload, wanted, message_id in messages:
            name, target, part = self._target(pick, key, wanted)
            said = {"response" if kind == Kind.RESPONSE else "error": payload}
            new.append(hipq.NewAnswer(name, target, **said, message_id=message_id, part=part))
        self.steps.begin("answers", lambda: hipq.receive_many(new), until)

    @move(4, pick=PICKS, kind=KINDS, payload=PAYLOADS, part=NAMES, until=UNTIL)
    def answer_by_url(
        self, pick: int, kind: str, payload: str, part: str | None, until: Until
    ) -> None:
        """Mostly about a job that is live, maybe about an attempt that is over."""
        live = {job["id"] for job in self.before.in_state(*LIVE)}
        sent = sorted(self.code.sent)
        sent = [request for request in sent if request[0] in live] * 2 + sent
        if not sent:
            return
        pk, attempt = picked(sent, pick)
        job = Job.objects.select_related("job_type").filter(pk=pk).first()
        has_parts = job is not None and job.job_type.name.startswith("parts")
        token = Token("default", pk, attempt, part if part and has_parts else UNNAMED)
        is_open = job is not None and _is_open(job)
        step = self.steps.begin("callback", lambda: answer_callback(token, kind, payload), until)
        if not step.was_alone:
            return
        answer = step.result
        if job and (before := self.answered_by_url.get(token)):
            assert answer.status in (Status.DUPLICATE, Status.LATE)
            assert answer.status == Status.DUPLICATE or before != (kind, payload)
        elif job and is_open and kind == Kind.RESPONSE:
            self._check_first(answer, job)
        if answer.status == Status.ACCEPTED:
            self.answered_by_url[token] = (kind, payload)

    @move(
        pick=PICKS,
        key=KEYS,
        percent=st.sampled_from([0, 40, 100]),
        seconds=st.sampled_from([1, 30, 900]),
        until=UNTIL,
    )
    def report(self, pick: int, key: str, percent: int, seconds: int, until: Until) -> None:
        """The partner says how far it is and that it needs more time."""
        name, key, _ = self._target(pick, key, None)
        live = live_job(name, key)
        step = self.steps.begin(
            "report",
            lambda: (hipq.progress(name, key, percent), hipq.extend(name, key, seconds)),
            until,
        )
        if not step.was_alone:
            return
        is_running = live is not None and live.state == State.RUNNING
        is_told, deadline = step.result
        assert is_told == is_running
        if live is None or not is_running:
            assert deadline is None
            return
        live.refresh_from_db()
        assert (live.progress, live.deadline) == (percent, deadline)
        assert live.deadline <= live.start_time + timedelta(seconds=10 * live.timeout)


def _awaits(job: Job, kind: str) -> bool:
    return kind == Kind.RESPONSE and job.state == State.RUNNING and not job.has_pending_answer


def _is_open(job: Job) -> bool:
    settled = job.answers.filter(status__in=(Status.ACCEPTED, Status.DISCARDED))
    return not (job.is_final or job.has_pending_answer or settled.exists())
