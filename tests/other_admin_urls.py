"""An admin site for the rows of the instance 'other', beside the usual one."""

from django.contrib.admin import AdminSite
from django.urls import path

from hipq_django.admin import (
    AnswerAdmin,
    JobAdmin,
    JobTypeAdmin,
    QueueAdmin,
    ScheduleAdmin,
    WorkerAdmin,
)
from hipq_django.models import Answer, Job, JobType, Queue, Schedule, Worker
from tests.urls import urlpatterns as usual

site = AdminSite(name="other")
site.register(Answer, AnswerAdmin, using="other")
site.register(Job, JobAdmin, using="other")
site.register(JobType, JobTypeAdmin, using="other")
site.register(Queue, QueueAdmin, using="other")
site.register(Schedule, ScheduleAdmin, using="other")
site.register(Worker, WorkerAdmin, using="other")

urlpatterns = [*usual, path("other-admin/", site.urls)]
