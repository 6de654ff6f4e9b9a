"""Accounts and their nightly reports."""

from django.db import models


class Account(models.Model):
    """A customer who sends events."""

    name = models.CharField(max_length=100, unique=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Report(models.Model):
    """What an account did on the day before `night`; ordered first, filled in by its job."""

    account = models.ForeignKey(Account, models.CASCADE)
    night = models.DateField()
    events = models.PositiveIntegerField(default=0)
    is_ready = models.BooleanField(default=False)

    class Meta:
        ordering = ["-night", "account"]
        constraints = [
            models.UniqueConstraint(fields=["account", "night"], name="one_report_a_night")
        ]

    def __str__(self) -> str:
        return f"{self.account}, {self.night}"

    @property
    def key(self) -> str:
        """The key of the report's job."""
        return f"{self.account_id}-{self.night}"
