"""The addresses of the reminders."""

from django.urls import path

from example_project.reminders.views import done, put_off, reminders

urlpatterns = [
    path("", reminders, name="reminders"),
    path("<int:pk>/put-off/", put_off, name="put-off"),
    path("<int:pk>/done/", done, name="done"),
]
