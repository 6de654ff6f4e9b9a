"""Editing a waiting job; a worker that claims it meanwhile wins."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from django.utils.translation import gettext_lazy as _

from hipq_django.admin.fields import EditForm, NumberField, checked
from hipq_django.domain.job_options import EDITED, checks
from hipq_django.domain.validation import aware_moment, checked_factor, checked_priority
from hipq_django.models import Job

EDITABLE = tuple(checks(EDITED))


def wanted_time(job: Job) -> datetime:
    """Return when the job is to run; of one that waits for others, from when on."""
    return job.hold_time or job.scheduled_run_time


class JobForm(EditForm):
    """What of a waiting job may be edited."""

    priority = NumberField(checked_priority, help_text=_("Lower values run sooner."))
    throttle_factor = NumberField(
        checked_factor,
        help_text=_("How much it counts against the limit; with 0 the limit never holds it back."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["scheduled_run_time"] = wanted_time(self.instance)

    def clean_scheduled_run_time(self) -> datetime:
        """Return the moment; raise `ValidationError` where `enqueue` would refuse it."""
        name = "scheduled_run_time"
        moment: datetime = checked(partial(aware_moment, name), self.cleaned_data[name])
        return moment
