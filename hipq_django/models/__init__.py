"""The rows: `from hipq_django.models import Job`."""

from hipq_django.models.answer import Answer
from hipq_django.models.attempt import Attempt
from hipq_django.models.batch import Batch
from hipq_django.models.job import Job
from hipq_django.models.job_type import JobType
from hipq_django.models.link import Link
from hipq_django.models.queue import Queue
from hipq_django.models.schedule import Schedule, ScheduleRun
from hipq_django.models.step import Step
from hipq_django.models.worker import Worker

__all__ = [
    "Answer",
    "Attempt",
    "Batch",
    "Job",
    "JobType",
    "Link",
    "Queue",
    "Schedule",
    "ScheduleRun",
    "Step",
    "Worker",
]
