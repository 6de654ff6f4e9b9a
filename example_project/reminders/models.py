"""What users want to be reminded of."""

from django.db import models


class Reminder(models.Model):
    """A text to send at a time, unless the user puts it off or is done before."""

    text = models.CharField(max_length=200)
    email = models.EmailField()
    remind_time = models.DateTimeField()
    is_done = models.BooleanField(default=False)
    sent_time = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["is_done", "remind_time"]

    def __str__(self) -> str:
        return self.text

    @property
    def key(self) -> str:
        """By this key the job of the reminder is found again."""
        return f"reminder-{self.pk}"
