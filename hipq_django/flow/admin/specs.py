"""How the spec of a graph is edited on a page, with its problems and its picture beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from hipq_django.exceptions import HipqError
from hipq_django.flow.admin.forms import JsonValueField, refuse
from hipq_django.flow.admin.masking import whole
from hipq_django.flow.admin.pictures import of_spec
from hipq_django.flow.exceptions import GraphError
from hipq_django.flow.graphs.checking import check
from hipq_django.flow.graphs.problem import WARNING, Problem, errors_of
from hipq_django.flow.graphs.publicity import permissions_of
from hipq_django.flow.models import Graph, Node
from hipq_django.flow.values import NOTHING
from hipq_django.models.masking import shown

REPLACES = _(
    "Open the page in another window to see the graph as it is now. To replace that by what stands "
    "here, send the form again."
)


class SpecForm(forms.Form):
    """The spec of a graph, and what of it the page showed."""

    spec = JsonValueField(label=_("Spec"), rows=24)
    seen = forms.CharField(widget=forms.HiddenInput, required=False)


class NewGraphForm(SpecForm):
    """The name and the spec of a graph that is to be kept."""

    name = forms.CharField(label=_("Name"), max_length=200)
    field_order = ("name", "spec")


class Edited(NamedTuple):
    """The result of sending a spec: the graph that was saved, or else the context of the page."""

    saved: Any
    said: dict[str, Any]


def spec_form(request: HttpRequest, row: Node | Graph, spec: Any, seen: str) -> SpecForm:
    """Return the form for the spec of a graph, with what was sent of it."""
    sent = request.POST if request.method == "POST" else None
    return SpecForm(sent, initial={"spec": whole(shown(row, spec)), "seen": seen})


def edit_spec(
    request: HttpRequest, form: SpecForm, stored: Any, save: Callable[[Any], Any], **where: Any
) -> Edited:
    """Save what was sent by the button for it, unless something is wrong with it.

    `where` says what it is checked for: an `instance`, or the `node` of a graph that runs.
    """
    spec, problems = NOTHING if form.is_bound else stored, []
    if form.is_valid():
        spec = form.cleaned_data["spec"]
        problems = [*check(spec, only_public=True, **where), *_forbidden(request, spec, stored)]
        if "_save" in request.POST and not errors_of(problems):
            try:
                return Edited(save(form.cleaned_data), {})
            except GraphError as error:
                problems = error.problems
            except HipqError as error:
                field = "name" if "name" in form.fields else "spec"
                refuse(form, field, error, form.initial.get("seen", ""), str(REPLACES))
    said = {
        "form": form,
        "problems": errors_of(problems),
        "warnings": [problem for problem in problems if problem.level == WARNING],
        "is_checked": form.is_bound and spec is not NOTHING,
        "picture": None if spec is NOTHING else of_spec(spec, **where),
    }
    return Edited(None, said)


def _forbidden(request: HttpRequest, spec: Any, stored: Any) -> list[Problem]:
    """Return the parts of a spec for which the user lacks a permission."""
    return [
        Problem(path, f"you need the permission hipq_flow.{permission} for this.")
        for path, permission in permissions_of(spec, stored).items()
        if not request.user.has_perm(f"hipq_flow.{permission}")
    ]
