"""What happened, as accounts tell it."""

from django.db import models


class Event(models.Model):
    """Something that happened in an account; `event_id` is the sender's own."""

    event_id = models.CharField(max_length=255, unique=True)
    account = models.CharField(max_length=100)
    name = models.CharField(max_length=100)
    create_time = models.DateTimeField()

    class Meta:
        ordering = ["-create_time"]
        indexes = [models.Index(fields=["account", "create_time"], name="event_of_day")]

    def __str__(self) -> str:
        return f"{self.account}: {self.name}"
