"""Events in the admin."""

from django.contrib import admin

from example_project.events.models import Event


@admin.register(Event)
class EventAdmin(admin.ModelAdmin):
    """All events, to look at."""

    list_display = ["event_id", "account", "name", "create_time"]
