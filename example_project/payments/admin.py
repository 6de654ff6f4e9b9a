"""Orders in the admin."""

from django.contrib import admin

from example_project.payments.models import Order


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    """All orders, to look at."""

    list_display = ["id", "item", "amount", "state", "bank_said", "create_time"]
    list_filter = ["state"]
