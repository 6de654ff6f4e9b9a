"""The verbs about one job, as methods of a declared type; `by_key.py` makes them of these."""

from datetime import datetime
from typing import Any

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
        shard_key: str | None = None,
    ) -> Answer: ...
    def fail(
        self,
        job_key: str,
        error: Any,
        *,
        message_id: str | None = None,
        part: str | None = None,
        shard_key: str | None = None,
    ) -> Answer: ...
    def progress(
        self, job_key: str, percent: float, message: str = "", *, shard_key: str | None = None
    ) -> bool: ...
    def extend(
        self, job_key: str, seconds: float, *, shard_key: str | None = None
    ) -> datetime | None: ...
    def cancel(
        self,
        job_key: str,
        reason: str = "",
        *,
        descendants: bool = False,
        shard_key: str | None = None,
    ) -> Job: ...
    def run_now(self, job_key: str, *, shard_key: str | None = None) -> Job: ...
    def reschedule(self, job_key: str, at: datetime, *, shard_key: str | None = None) -> Job: ...
    def reprioritize(self, job_key: str, priority: int, *, shard_key: str | None = None) -> Job: ...
    def requeue(
        self, job_key: str, *, dependents: bool = False, shard_key: str | None = None
    ) -> Job: ...
    def explain(self, job_key: str, *, shard_key: str | None = None) -> list[Reason]: ...
    async def acomplete(
        self,
        job_key: str,
        response: Any = None,
        *,
        message_id: str | None = None,
        part: str | None = None,
        shard_key: str | None = None,
    ) -> Answer: ...
    async def afail(
        self,
        job_key: str,
        error: Any,
        *,
        message_id: str | None = None,
        part: str | None = None,
        shard_key: str | None = None,
    ) -> Answer: ...
    async def aprogress(
        self, job_key: str, percent: float, message: str = "", *, shard_key: str | None = None
    ) -> bool: ...
    async def aextend(
        self, job_key: str, seconds: float, *, shard_key: str | None = None
    ) -> datetime | None: ...
    async def acancel(
        self,
        job_key: str,
        reason: str = "",
        *,
        descendants: bool = False,
        shard_key: str | None = None,
    ) -> Job: ...
    async def arun_now(self, job_key: str, *, shard_key: str | None = None) -> Job: ...
    async def areschedule(
        self, job_key: str, at: datetime, *, shard_key: str | None = None
    ) -> Job: ...
    async def areprioritize(
        self, job_key: str, priority: int, *, shard_key: str | None = None
    ) -> Job: ...
    async def arequeue(
        self, job_key: str, *, dependents: bool = False, shard_key: str | None = None
    ) -> Job: ...
    async def aexplain(self, job_key: str, *, shard_key: str | None = None) -> list[Reason]: ...
