"""What each process of the project does when it starts."""

from __future__ import annotations

import os
from typing import Any

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    """Writes the ends of jobs into the ledger, and lets the harness move this machine's clock."""

    name = "chaos.project"
    label = "chaos_project"

    def ready(self) -> None:
        """Connect to the queue's signal, once models are there."""
        from hipq_django.signals import job_finished

        job_finished.connect(_finished, dispatch_uid="chaos")
        if path := os.environ.get("CHAOS_CLOCK"):
            from chaos.project.clock import follow

            follow(path)


def _finished(job: Any, **_: Any) -> None:
    from chaos.project.notes import ledger

    ledger().write("finished", job.job_data["key"], job.attempt, outcome=job.outcome)
