"""Values of JSON in forms, which are taken only if nobody changed meanwhile what was shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from django import forms
from django.core.exceptions import ValidationError
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _, gettext_lazy

from hipq_django.admin.row_actions import VerbForm
from hipq_django.domain.redaction import without_masks
from hipq_django.domain.serialization import NotJsonError, to_json
from hipq_django.domain.validation import id_from
from hipq_django.exceptions import HipqError, InvalidJobError
from hipq_django.flow.models import Graph
from hipq_django.flow.values import NOTHING

TEXT = {"spellcheck": "false", "autocapitalize": "off", "class": "hipq-json"}


class JsonValueField(forms.Field):
    """A value written as JSON; it replaces another one as a whole."""

    def __init__(self, *, rows: int = 4, **options: Any) -> None:
        widget = forms.Textarea(attrs={**TEXT, "rows": rows, "cols": 60})
        super().__init__(widget=widget, **options)

    def to_python(self, value: Any) -> Any:
        """Return the value; raise `ValidationError` with the place of what is no JSON.

        What no database can hold is refused here, too: it could not be shown on a page either.
        """
        if not value or not value.strip():
            return NOTHING
        try:
            return without_masks(to_json(json.loads(value, parse_constant=_no_constant)))
        except RecursionError as error:
            raise ValidationError(_("This is nested too deeply.")) from error
        except NotJsonError as error:
            raise ValidationError(
                _("This cannot be stored: %(error)s.") % {"error": error}
            ) from error
        except InvalidJobError as error:
            raise ValidationError(str(error)) from error
        except ValueError as error:
            raise ValidationError(_("This is not JSON: %(error)s.") % {"error": error}) from error

    def validate(self, value: Any) -> None:
        """Raise `ValidationError` where nothing was written; null is a value."""
        if value is NOTHING and self.required:
            hint = _('Write a value as JSON, such as {"id": 1}, "text", 4.5 or null.')
            raise ValidationError(hint)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def refuse(form: forms.Form, field: str | None, error: HipqError, seen: str, more: str) -> None:
    """Say beside a field why what was sent is not done.

    Where things are not as the page showed them, but as one has `seen` now, say `more`: whoever
    sends the form again, which the page shows, has read that.
    """
    is_outdated = form.data.get("seen", seen) != seen
    form.add_error(field, f"{error} {more}" if is_outdated else str(error))
    if is_outdated:
        form.data = {**dict(form.data.items()), "seen": seen}


class StartForm(VerbForm):
    """How a graph is started, and which version of it the page showed."""

    alias = forms.CharField(
        label=gettext_lazy("Alias"),
        max_length=200,
        required=False,
        help_text=gettext_lazy("Another name by which the node is found; may be left empty."),
    )
    seen = forms.CharField(widget=forms.HiddenInput)

    def offer(self, rows: Sequence[Graph]) -> None:
        """Note the version that the page shows."""
        self.initial["seen"] = rows[0].version

    @property
    def options(self) -> dict[str, Any]:
        """What `start_graph` is called with."""
        values = self.cleaned_data
        return {"alias": values["alias"] or None, "version": id_from(values["seen"]) or 0}


def fingerprint(value: Any) -> str:
    """Return a text that tells whether a value is still the one that a page showed.

    The page may mask it: without the key of the site nobody finds it by trying.
    """
    if value is NOTHING:
        return "nothing"
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return salted_hmac("hipq_flow.seen", text, algorithm="sha256").hexdigest()
