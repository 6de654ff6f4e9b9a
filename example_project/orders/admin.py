"""Purchases in the admin."""

from django.contrib import admin

from example_project.orders.models import Purchase


@admin.register(Purchase)
class PurchaseAdmin(admin.ModelAdmin):
    """All purchases, to look at."""

    list_display = ["id", "item", "quantity", "state", "supplier_said", "create_time"]
    list_filter = ["state"]
