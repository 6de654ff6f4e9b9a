"""The rows: `from hipq_django.models import Job`."""

from hipq_django.models.answer import Answer as Answer
from hipq_django.models.attempt import Attempt as Attempt
from hipq_django.models.batch import Batch as Batch
from hipq_django.models.job import Job as Job
from hipq_django.models.job_type import JobType as JobType
from hipq_django.models.link import Link as Link
from hipq_django.models.queue import Queue as Queue
from hipq_django.models.schedule import Schedule as Schedule, ScheduleRun as ScheduleRun
from hipq_django.models.shard import ShardMap as ShardMap, Transfer as Transfer
from hipq_django.models.step import Step as Step
from hipq_django.models.worker import Worker as Worker
