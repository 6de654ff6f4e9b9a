"""What flows add to the queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.db.models import Q

from hipq_django.conf.instances import InstanceSettings
from hipq_django.extensions import Extension
from hipq_django.flow import upkeep
from hipq_django.flow.declaring import KIND
from hipq_django.flow.models import LogEntry, Request
from hipq_django.flow.publishing import announce_components
from hipq_django.flow.runs import dispatching
from hipq_django.flow.runs.companion import Runs
from hipq_django.flow.stages import any_staged, wake_stages
from hipq_django.models import Worker
from hipq_django.monitoring.doctor import Finding


class FlowExtension(Extension):
    """Runs nodes as jobs, and shows the tables of flows to operators."""

    kind = KIND
    migrated_app = "hipq_flow"

    def __init__(self) -> None:
        self.companion = Runs()

    def worker_started(self, worker: Worker) -> None:
        """Publish the components that it serves."""
        announce_components(worker)

    def may_follow(self, using: str) -> bool:
        """Return whether stages may have enqueued jobs."""
        return any_staged.is_possible(using)

    def jobs_ended(self, ids: Collection[int], using: str) -> None:
        """Wake the stages that have enqueued them."""
        wake_stages(ids, using)

    def jobs_given_up(self, ids: Collection[int], using: str) -> None:
        """Wake the nodes whose runs they are."""
        dispatching.wake_ended(ids, using)

    def old_rows(self, config: InstanceSettings, days: float | None) -> Mapping[str, Any]:
        """Return old log entries and requests."""
        models = {"flow log": LogEntry, "flow requests": Request}
        return {name: upkeep.old(model, config, days) for name, model in models.items()}

    def needed_jobs(self, using: str) -> Q:
        """Return the condition of jobs whose ends stages have not handed on yet."""
        return upkeep.needed_by_stages(using)

    def counts(self, config: InstanceSettings) -> Mapping[str, dict[str, float]]:
        """Return the figures of nodes and messages."""
        return {"flows": upkeep.count(config)}

    def findings(self, config: InstanceSettings) -> Iterable[Finding]:
        """Return what is wrong with flows."""
        return upkeep.examine(config)
