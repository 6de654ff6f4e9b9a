"""The address that events are sent to."""

from django.urls import path

from example_project.events.views import receive

urlpatterns = [path("", receive, name="events")]
