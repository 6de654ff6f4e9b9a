"""Purchases: what the shop knows of its orders at the supplier."""

from django.core.validators import MinValueValidator
from django.db import models


class Purchase(models.Model):
    """Something that the shop orders from its supplier."""

    class State(models.TextChoices):
        """How far it is."""

        WAITING = "waiting", "waiting for the supplier"
        CONFIRMED = "confirmed", "confirmed"
        REFUSED = "refused", "refused"

    item = models.CharField(max_length=100)
    quantity = models.PositiveIntegerField(validators=[MinValueValidator(1)])
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    supplier_said = models.TextField(blank=True)
    create_time = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"purchase {self.pk}"

    @property
    def key(self) -> str:
        """What the shop calls this purchase when it talks to the supplier."""
        return f"purchase-{self.pk}"
