"""What a user fills in."""

from datetime import timedelta

from django import forms
from django.utils import timezone

from example_project.reminders.models import Reminder


class ReminderForm(forms.ModelForm):
    """A reminder that is to be planned."""

    minutes = forms.IntegerField(
        label="In how many minutes", initial=30, min_value=0, max_value=60 * 24 * 365
    )

    class Meta:
        model = Reminder
        fields = ["text", "email"]

    def save(self, commit: bool = True) -> Reminder:
        """Turn the minutes into a time."""
        minutes = timedelta(minutes=self.cleaned_data["minutes"])
        self.instance.remind_time = timezone.now() + minutes
        reminder: Reminder = super().save(commit)
        return reminder
