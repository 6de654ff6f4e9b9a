"""Accounts and reports in the admin."""

from django.contrib import admin

from example_project.analytics.models import Account, Report


@admin.register(Account)
class AccountAdmin(admin.ModelAdmin):
    """The accounts."""


@admin.register(Report)
class ReportAdmin(admin.ModelAdmin):
    """All reports, to look at."""

    list_display = ["account", "night", "is_ready", "events"]
    list_select_related = ["account"]
