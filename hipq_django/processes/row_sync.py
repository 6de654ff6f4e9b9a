"""Keeps the rows of queues, job types and schedules as the setting and the code of a worker say.

The worker that began last counts: it is the one of the newest release. One of the release before
may be started again, though; once it has ended, the others write anew what it has changed.
"""

from __future__ import annotations

from django.db.models import Count, Max, Q, QuerySet

from hipq_django import events
from hipq_django.conf.instances import InstanceSettings
from hipq_django.domain.states import NONE
from hipq_django.models import Worker, catalog
from hipq_django.schedules import declared
from hipq_django.sharing.limits import LimitNotChangedError, follow_setting


class RowSync:
    """Writes the rows at the start of a worker, and at its heartbeats what is left."""

    def __init__(self, config: InstanceSettings) -> None:
        self._config = config
        self._has_rows = False
        self._is_first_shard = config.database == config.shards[0]
        """Whether the schedules are here: growing would fire them twice if they were elsewhere."""
        self.has_schedules = False
        """Whether the rows of schedules say what is declared; until then none is retired."""
        self._has_begun = False
        self._rows: list[int] = []
        """The ids that the worker has had: others may declare it lost, and it goes on."""
        self._last_ended = 0
        """The last id of a worker that began after this one, and has ended, as of the last look."""

    def start(self) -> None:
        """Write the rows of queues and job types before there is a row of the worker."""
        self._write_rows(is_newest=True)

    def registered(self, worker: Worker) -> None:
        """Declare the schedules anew, as a worker with this row."""
        self._rows.append(worker.pk)
        self.has_schedules = False

    def declare(self) -> int:
        """Write what is left, and everything if workers have ended that began after this one."""
        is_newest = self._is_newest() or not self._has_begun
        if not self._has_rows:
            self._write_rows(is_newest=is_newest)
        if self._is_first_shard and not self.has_schedules:
            self.has_schedules = not declared.sync(self._config.name, is_newest=is_newest)
        self._has_begun = True
        return 0

    def retire(self) -> int:
        """Retire the schedules that no worker declares, once this one has declared its own."""
        return declared.retire(self._config) if self.has_schedules else 0

    def _write_rows(self, *, is_newest: bool) -> None:
        if is_newest:
            self._follow_limits()
        left = catalog.sync(self._config.name, is_newest=is_newest)
        self._has_rows = not left
        if left:
            events.warning("rows_not_written", "somebody has locked them", rows=left)

    def _follow_limits(self) -> None:
        try:
            follow_setting(self._config)
        except LimitNotChangedError as error:
            events.warning("limit_not_changed", str(error))

    def _is_newest(self) -> bool:
        """Whether no live worker has begun after this one."""
        live = Count("pk", filter=Q(state__in=Worker.LIVE))
        later = self._later().aggregate(live=live, last=Max("pk"))
        if later["live"]:
            return False
        if (later["last"] or 0) > self._last_ended:
            self._last_ended = later["last"]
            self._has_rows = self.has_schedules = False
        return True

    def _later(self) -> QuerySet[Worker]:
        workers = Worker.objects.using(self._config.database).filter(instance=self._config.name)
        first = min(self._rows, default=0)
        return workers.filter(source=NONE, pk__gt=first).exclude(pk__in=self._rows)
