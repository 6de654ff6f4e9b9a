"""What a customer fills in."""

from django import forms

from example_project.payments.models import Order


class OrderForm(forms.ModelForm):
    """An order that is to be placed."""

    class Meta:
        model = Order
        fields = ["item", "amount"]
