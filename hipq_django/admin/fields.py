"""Forms whose rules are those of the code that enqueues, and that write what was edited only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError

from hipq_django.admin.display import plain
from hipq_django.definitions import checked_windows
from hipq_django.exceptions import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Callable

    Rule = Callable[[Any], Any]


class EditForm(forms.ModelForm):  # type: ignore[type-arg]
    """Knows what the operator changed, whatever somebody else saved since the page was opened.

    The values that the page showed travel with the form and are what a field is compared with.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            initial = self[name].html_initial_name
            field.show_hidden_initial = not self.is_bound or any(
                key.startswith(initial) for key in self.data
            )


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
