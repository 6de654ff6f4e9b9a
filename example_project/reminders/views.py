"""What users do to their reminders."""

from datetime import timedelta

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

import hipq_django as hipq
from example_project.reminders.forms import ReminderForm
from example_project.reminders.jobs import call_off, plan
from example_project.reminders.models import Reminder

PUT_OFF = timedelta(minutes=10)


@require_http_methods(["GET", "POST"])
def reminders(request: HttpRequest) -> HttpResponse:
    """Show the reminders; plan a new one."""
    form = ReminderForm(request.POST or None)
    if form.is_valid():
        with transaction.atomic():
            plan(form.save())
        return redirect("reminders")
    context = {"form": form, "reminders": Reminder.objects.all()[:50]}
    return render(request, "reminders/reminders.html", context)


@require_POST
def put_off(request: HttpRequest, pk: int) -> HttpResponse:
    """Remind later: the job is replaced by one at the new time."""
    reminder = get_object_or_404(Reminder, pk=pk, sent_time=None, is_done=False)
    reminder.remind_time = max(reminder.remind_time, timezone.now()) + PUT_OFF
    try:
        with transaction.atomic():
            reminder.save(update_fields=["remind_time"])
            plan(reminder)
    except hipq.DuplicateJobKeyError:
        messages.warning(request, "Too late: the reminder is just being sent.")
    return redirect("reminders")


@require_POST
def done(request: HttpRequest, pk: int) -> HttpResponse:
    """Call the reminder off."""
    reminder = get_object_or_404(Reminder, pk=pk)
    with transaction.atomic():
        reminder.is_done = True
        reminder.save(update_fields=["is_done"])
        call_off(reminder)
    return redirect("reminders")
