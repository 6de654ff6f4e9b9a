"""The verbs about one job, as methods of a declared type that take the job's key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hipq_django

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.domain.reasons import Reason
    from hipq_django.models import Answer, Job


class VerbsByKey:
    """Each method does what the function of the same name in `hipq_django` does."""

    name: str
    instance: str

    def complete(
        self,
        job_key: str,
        response: Any = None,
        *,
        message_id: str | None = None,
        part: str | None = None,
    ) -> Answer:
        """See `hipq_django.complete`."""
        return hipq_django.complete(
            self.name, job_key, response, message_id=message_id, part=part, instance=self.instance
        )

    def fail(
        self, job_key: str, error: Any, *, message_id: str | None = None, part: str | None = None
    ) -> Answer:
        """See `hipq_django.fail`."""
        return hipq_django.fail(
            self.name, job_key, error, message_id=message_id, part=part, instance=self.instance
        )

    def progress(self, job_key: str, percent: float, message: str = "") -> bool:
        """See `hipq_django.progress`."""
        return hipq_django.progress(self.name, job_key, percent, message, instance=self.instance)

    def extend(self, job_key: str, seconds: float) -> datetime | None:
        """See `hipq_django.extend`."""
        return hipq_django.extend(self.name, job_key, seconds, instance=self.instance)

    def cancel(self, job_key: str, reason: str = "", *, descendants: bool = False) -> Job:
        """See `hipq_django.cancel`."""
        return hipq_django.cancel(
            self.name, job_key, reason, descendants=descendants, instance=self.instance
        )

    def run_now(self, job_key: str) -> Job:
        """See `hipq_django.run_now`."""
        return hipq_django.run_now(self.name, job_key, instance=self.instance)

    def reschedule(self, job_key: str, at: datetime) -> Job:
        """See `hipq_django.reschedule`."""
        return hipq_django.reschedule(self.name, job_key, at, instance=self.instance)

    def reprioritize(self, job_key: str, priority: int) -> Job:
        """See `hipq_django.reprioritize`."""
        return hipq_django.reprioritize(self.name, job_key, priority, instance=self.instance)

    def requeue(self, job_key: str, *, dependents: bool = False) -> Job:
        """See `hipq_django.requeue`."""
        return hipq_django.requeue(
            self.name, job_key, dependents=dependents, instance=self.instance
        )

    def explain(self, job_key: str) -> list[Reason]:
        """See `hipq_django.explain`."""
        return hipq_django.explain(self.name, job_key, instance=self.instance)

    async def acomplete(
        self,
        job_key: str,
        response: Any = None,
        *,
        message_id: str | None = None,
        part: str | None = None,
    ) -> Answer:
        """See `hipq_django.acomplete`."""
        return await hipq_django.acomplete(
            self.name, job_key, response, message_id=message_id, part=part, instance=self.instance
        )

    async def afail(
        self, job_key: str, error: Any, *, message_id: str | None = None, part: str | None = None
    ) -> Answer:
        """See `hipq_django.afail`."""
        return await hipq_django.afail(
            self.name, job_key, error, message_id=message_id, part=part, instance=self.instance
        )

    async def aprogress(self, job_key: str, percent: float, message: str = "") -> bool:
        """See `hipq_django.aprogress`."""
        return await hipq_django.aprogress(
            self.name, job_key, percent, message, instance=self.instance
        )

    async def aextend(self, job_key: str, seconds: float) -> datetime | None:
        """See `hipq_django.aextend`."""
        return await hipq_django.aextend(self.name, job_key, seconds, instance=self.instance)

    async def acancel(self, job_key: str, reason: str = "", *, descendants: bool = False) -> Job:
        """See `hipq_django.acancel`."""
        return await hipq_django.acancel(
            self.name, job_key, reason, descendants=descendants, instance=self.instance
        )

    async def arun_now(self, job_key: str) -> Job:
        """See `hipq_django.arun_now`."""
        return await hipq_django.arun_now(self.name, job_key, instance=self.instance)

    async def areschedule(self, job_key: str, at: datetime) -> Job:
        """See `hipq_django.areschedule`."""
        return await hipq_django.areschedule(self.name, job_key, at, instance=self.instance)

    async def areprioritize(self, job_key: str, priority: int) -> Job:
        """See `hipq_django.areprioritize`."""
        return await hipq_django.areprioritize(self.name, job_key, priority, instance=self.instance)

    async def arequeue(self, job_key: str, *, dependents: bool = False) -> Job:
        """See `hipq_django.arequeue`."""
        return await hipq_django.arequeue(
            self.name, job_key, dependents=dependents, instance=self.instance
        )

    async def aexplain(self, job_key: str) -> list[Reason]:
        """See `hipq_django.aexplain`."""
        return await hipq_django.aexplain(self.name, job_key, instance=self.instance)
