"""What an operator does to rows: by an action of the list, or a button of a row's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import model_ngettext, unquote
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext_lazy as _, ngettext, override

from hipq_django.admin.base import HipqAdmin
from hipq_django.admin.display import format_number
from hipq_django.database.errors import said_of
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.exceptions import HipqError
from hipq_django.models.base import title
from hipq_django.monitoring.counts import capped_count, format_count

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

MAX_ROWS = 900
"""How many rows one action takes: each is a transaction of its own, and a request is short. Their
ids come back with a confirmation, and Django takes a form with at most 1,000 fields."""

MAX_SHOWN = 10
"""How many refusals, and how many rows before a confirmation, are named."""

REST = _("%(count)s more %(rows)s of this list are left: select all again, and do the same.")


class VerbForm(forms.Form):
    """What is chosen, or filled in, before a verb is done to rows."""

    is_filled_in: ClassVar = False
    """Whether a refusal leads back to the form, so that no text is lost; else to the row."""
    field: ClassVar[str | None] = None
    """Beside which field a refusal stands; None for above all of them."""

    def __init__(self, data: Any = None, *, rows: Sequence[Any] = ()) -> None:
        super().__init__(data)
        self.offer(rows)

    def offer(self, rows: Sequence[Any]) -> None:
        """Prepare the fields for these rows, and leave out what is of no use to any of them."""

    @property
    def options(self) -> dict[str, Any]:
        """What the verb's function is called with, beside the row."""
        return dict(self.cleaned_data) if self.is_bound else {}

    @property
    def done(self) -> _StrOrPromise:
        """What is said to be done, where that depends on the form."""
        return ""

    @property
    def is_atomic(self) -> bool:
        """Whether it is one transaction with what was chosen."""
        return True

    @property
    def first(self) -> list[int]:
        """The ids of other rows to which it is done before."""
        return []

    def refuse(self, error: HipqError) -> None:
        """Say in the form why it was not done."""
        self.add_error(self.field, str(error))


def tick_box(label: _StrOrPromise, **options: Any) -> forms.BooleanField:
    """Return a field that may be ticked."""
    return forms.BooleanField(label=label, required=False, label_suffix="", **options)


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing to do to a row: by which permission and function, when, and what it warns of."""

    name: str
    label: _StrOrPromise
    permission: str
    perform: Callable[..., Any]
    done: _StrOrPromise
    action: _StrOrPromise = ""
    """What the menu of the list says; '' where only the row's page offers it."""
    is_possible: Callable[[Any], bool] = lambda row: True
    """Whether the row is such that it can be done at all; else the function says why not."""
    is_of_use: Callable[[Any, datetime], bool] = lambda row, now: True
    """Whether it changes anything of a row to which it can be done."""
    useless: _StrOrPromise = ""
    """Why a row to which it is of no use is left as it is."""
    warning: Callable[[Any], _StrOrPromise] = lambda row: ""
    """What is said before it is done to a row, and has to be confirmed; '' where nothing is."""
    confirm: _StrOrPromise = ""
    """What the button says that does it, after the warning."""
    form: type[VerbForm] = VerbForm
    """What is asked before it is done; one with fields is shown also without a warning."""
    among: Callable[[Any, datetime], Any] | None = None
    """Narrows all rows of a list to those to which it is of use, so that it can be done to very
    many in turn; None where nothing tells those apart to which it has been done."""
    is_atomic: bool = True
    """Whether it is one transaction, with its line in the history; not what works in pages."""
    is_locked: bool = False
    """Whether the row is locked, and checked once more, before it is done. Then nothing is done
    where another operator was faster, or where the page lacked a warning that holds by now."""
    is_dangerous: bool = False
    """Whether the button that does it is red."""


def by_name(*verbs: Verb) -> dict[str, Verb]:
    """Return verbs by their names, in the order of their buttons."""
    return {verb.name: verb for verb in verbs}


class RowActions(HipqAdmin):
    """Rows with actions in their list and buttons on their pages, by the same verbs."""

    verbs: ClassVar[Mapping[str, Verb]] = {}
    asks_on_page: ClassVar = True
    """Whether a row's page asks before a button is pressed; else the button leads to a page."""
    names_all: ClassVar = False
    """Whether a confirmation names all rows; else those that it warns of, if it warns of any."""
    confirm_template: ClassVar = "hipq_django/admin/confirm.html"

    def may_do(self, request: HttpRequest, name: str) -> bool:
        """Return whether the user may do what a verb does."""
        return self.may(request, self.verbs[name].permission)

    # What a verb leads to

    def said(self, verb: Verb, before: Any, result: Any) -> str:
        """Return what was done to a row, which is given as it was before."""
        return str(verb.done)

    def write_down(self, request: HttpRequest, row: Any, result: Any, said: str) -> None:
        """Write down in the history what was done."""
        self.log_change(request, row, f"{said}.")

    def url_after(self, row: Any, result: Any) -> str:
        """Return the address of the page that is shown after a button was pressed."""
        return self.row_url(self.target(row, result))

    def target(self, row: Any, result: Any) -> Any:
        """Return the row that is named after a button was pressed."""
        return row

    def done_to(self, row: Any, result: Any) -> str:
        """Return what is named after a button was pressed."""
        return title(self.target(row, result))

    def options(self, request: HttpRequest, verb: Verb, form: VerbForm) -> dict[str, Any]:
        """Return what the verb's function is called with, beside the row."""
        return form.options

    def _perform(
        self, request: HttpRequest, row: Any, verb: Verb, form: VerbForm
    ) -> tuple[Any, str]:
        """Do it and write it down, both or neither; return its result, and what was done.

        Of what takes many transactions the beginning is written down, too: it may be interrupted.
        """
        before, is_atomic = copy(row), verb.is_atomic and form.is_atomic

        def said() -> str:
            return str(form.done) or self.said(verb, before, result)

        if not is_atomic:
            self.log_change(request, row, f"Began to {verb.name}.")
        with write_transaction(self.database) if is_atomic else nullcontext():
            if verb.is_locked:
                self._check_once_more(request, row, verb)
            result = verb.perform(row, **self.options(request, verb, form))
            with override(None):  # the history is English
                self.write_down(request, row, result, said())
        return result, said()

    def _try(self, request: HttpRequest, row: Any, verb: Verb, form: VerbForm) -> tuple[Any, str]:
        """Do it; raise `HipqError` also where the database refuses it, or does not wait longer."""
        try:
            return self._perform(request, row, verb, form)
        except DatabaseError as error:  # after an outage the rest of the page fails, too
            text = _("The database refused it: %(error)s")
            raise HipqError(text % {"error": said_of(error)}) from error

    def _check_once_more(self, request: HttpRequest, row: Any, verb: Verb) -> None:
        """Lock the row; raise `HipqError` if it is of no use any more, or warns of something new.

        The page sends the whole text of its warnings: of several rows, that of all of them.
        """
        rows = self.model._default_manager.using(self.database)
        current = locked(rows.filter(pk=row.pk)).first()
        if current is None:
            return
        if self._is_useless(current, verb):
            raise HipqError(self._left(current, verb))
        warning = str(verb.warning(current))
        if warning not in request.POST.get("warned", ""):
            text = _("%(row)s was left as it is. Your page did not say this yet: %(warning)s")
            raise HipqError(text % {"row": title(row), "warning": warning})

    def _is_useless(self, row: Any, verb: Verb) -> bool:
        """Return whether it can be done to a row, and would change nothing but hidden values."""
        return verb.is_possible(row) and not verb.is_of_use(row, self.now)

    def _is_open(self, row: Any, verb: Verb) -> bool:
        return verb.is_possible(row) and verb.is_of_use(row, self.now)

    def _left(self, row: Model, verb: Verb) -> str:
        text = _("%(row)s was left as it is: %(reason)s")
        return text % {"row": title(row), "reason": verb.useless}

    # From the list

    def get_action(self, action: Any, *where: Any) -> Any:
        """Return an action of the list; that of a verb is made of it.

        Later versions of Django say `where` it is shown.
        """
        verb = self.verbs.get(action) if isinstance(action, str) else None
        return super().get_action(action if verb is None else _action_of(verb), *where)

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> Any:
        """Return the actions that this user may do; later versions of Django say where."""
        where = () if action_location is None else (action_location,)
        found = super().get_actions(request, *where)
        return {
            name: action
            for name, action in found.items()
            if name not in self.verbs or self.may_do(request, name)
        }

    def perform_each(self, request: HttpRequest, rows: Any, verb: Verb) -> HttpResponse | None:
        """Do it to each row on its own; what is refused does not stop the others.

        Ask before, with nothing done, where a row has a warning, or something is to be chosen.
        """
        is_across = request.POST.get("select_across") == "1"
        is_in_turn = is_across and verb.among is not None
        if is_across and verb.among:
            rows = verb.among(rows, self.now)
        ids = self._chosen(request, rows, is_across=is_across)
        if len(ids) > MAX_ROWS and not is_in_turn:
            most = _("Nothing was done: select at most %(count)s %(rows)s at a time.")
            self._warn(request, most, MAX_ROWS)
            return None
        ids = ids[:MAX_ROWS]
        found = self.get_queryset(request).filter(pk__in=ids).order_by("pk")
        asked = list(found.defer(*self.list_defer))
        form = self._form(request, verb, asked)
        if question := self._question(request, verb, asked, form):
            return self._ask(request, verb, asked, question, is_across=is_across)
        self._do_each(request, [*form.first, *ids], verb, form)
        if is_in_turn and (rest := capped_count(rows.exclude(pk__in=ids))):
            self._warn(request, REST, rest)
        if not ids:
            none = _("Nothing was done: this list has no %(rows)s to which it can be done.")
            self._warn(request, none, 0)
        return None

    def _chosen(self, request: HttpRequest, rows: Any, *, is_across: bool) -> list[int]:
        """Return the ids of the selected rows; once it is confirmed, of those that were named."""
        if not is_across or "confirmed" in request.POST:
            rows = rows.filter(pk__in=request.POST.getlist(ACTION_CHECKBOX_NAME))
        return list(rows.order_by("pk").values_list("pk", flat=True)[: MAX_ROWS + 1])

    def _warn(self, request: HttpRequest, text: _StrOrPromise, number: int) -> None:
        self.message_user(request, text % self._counted(number), messages.WARNING)

    def _counted(self, number: int) -> dict[str, str]:
        rows = model_ngettext(self.opts, number)
        return {"count": format_count(number, format_number), "rows": rows}

    def _do_each(
        self, request: HttpRequest, ids: Sequence[int], verb: Verb, form: VerbForm
    ) -> None:
        refusals = [text for pk in ids if (text := self._refusal(request, pk, verb, form))]
        if done := len(ids) - len(refusals):
            values = {"done": form.done or verb.done, **self._counted(done)}
            text = _("%(done)s: %(count)s %(rows)s.") % values
            self.message_user(request, text, messages.SUCCESS)
        self.report(request, refusals)

    def _refusal(self, request: HttpRequest, pk: int, verb: Verb, form: VerbForm) -> str:
        """Do it to one row; return why it was refused, '' where it was not."""
        row = self.get_queryset(request).filter(pk=pk).first()
        if row is None:
            text = _("%(kind)s %(id)s does not exist any more; it was pruned.")
            return text % {"kind": self.opts.verbose_name, "id": pk}
        try:
            if self._is_useless(row, verb):
                return self._left(row, verb)
            self._try(request, row, verb, form)
        except HipqError as error:
            what, said = title(row), str(error)
            return said if what in said else f"{what}: {said}"
        return ""

    def report(self, request: HttpRequest, refusals: Sequence[str]) -> None:
        """Say what was refused and why; of many, the first."""
        for text in refusals[:MAX_SHOWN]:
            self.message_user(request, text, messages.ERROR)
        more = len(refusals) - MAX_SHOWN
        if more > 0:
            text = ngettext(
                "%(count)s more %(rows)s was refused.",
                "%(count)s more %(rows)s were refused.",
                more,
            )
            values = {"count": format_number(more), "rows": model_ngettext(self.opts, more)}
            self.message_user(request, text % values, messages.ERROR)

    # From the page

    def buttons(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        """Return what this user may do to this row now."""
        return [
            {
                "label": verb.label,
                "name": verb.name,
                "url": self.row_url(row, verb.name),
                "is_dangerous": verb.is_dangerous,
                **(self._on_page(row, verb) if self.asks_on_page else {}),
            }
            for verb in self.verbs.values()
            if self.may_do(request, verb.name) and self._is_open(row, verb)
        ]

    def _on_page(self, row: Any, verb: Verb) -> dict[str, Any]:
        """Return what a row's page asks before a verb is done; its fields are of another form."""
        warning, form = verb.warning(row), verb.form(rows=[row])
        for field in form.fields.values():
            field.widget.attrs["form"] = f"hipq-{verb.name}"
        return {
            "warning": warning,
            "form": form,
            "is_asked": bool(warning or form.fields),
            "confirm": verb.confirm or verb.label,
        }

    def get_urls(self) -> list[Any]:
        """Return the pages with one more address for each button."""
        return [*self.verb_urls(), *super().get_urls()]

    def verb_urls(self) -> list[Any]:
        """Return the addresses of the buttons."""
        return [self.address(name, self._button_view(verb)) for name, verb in self.verbs.items()]

    def beside_form(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the buttons above the form."""
        return {"buttons": self.buttons(request, row)}

    @staticmethod
    def _button_view(verb: Verb) -> Callable[..., HttpResponse]:
        def press(pages: RowActions, request: HttpRequest, object_id: str) -> HttpResponse:
            if not pages.may_do(request, verb.name):
                raise PermissionDenied
            return pages._press(request, unquote(object_id), verb)

        return press

    def _press(self, request: HttpRequest, object_id: str, verb: Verb) -> HttpResponse:
        row = self.get_object(request, object_id)
        if row is None:
            return self.gone(request, object_id)
        if self._is_useless(row, verb):
            return self._refused(request, row, self._left(row, verb))
        form = self._form(request, verb, [row])
        if question := self._question(request, verb, [row], form):
            return self._ask(request, verb, [row], question)
        return self._do(request, row, verb, form)

    def _do(self, request: HttpRequest, row: Any, verb: Verb, form: VerbForm) -> HttpResponse:
        """Do it to one row, and show the page to which that leads; where it is refused, say why."""
        self._do_each(request, form.first, verb, form)
        try:
            result, said = self._try(request, row, verb, form)
        except HipqError as error:
            if not form.is_filled_in:
                return self._refused(request, row, str(error))
            form.refuse(error)
            return self._ask(request, verb, [row], self.asked(verb, [row], form))
        text = _("%(done)s: %(row)s.")
        values = {"done": said, "row": self.done_to(row, result)}
        self.message_user(request, text % values, messages.SUCCESS)
        return HttpResponseRedirect(self.url_after(row, result))

    def _refused(self, request: HttpRequest, row: Any, reason: str) -> HttpResponse:
        self.message_user(request, reason, messages.ERROR)
        return HttpResponseRedirect(self.row_url(row))

    # The confirmation

    def _form(self, request: HttpRequest, verb: Verb, rows: Sequence[Any]) -> VerbForm:
        """Return the form of a verb, with what was sent of it."""
        is_sent = request.method == "POST" and "confirmed" in request.POST
        open_rows = [row for row in rows if self._is_open(row, verb)]
        return verb.form(request.POST if is_sent else None, rows=open_rows)

    def _question(
        self, request: HttpRequest, verb: Verb, rows: Sequence[Any], form: VerbForm
    ) -> dict[str, Any] | None:
        """Return what is asked before it is done; None where nothing is, or it is confirmed."""
        if request.method == "POST":
            if request.POST.get("confirmed") and form.is_valid():
                return None
            if not (form.fields or any(self._is_open(row, verb) for row in rows)):
                return None  # whoever does it is told why not
        question = self.asked(verb, rows, form)
        is_asked = request.method != "POST" or question["warning"] or form.fields
        return question if is_asked else None

    def asked(self, verb: Verb, rows: Sequence[Any], form: VerbForm) -> dict[str, Any]:
        """Return what a page says before it is done, and what of the form it still asks."""
        warned = [(row, str(verb.warning(row))) for row in rows if self._is_open(row, verb)]
        return {
            "warning": " ".join(dict.fromkeys(said for _row, said in warned if said)),
            "concerned": [row for row, said in warned if said] or [row for row, _said in warned],
            "form": form,
        }

    def _ask(
        self,
        request: HttpRequest,
        verb: Verb,
        rows: Sequence[Any],
        question: dict[str, Any],
        *,
        is_across: bool | None = None,
    ) -> HttpResponse:
        """Show what would be done, to one row, or to those that were selected in the list."""
        row = rows[0] if is_across is None else None
        number = f"{format_number(len(rows))} {model_ngettext(self.opts, len(rows))}"
        named = rows if self.names_all else question["concerned"]
        context = {
            **question,
            "title": f"{verb.label}: {number if row is None else self.label(row)}?",
            "original": row,
            "verb": verb,
            "rows": self.confirm_rows(named[:MAX_SHOWN], verb),
            "more": len(named) - MAX_SHOWN,
            "ids": [one.pk for one in rows] if row is None else [],
            "across": is_across,
            "checkbox": ACTION_CHECKBOX_NAME,
            "label": verb.label if row is None else verb.confirm or verb.label,
            "back": request.get_full_path() if row is None else self.row_url(row),
        }
        return self.shown_page(request, self.confirm_template, context)

    def confirm_rows(self, rows: Sequence[Any], verb: Verb) -> list[Any]:
        """Return how a confirmation names rows."""
        return [self.link(self.model, row.pk, title(row)) for row in rows]


def _action_of(verb: Verb) -> Callable[..., HttpResponse | None]:
    @admin.action(description=verb.action)
    def act(pages: RowActions, request: HttpRequest, rows: Any) -> HttpResponse | None:
        return pages.perform_each(request, rows, verb)

    act.__name__ = verb.name
    return act
