"""Orders: what the shop knows, whatever becomes of the jobs."""

from django.core.validators import MinValueValidator
from django.db import models


class Order(models.Model):
    """Something that was bought and is to be paid by card."""

    class State(models.TextChoices):
        """How far the payment is."""

        WAITING = "waiting", "waiting for the bank"
        PAID = "paid", "paid"
        DECLINED = "declined", "declined"

    item = models.CharField(max_length=100)
    amount = models.DecimalField(
        max_digits=9, decimal_places=2, validators=[MinValueValidator(1)], help_text="In euros."
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    bank_said = models.TextField(blank=True)
    create_time = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"order {self.pk}"

    @property
    def key(self) -> str:
        """What the shop calls this order when it talks to the bank."""
        return f"order-{self.pk}"
