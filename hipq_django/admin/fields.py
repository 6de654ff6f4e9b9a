"""Forms whose rules are those of the code that enqueues, and that write what was edited only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Field
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from hipq_django.admin.display import plain
from hipq_django.domain.validation import checked_windows
from hipq_django.exceptions import InvalidJobError

if TYPE_CHECKING:
    Rule = Callable[[Any], Any]


OUTDATED = _(
    "Somebody else has changed this since you opened the page. Open it again to see the new value."
)


class EditForm(forms.ModelForm):  # type: ignore[type-arg]  # generic in the stubs only
    """Knows what the operator changed, whatever somebody else saved since the page was opened.

    The values that the page showed travel with the form and are what a field is compared with.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        is_sent = not self.is_bound or any(name.startswith("initial-") for name in self.data)
        for name, field in self.fields.items():
            if field.label is None:  # Django names the fields only that it made itself
                field.label = capfirst(self._row_field(name).verbose_name)
            field.show_hidden_initial = is_sent and self.instance.pk is not None

    def clean(self) -> dict[str, Any]:
        """Check the values together; refuse to replace what somebody else wrote meanwhile."""
        values: dict[str, Any] = super().clean() or {}
        for name in filter(self._is_outdated, self.changed_data):
            self.add_error(name, OUTDATED)
        return values

    def _is_outdated(self, name: str) -> bool:
        """Return whether the page showed another value than the row has."""
        field, bound = self.fields[name], self[name]
        if not field.show_hidden_initial:
            return False
        sent = field.hidden_widget().value_from_datadict(
            self.data, self.files, bound.html_initial_name
        )
        return field.has_changed(bound.initial, sent)

    @property
    def edited(self) -> dict[str, Any]:
        """The values that the operator changed."""
        return {name: self.cleaned_data[name] for name in self.changed_data}

    def _row_field(self, name: str) -> Field[Any, Any]:
        return self.instance._meta.get_field(name)  # type: ignore[no-any-return]  # a concrete field


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
