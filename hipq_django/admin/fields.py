"""Forms whose rules are those of the code that enqueues, and that write what was edited only."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Field
from django.utils.dateparse import parse_datetime
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext_lazy as _

from hipq_django.admin.display import plain
from hipq_django.domain.validation import checked_windows
from hipq_django.exceptions import InvalidJobError

if TYPE_CHECKING:
    Rule = Callable[[Any], Any]


MAX_QUOTED_CHARS = 300
"""How much of a value is quoted that somebody else wrote."""


class EditForm(forms.ModelForm):  # type: ignore[type-arg]  # generic in the stubs only
    """Knows what the operator changed, whatever somebody else saved since the page was opened.

    The values that the page showed travel with the form and are what a field is compared with.
    """

    edits: tuple[str, ...] | None = None
    """The fields of the row that may be edited; None for all of the form's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            if field.label is None:  # Django names the fields only that it made itself
                field.label = capfirst(self._row_field(name).verbose_name)
            seen = self.add_initial_prefix(name)
            is_sent = not self.is_bound or seen in self.data
            field.show_hidden_initial = is_sent and self.instance.pk is not None

    def full_clean(self) -> None:
        """Check what was sent; a moment that was not edited stays as it is stored."""
        for name, field in self.fields.items():
            if isinstance(field, MomentField) and self.is_bound:
                field.kept = None if name in self.changed_data else self.initial.get(name)
        super().full_clean()

    def clean(self) -> dict[str, Any]:
        """Check the values together; refuse what somebody else has changed meanwhile."""
        values: dict[str, Any] = super().clean() or {}
        if self.instance.pk:
            self._refuse_outdated()
        return values

    def _refuse_outdated(self) -> None:
        """Refuse to replace what somebody else wrote meanwhile, until it was seen.

        What was typed stays in the form; whoever sends it again has seen both values.
        """
        text = _(
            "Somebody else has changed this since you opened the page, from %(seen)s to %(now)s. "
            "To replace it by what stands here, send the form again."
        )
        for name in filter(self.was_outdated, self.changed_data):
            seen, now = self.data[self.add_initial_prefix(name)], self._as_sent(name)
            values = {"seen": self._quoted(name, seen), "now": self._quoted(name, now)}
            self.add_error(name, text % values)
            self._show_next(self.add_initial_prefix(name), now)

    def _as_sent(self, name: str) -> str:
        """Return the stored value as the form sends it, hidden, beside the edited one."""
        value = self.fields[name].prepare_value(self[name].initial)
        return self.fields[name].hidden_widget().format_value(value) or ""

    def _quoted(self, name: str, text: str) -> str:
        """Return a value as the page shows it, of a choice the words."""
        choices = getattr(self.fields[name], "choices", ())
        words = next((words for value, words in choices if str(value) == text), text)
        return Truncator(words).chars(MAX_QUOTED_CHARS) if words else "-"

    def _show_next(self, sent: str, value: Any) -> None:
        """Let the page, which shows the form again, send this value along with it."""
        data: Any = copy(self.data)
        data[sent] = value
        self.data = data

    @property
    def edited(self) -> dict[str, Any]:
        """The values that the operator changed."""
        may_be = self.fields if self.edits is None else self.edits
        return {name: self.cleaned_data[name] for name in self.changed_data if name in may_be}

    def _row_field(self, name: str) -> Field[Any, Any]:
        return self.instance._meta.get_field(name)  # type: ignore[no-any-return]  # a concrete field

    def was_outdated(self, name: str) -> bool:
        """Return whether the page showed another value than the row had when it was sent."""
        field, bound = self.fields[name], self[name]
        if not field.show_hidden_initial:
            return False
        return field.has_changed(bound.initial, self.data[bound.html_initial_name])


class MomentField(forms.SplitDateTimeField):
    """A moment, which stays exactly as it is stored where its text is not edited.

    The text has no fractions of a second, and does not say which pass of a repeated hour it means.
    What the page showed travels as one value, with its offset.
    """

    hidden_widget = forms.HiddenInput
    kept: datetime | None = None
    """The stored moment, where the text was not edited."""

    def clean(self, value: Any) -> Any:
        """Return the moment; raise `ValidationError` for an edited text that is none."""
        return self.kept or super().clean(value)

    def to_python(self, value: Any) -> Any:
        """Read what the page showed; raise `ValidationError` where that was sent wrong."""
        if not isinstance(value, str):
            return value
        try:
            return parse_datetime(value) if value else None
        except ValueError as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether a text, or what the page showed, says another moment."""
        if not isinstance(data, str):
            return super().has_changed(initial, data)
        try:
            return bool(self.to_python(data) != initial)
        except ValidationError:
            return True


class CheckedField(forms.Field):
    """Text that `read` turns into a value and `rule` accepts or refuses."""

    read: Rule = str

    def __init__(self, rule: Rule, **options: Any) -> None:
        super().__init__(**options)
        self.rule = rule

    def to_python(self, value: Any) -> Any:
        """Return the value that is stored; raise `ValidationError` with the rule's own words."""
        return checked(self.rule, type(self).read((value or "").strip()))


def checked(rule: Rule, value: Any) -> Any:
    """Return what `rule` makes of a value; raise `ValidationError` where it refuses."""
    try:
        return rule(value)
    except InvalidJobError as error:
        raise ValidationError(str(error)) from error


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class NumberField(CheckedField):
    """A number, exact to its last digit."""

    read = staticmethod(_number)
    widget = forms.TextInput(attrs={"inputmode": "decimal", "size": 14})

    def prepare_value(self, value: Any) -> Any:
        """Return the text to edit."""
        return value if value is None or isinstance(value, str) else plain(value)


class WindowsField(CheckedField):
    """Time windows, one on each line."""

    read = staticmethod(str.splitlines)
    widget = forms.Textarea(attrs={"rows": 4, "cols": 40})

    def __init__(self, **options: Any) -> None:
        super().__init__(_windows, required=False, **options)

    def prepare_value(self, value: Any) -> Any:
        """Return the text to edit."""
        return "\n".join(value) if isinstance(value, list) else value


def _windows(lines: list[str]) -> list[str]:
    return checked_windows([line for line in lines if line.strip()])
