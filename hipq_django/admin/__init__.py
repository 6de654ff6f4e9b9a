"""The Django admin of the queues.

`admin.site` shows the rows of the default instance's database. For an instance in another one,
register the same classes on a site of its own: `site.register(Job, JobAdmin, using="other")`. Rows
with the same id share their history in the admin.
"""

from hipq_django.admin.answers import AnswerAdmin as AnswerAdmin
from hipq_django.admin.batches import BatchAdmin as BatchAdmin
from hipq_django.admin.job_types import JobTypeAdmin as JobTypeAdmin
from hipq_django.admin.jobs import JobAdmin as JobAdmin
from hipq_django.admin.queues import QueueAdmin as QueueAdmin
from hipq_django.admin.schedules import ScheduleAdmin as ScheduleAdmin
from hipq_django.admin.workers import WorkerAdmin as WorkerAdmin
