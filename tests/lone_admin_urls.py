"""Admin sites of which each shows the rows of one model alone."""

from django.contrib.admin import AdminSite
from django.urls import path

from hipq_django.admin import (
    AnswerAdmin,
    BatchAdmin,
    JobAdmin,
    JobTypeAdmin,
    QueueAdmin,
    ScheduleAdmin,
    WorkerAdmin,
)
from hipq_django.models import Answer, Batch, Job, JobType, Queue, Schedule, Worker
from tests.urls import urlpatterns as usual

PAGES = {
    Answer: AnswerAdmin,
    Batch: BatchAdmin,
    Job: JobAdmin,
    JobType: JobTypeAdmin,
    Queue: QueueAdmin,
    Schedule: ScheduleAdmin,
    Worker: WorkerAdmin,
}

urlpatterns = [*usual]
for model, page in PAGES.items():
    site = AdminSite(name=f"only-{model.__name__}")
    site.register(model, page)
    urlpatterns.append(path(f"only-{model.__name__.lower()}/", site.urls))
