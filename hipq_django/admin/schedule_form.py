"""The forms of schedules, by the rules of `hipq_django.schedule` and `backfill`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.admin.fields import EditForm
from hipq_django.admin.row_actions import VerbForm
from hipq_django.admin.schedule_times import TIMES
from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.drafts import NewJob
from hipq_django.domain.redaction import without_masks
from hipq_django.domain.schedules import SHARED, Cron, Every
from hipq_django.exceptions import HipqError, InvalidJobError
from hipq_django.job_types.registry import find_declared, get_all_declared
from hipq_django.models import JobType, Schedule
from hipq_django.models.masking import shown
from hipq_django.schedules import api

PREVIEW = "_preview"
"""The name of the button that shows when the schedule would be due."""


class TimesForm(EditForm):
    """When a schedule is due, which is what may be changed of one that the code declares.

    The page has locked the row, so that nobody changes it between the check and what is written.
    """

    class Meta:
        """The fields in their order."""

        model = Schedule
        fields = TIMES

    @property
    def is_preview(self) -> bool:
        """Whether the times are to be shown, and nothing saved."""
        return self.is_bound and PREVIEW in self.data

    def is_valid(self) -> bool:
        """Return whether it can be saved; a preview is not."""
        return super().is_valid() and not self.is_preview

    def clean(self) -> dict[str, Any]:
        """Check all as the verb does, with what is stored of what was not edited."""
        values = super().clean() or {}
        if self.instance.pk:
            values |= {name: self.initial[name] for name in TIMES if not self._is_given(name)}
        if self.errors:
            return values
        try:
            self.check(values)
        except HipqError as error:
            raise forms.ValidationError(str(error)) from error
        return values

    def _is_given(self, name: str) -> bool:
        """Whether a value counts as it was sent, not as it is stored."""
        return not self.instance.pk or name in self.changed_data

    def check(self, values: dict[str, Any]) -> None:
        """Read the values; raise `HipqError` or `ValidationError` where they cannot be."""
        self.spec = _spec(values)

    def write(self) -> Schedule:
        """Change the schedule that is edited."""
        return api.override(self.instance.name, self.spec, instance=self.instance.instance)

    def _post_clean(self) -> None:
        """Leave the row as it is: the verb writes it."""


class ScheduleForm(TimesForm):
    """What makes a schedule: its name, its jobs, and when it is due."""

    using = ""
    """The alias of the database that it is in."""
    places: Sequence[str] = (DEFAULT,)
    """The instances that a new one may be in."""

    type_name = forms.ChoiceField(
        label=_("Job type"), help_text=_("A job type or a task that the code declares.")
    )
    job_data = forms.JSONField(
        label=_("Job data"),
        required=False,
        initial=dict,
        help_text=_("JSON; for a task, its arguments by name."),
    )

    class Meta:
        """The fields in their order."""

        model = Schedule
        fields = ("name", "type_name", "job_data", *TIMES)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_new = not self.instance.pk
        if "instance" in self.fields:  # there are several
            label, choices = self.fields["instance"].label, [(name, name) for name in self.places]
            self.fields["instance"] = forms.ChoiceField(label=label, choices=choices)
        if "type_name" in self.fields:  # else the page cannot be edited
            self.fields["type_name"].choices = self._types()  # type: ignore[attr-defined]  # a ChoiceField
        if not self.is_new and "name" in self.fields:  # else the page cannot be edited
            self.fields["name"].disabled = True
            self.initial["type_name"] = self.instance.job_type.name
            self.initial["job_data"] = shown(self.instance, self.instance.job_data)

    @property
    def place(self) -> str:
        """The instance of the schedule."""
        row: Schedule = self.instance
        if not self.is_new:
            return row.instance
        name: str = self.cleaned_data.get("instance", self.places[0])
        return name

    def _types(self) -> list[tuple[str, str]]:
        """Return the names to choose from: those with code, and the one that the schedule has."""
        names = {self.instance.job_type.name} if not self.is_new else set()
        for place in self.places if self.is_new else (self.place,):
            names |= {declared.name for declared in get_all_declared(place)}
            names |= set(self._rows_of(place).exclude(kind="").values_list("name", flat=True))
        return [("", "---------"), *((name, name) for name in sorted(names))]

    def _rows_of(self, place: str) -> QuerySet[JobType]:
        """Return the job types of an instance."""
        return JobType.objects.using(self.using).filter(instance=place)

    def clean_type_name(self) -> str:
        """Return the name; raise `ValidationError` where no code is found for it."""
        given: str = self.cleaned_data["type_name"]
        name = given if self._is_given("type_name") else self.instance.job_type.name
        kinds = self._rows_of(self.place).filter(name=name).values_list("kind", flat=True)
        if find_declared(self.place, name, kinds.first() or "") is None:
            raise forms.ValidationError(_("No code declares this job type."))
        return name

    def clean_name(self) -> str:
        """Return the name; raise `ValidationError` where a new schedule would replace another."""
        name: str = self.cleaned_data["name"]
        rows = Schedule.objects.using(self.using).filter(instance=self.place, name=name)
        if self.is_new and rows.exists():
            raise forms.ValidationError(
                _("There is already a schedule with this name; change that one.")
            )
        return name

    def clean_job_data(self) -> Any:
        """Return the data: the stored ones if they were left as the page showed them.

        Not for another job type, which may not know what of them is sensitive.
        """
        row: Schedule = self.instance
        if self._is_given("job_data"):
            data = self.cleaned_data["job_data"]
        elif self.cleaned_data.get("type_name", row.job_type.name) == row.job_type.name:
            return row.job_data
        else:
            data = shown(row, row.job_data)
        try:
            return without_masks({} if data is None else data)
        except InvalidJobError as error:
            raise forms.ValidationError(str(error)) from error

    def check(self, values: dict[str, Any]) -> None:
        """Read the values; raise `HipqError` or `ValidationError` where they cannot be."""
        super().check(values)
        # Options that only code can give stay as they are.
        self.new = NewJob(values["type_name"], values["job_data"], **self.instance.options)
        try:
            api.checked(values["name"], self.new, self.place)
        except HipqError as error:  # it may quote a stored value that the page does not show
            text = str(error) if self.is_new else shown(self.instance, str(error))
            raise forms.ValidationError(text) from error

    def write(self) -> Schedule:
        """Create the schedule, or change the one that is edited."""
        return api.schedule(self.cleaned_data["name"], self.new, self.spec, instance=self.place)


class BackfillForm(VerbForm):
    """Whose due times jobs are made of."""

    is_filled_in = True
    start = forms.DateTimeField(
        label=_("From"), widget=forms.DateTimeInput({"type": "datetime-local"})
    )
    end = forms.DateTimeField(
        label=_("Until just before"), widget=forms.DateTimeInput({"type": "datetime-local"})
    )

    def offer(self, rows: Sequence[Schedule]) -> None:
        """Say in which time zone the moments are."""
        self.fields["end"].help_text = timezone.get_current_timezone_name()


def _spec(values: dict[str, Any]) -> Cron | Every:
    shared = {name: values[name] for name in SHARED}
    if values["every_seconds"] is None:
        return Cron(values["cron"], zone=values["time_zone"], **shared)
    if values["cron"] or values["time_zone"]:
        raise forms.ValidationError(
            _("Give either a cron text with its time zone, or seconds, which have no time zone.")
        )
    return Every(seconds=values["every_seconds"], **shared)
