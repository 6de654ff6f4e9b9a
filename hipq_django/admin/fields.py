"""Forms whose rules are those of the code that enqueues, and that write what was edited only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Field, Model
from django.utils.text import capfirst, get_text_list
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.display import plain
from hipq_django.domain.validation import checked_windows
from hipq_django.exceptions import InvalidJobError
from hipq_django.models.base import title

if TYPE_CHECKING:
    Rule = Callable[[Any], Any]


class OutdatedFormError(Exception):
    """What the operator edited is not any more as the page showed it."""


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
            initial = self[name].html_initial_name
            field.show_hidden_initial = not self.is_bound or any(
                key.startswith(initial) for key in self.data
            )

    @property
    def edited(self) -> dict[str, Any]:
        """The values that the operator changed."""
        may_be = self.fields if self.edits is None else self.edits
        return {name: self.cleaned_data[name] for name in self.changed_data if name in may_be}

    def check_current(self, row: Model) -> None:
        """Raise `OutdatedFormError` where somebody changed an edited value of the locked row."""
        outdated = [
            name
            for name in self.edited
            if self._was_outdated(name)
            or self._row_field(name).value_from_object(row) != self.initial[name]
        ]
        if outdated:
            text = _(
                "%(row)s was not changed: somebody else changed %(fields)s since you opened the "
                "page, which shows it as it is now."
            )
            names = [str(self._row_field(name).verbose_name) for name in outdated]
            values = {"row": title(row), "fields": get_text_list(names, gettext("and"))}
            raise OutdatedFormError(text % values)

    def _row_field(self, name: str) -> Field[Any, Any]:
        return self.instance._meta.get_field(name)  # type: ignore[no-any-return]  # a concrete field

    def _was_outdated(self, name: str) -> bool:
        """Whether the page showed another value than the row had when the form was sent."""
        field, bound = self.fields[name], self[name]
        if not field.show_hidden_initial:
            return False
        widget = field.hidden_widget()
        seen = widget.value_from_datadict(self.data, self.files, bound.html_initial_name)
        return field.has_changed(bound.initial, seen)


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
