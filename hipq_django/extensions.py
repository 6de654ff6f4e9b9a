"""What stands on top of the queue, or beside it, adds to it: each is one `Extension`.

An app registers its extension when Django is ready. The queue itself knows none of them by name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Q

from hipq_django import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hipq_django.conf.instances import InstanceSettings
    from hipq_django.job_types.declaration import Declaration
    from hipq_django.models import Job, Worker
    from hipq_django.monitoring.doctor.findings import Finding
    from hipq_django.scheduler.companions import Companion


class Extension:
    """What an app adds to the queue; each method adds nothing unless it is overridden."""

    kind = ""
    """The kind of the job types that belong to it; empty if none do."""

    migrated_app = ""
    """The label of an app whose migrations workers need, beside those of the queue."""

    companion: Companion | None = None
    """What reads and writes rows beside the jobs of its kind."""

    jobs_finished: Callable[[Sequence[Job], str], None] | None = None
    """Called as `(jobs, using)` after the commit by which jobs of its own kind became final.

    The jobs are as they were read before, but each with its outcome: a call for each job would cost
    more than the job. It must not raise. None while nobody hears it.
    """

    def find(self, instance: str, name: str) -> Declaration | None:
        """Find, and register, the code of a job type of its kind that nothing has declared."""
        return None

    def worker_started(self, worker: Worker) -> None:
        """Act when a worker has registered; an error is logged and does not stop the worker."""

    def may_follow(self, using: str) -> bool:
        """Return whether anything may follow jobs that end; asks the database nothing."""
        return False

    def jobs_ended(self, ids: Collection[int], using: str) -> None:
        """Act after the commit by which these jobs, of any kind, became final, if `may_follow`.

        An error is only logged. A process may die before this call, so a sweep has to find the
        same.
        """

    def jobs_given_up(self, ids: Collection[int], using: str) -> None:
        """Write rows of its own, before the commit, in the transaction that ends these jobs.

        They end without their handler, and are of any kind: an operator has cancelled them, or
        their policy has given up after a timeout or a lost worker.
        """

    def old_rows(self, config: InstanceSettings, days: float | None) -> Mapping[str, Any]:
        """Return the rows that pruning deletes: past their retention, or older than `days`."""
        return {}

    def needed_jobs(self, using: str) -> Q:
        """Return the condition of jobs that pruning has to keep."""
        return Q()

    def counts(self, config: InstanceSettings) -> Mapping[str, dict[str, float]]:
        """Return the figures that the overview of an instance shows, under their headings."""
        return {}

    def findings(self, config: InstanceSettings) -> Iterable[Finding]:
        """Return what the doctor says of its rows."""
        return ()


registered: list[Extension] = []


def register(extension: Extension) -> None:
    """Add an extension to the queue."""
    registered.append(extension)


def companions() -> dict[str, Companion]:
    """Return the companions by the kind of their job types; without flows there are none."""
    return {each.kind: each.companion for each in registered if each.companion is not None}


def hearers_of_ends() -> dict[str, Callable[[Sequence[Job], str], None]]:
    """Return the `jobs_finished` of the extensions that hear it, by kind."""
    return {each.kind: each.jobs_finished for each in registered if each.jobs_finished}


def note_ended(ids: Collection[int], using: str) -> None:
    """Tell the extensions of ended jobs once the current transaction is committed."""
    told = [each for each in registered if each.may_follow(using)] if ids else []
    if told:  # mostly none, and to wait for the commit costs more than to ask
        transaction.on_commit(partial(_tell_of_ends, told, ids, using), using=using)


def note_given_up(ids: Collection[int], using: str) -> None:
    """Tell the extensions, at once and after the commit, of jobs that nobody will run again."""
    if ids:
        for extension in registered:
            extension.jobs_given_up(ids, using)
    note_ended(ids, using)


def _tell_of_ends(told: Iterable[Extension], ids: Collection[int], using: str) -> None:
    """Tell extensions; a failure is logged, for the jobs have ended."""
    for extension in told:
        try:
            extension.jobs_ended(ids, using)
        except Exception as error:
            sentence = "a sweep finds what follows the jobs that have ended"
            events.warning("end_hook_failed", sentence, exception=error)


def tell_of_start(worker: Worker) -> None:
    """Tell the extensions that a worker has registered."""
    for extension in registered:
        try:
            extension.worker_started(worker)
        except Exception as error:
            events.warning("start_hook_failed", worker=worker.name, exception=error)
