"""The shop's page."""

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from example_project.payments.forms import OrderForm
from example_project.payments.jobs import charge
from example_project.payments.models import Order

ORDERS_PER_PAGE = 50


@require_http_methods(["GET", "POST"])
def shop(request: HttpRequest) -> HttpResponse:
    """Show the orders; take a new one."""
    form = OrderForm(request.POST or None)
    if form.is_valid():
        place(form)
        return redirect("shop")
    return render(request, "payments/shop.html", {"form": form, "orders": latest_orders()})


def place(form: OrderForm) -> None:
    """Store the order and its job in one transaction: both are there, or neither is."""
    with transaction.atomic():
        charge(form.save())


def latest_orders() -> list[Order]:
    """Return the orders the page has room for, newest first."""
    return list(Order.objects.all()[:ORDERS_PER_PAGE])
