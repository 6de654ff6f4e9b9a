"""A partner in tests: another system that answers jobs, by their real signed callback URLs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol
from urllib.parse import urlsplit

from django.test import Client, RequestFactory

from hipq_django.answers.api import complete, fail
from hipq_django.answers.callback_urls import callback_url
from hipq_django.conf.instances import InstanceSettings
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.domain.states import NONE, State
from hipq_django.exceptions import InvalidJobError
from hipq_django.job_types.declaration import Declaration
from hipq_django.job_types.registry import find_declared, names_of
from hipq_django.models import Job
from hipq_django.models.undeclared_names import check_declared


class TaskOfDjango(Protocol):
    """A task of `django.tasks`."""

    @property
    def module_path(self) -> str:
        """Its path, which is the name of its job type."""

    def get_backend(self) -> Any:
        """Return the backend of its jobs."""


Asked = str | Declaration | TaskOfDjango
"""A job type by its name, by what `task` or `job_type` has returned, or as a task of Django."""


def named(job_type: Asked, instance: str) -> tuple[str, str]:
    """Return the name of a job type, and its instance; a task has its own."""
    if isinstance(job_type, str):
        return job_type, instance
    if isinstance(job_type, Declaration):
        return job_type.name, job_type.instance
    return job_type.module_path, job_type.get_backend().instance


def check_known(verb: str, name: str, instance: str) -> None:
    """Refuse, as `enqueue` does, a name that no code declares: with it no test would fail."""
    if find_declared(instance, name, "django.tasks") is None:
        check_declared(instance, name, verb)


LATE = timedelta(seconds=1)
"""How long after the timeout a late answer comes."""


@dataclass(eq=False)
class Partner:
    """Answers the jobs of one type while a test runs jobs; see `partner`."""

    job_type: str
    response: Any = None
    after: float = 0
    instance: str = DEFAULT
    error: Any = None
    times: int = 1
    is_silent: bool = False
    is_early: bool = False
    is_late: bool = False
    parts: dict[str, Any] = field(default_factory=dict)

    def fails(self, error: Any) -> Partner:
        """Let it answer with an error."""
        self.error = error
        return self

    def twice(self) -> Partner:
        """Let it send each answer twice."""
        self.times = 2
        return self

    def never(self) -> Partner:
        """Let it not answer."""
        self.is_silent = True
        return self

    def early(self) -> Partner:
        """Let it answer before the handler has run, by the key of the job, which it has to have.

        The callback URL of an attempt is not known before the attempt.
        """
        self.is_early = True
        return self

    def late(self) -> Partner:
        """Let it answer an attempt when that has timed out."""
        self.is_late = True
        return self

    def part(self, name: str, response: Any = None) -> Partner:
        """Let it answer this part, of several that jobs wait for."""
        self.parts[name] = self.response if response is None else response
        return self


@dataclass
class _Answer:
    """An answer on its way."""

    at: datetime
    url: str
    body: dict[str, Any]
    times: int


_partners: list[Partner] = []
_on_the_way: list[_Answer] = []
_seen: set[tuple[str, int, datetime, int]] = set()
"""Database, job and attempt that were asked already; attempt 0 for early answers.

After a rollback another job may have the same id, but it was created at another time.
"""


def partner(
    job_type: Asked, response: Any = None, *, after: float = 0, instance: str = DEFAULT
) -> Partner:
    """Let a partner answer the jobs of a type with `response`, `after` so many seconds.

    It answers while `run_due_jobs`, `run_for` or `run_until` run, by a POST to the signed callback
    URL of the attempt, so the project's URLs have to include `hipq_django.urls`. What it returns
    has methods for other answers: `.fails("declined")`, `.twice()`, `.early()`, `.late()`,
    `.never()`, `.part("front")`. A later partner of the same type takes the place of this one, for
    the requests that follow. Raise `InvalidJobTypeError` for a name that no code declares.
    """
    name, place = named(job_type, instance)
    check_known("partner", name, place)
    made = Partner(name, response, after, place)
    _partners[:] = [known for known in _partners if not _is_same(known, made)]
    _partners.append(made)
    return made


def _is_same(known: Partner, made: Partner) -> bool:
    """Return whether both answer the same jobs."""
    names = names_of(made.instance, made.job_type)
    return known.instance == made.instance and known.job_type in names


def forget_partners() -> None:
    """Forget all partners and what they were about to answer; fixtures do it after each test."""
    _partners.clear()
    _on_the_way.clear()
    _seen.clear()


def next_answer() -> datetime | None:
    """Return when the next answer comes."""
    return min((answer.at for answer in _on_the_way), default=None)


def answer_due(config: InstanceSettings) -> int:
    """Let partners take note of jobs that wait for them, and send what is due; return how many."""
    if not _partners:
        return 0
    now = clock.now(config.database)
    moved = sum(_take_note(known, config, now) for known in _partners)
    due = [answer for answer in _on_the_way if answer.at <= now]
    for answer in due:
        _on_the_way.remove(answer)
        for _ in range(answer.times):
            _post(answer)
    return moved + len(due)


def _take_note(known: Partner, config: InstanceSettings, now: datetime) -> int:
    """Put the answers to new requests on their way; return how many came early."""
    if known.is_silent or known.instance != config.name:
        return 0
    jobs = Job.objects.using(config.database).select_related("queue", "job_type")
    names = names_of(config.name, known.job_type)
    jobs = jobs.filter(job_type__name__in=names, job_type__instance=config.name)
    if known.is_early:
        waiting = jobs.filter(state=State.INITIAL, attempt=0)
        return sum(_answer_early(known, job) for job in waiting if _is_new(job, 0))
    for job in jobs.running().filter(worker__isnull=True, has_pending_answer=False):
        if _is_new(job, job.attempt):
            _on_the_way.extend(_answers(known, job, now))
    return 0


def _is_new(job: Job, attempt: int) -> bool:
    key = (job.using, job.pk, job.create_time, attempt)
    is_new = key not in _seen
    _seen.add(key)
    return is_new


def _answer_early(known: Partner, job: Job) -> int:
    if job.job_key == NONE:
        raise InvalidJobError(
            f"partner of {known.job_type!r}: {job} has no job_key, and without it no answer can "
            "come before the handler has run; give it one, or leave out early()."
        )
    key = (job.job_type.name, job.job_key)
    for _ in range(known.times):
        for part, body in _bodies(known):
            verb = fail if "error" in body else complete
            where = {"instance": known.instance, "shard_key": job.shard_key or job.job_key}
            verb(*key, *body.values(), part=part, **where)
    return 1


def _answers(known: Partner, job: Job, now: datetime) -> list[_Answer]:
    at = job.deadline + LATE if known.is_late else now + timedelta(seconds=known.after)
    return [_Answer(at, _url(job, part), body, known.times) for part, body in _bodies(known)]


def _bodies(known: Partner) -> list[tuple[str | None, dict[str, Any]]]:
    """Return what the partner answers: each part by its name, or the whole by None."""
    if known.error is not None:
        return [(None, {"error": known.error})]
    parts: list[tuple[str | None, Any]] = [*known.parts.items()] or [(None, known.response)]
    return [(part, {"response": response}) for part, response in parts]


def _url(job: Job, part: str | None) -> str:
    return callback_url(job, part=part, request=RequestFactory().get("/"))


def _post(answer: _Answer) -> None:
    parts = urlsplit(answer.url)
    body = json.dumps(answer.body)
    # Securely, or a site with SECURE_SSL_REDIRECT would send the partner there.
    reply = Client().post(parts.path, body, content_type="application/json", secure=True)
    is_late = reply.status_code == 410 and reply.json() == {"status": "late"}  # as `late()` wants
    if reply.status_code >= 300 and not is_late:
        raise AssertionError(
            f"the callback of a partner's answer was refused with {reply.status_code}: "
            f"{reply.content.decode(errors='replace')}"
        )
