"""The addresses of the example project."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("flow/", include("hipq_django.flow.urls")),
    path("", include("example_project.payments.urls")),
    path("reminders/", include("example_project.reminders.urls")),
    path("events/", include("example_project.events.urls")),
    path("admin/", admin.site.urls),
    # Where the bank POSTs its answers to; hipq.callback_url(job) makes the address.
    path("hipq/", include("hipq_django.urls")),
]
