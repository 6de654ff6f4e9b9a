"""The job of `manage.py demo_shards`, whose instance has two databases."""

import time

from django.conf import settings

import hipq_django as hipq
from hipq_django.models import Job

SECONDS = 0.4

if settings.SHARDS_FOLDER:

    @hipq.job_type("pack", queue="warehouse", instance="sharded")
    def pack(_: Job) -> None:
        """Pack a parcel of a tenant."""
        time.sleep(SECONDS)
