"""The rows. `from hipq_django.models import Job, JobType, Queue, Attempt, Answer, Worker`."""

from hipq_django.models.answer import Answer
from hipq_django.models.attempt import Attempt
from hipq_django.models.job import Job
from hipq_django.models.job_type import JobType
from hipq_django.models.queue import Queue
from hipq_django.models.worker import Worker

__all__ = ["Answer", "Attempt", "Job", "JobType", "Queue", "Worker"]
