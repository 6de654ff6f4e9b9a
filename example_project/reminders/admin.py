"""Reminders in the admin."""

from django.contrib import admin

from example_project.reminders.models import Reminder


@admin.register(Reminder)
class ReminderAdmin(admin.ModelAdmin):
    """All reminders, to look at."""

    list_display = ["id", "text", "remind_time", "is_done", "sent_time"]
