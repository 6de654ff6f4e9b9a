"""What an operator does to rows: by an action of the list, or a button of a row's page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import model_ngettext, unquote
from django.db import DatabaseError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _, ngettext, override
from django.views.decorators.http import require_POST

from hipq_django.admin.display import format_number
from hipq_django.admin.row_pages import MAX_SHOWN, RowPages
from hipq_django.database.errors import is_locked_out, is_refusal, said_of
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

REST = _("%(count)s more %(rows)s of this list are left: select all again, and do the same.")


@dataclass(frozen=True, slots=True)
class Choice:
    """What else is done with a row if its box is ticked, on the confirmation."""

    name: str
    """The argument of the verb's function that it sets; the field of the form is called so too."""
    label: _StrOrPromise
    done: _StrOrPromise
    """What is said to be done, in place of what is without it."""
    is_offered: Callable[[Any], bool]
    """Whether a row has what the choice is about."""
    is_ticked: Callable[[Any], bool] = lambda row: False
    """Whether the box is ticked when it is shown."""
    is_atomic: bool = True
    """Whether it is one transaction."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing to do to a row: by which permission and function, when, and what it warns of."""

    name: str
    label: _StrOrPromise
    permission: str
    perform: Callable[..., Any]
    done: _StrOrPromise
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
    among: Callable[[Any, datetime], Any] | None = None
    """Narrows all rows of a list to those to which it is of use, so that it can be done to very
    many in turn; None where nothing tells those apart to which it has been done."""
    is_atomic: bool = True
    """Whether it is one transaction, with its line in the history; not what works in pages."""
    is_locked: bool = False
    """Whether the row is locked, and looked at once more, before it is done: of two operators who
    do it in the same instant the second changes nothing, and so does one whose page did not warn
    of what there is to be warned of by now."""
    is_dangerous: bool = True
    """Whether the button that does it is red, after a confirmation."""
    choice: Choice | None = None
    """What else may be chosen before it is done; then it asks, also without a warning."""

    def choice_for(self, row: Any) -> Choice | None:
        """Return what may be chosen for a row."""
        return self.choice if self.choice and self.choice.is_offered(row) else None

    def chosen(self, request: HttpRequest) -> Choice | None:
        """Return what was chosen."""
        return self.choice if self.choice and self.choice.name in request.POST else None


class _RefusedError(HipqError):
    """The database refuses it for this row; others may go on."""


class _LeftError(HipqError):
    """Another operator has just done something to the row, which is left; the text says so."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that an action of a list is done to."""

    ids: Sequence[int]
    """Their ids; of very many, the first."""
    missing: int
    """How many of the selected are not in the list any more."""
    rows: QuerySet[Any]
    """All rows that the list has."""
    verb: Verb
    is_across: bool
    """Whether all rows of the list were selected, not single ones."""

    @classmethod
    def of(cls, request: HttpRequest, rows: QuerySet[Any], verb: Verb, now: datetime) -> Selection:
        """Return what was selected; once it is confirmed, that is what the page had named."""
        is_across = request.POST.get("select_across") == "1"
        if is_across and "confirmed" not in request.POST:
            found, named = verb.among(rows, now) if verb.among else rows, set[int]()
        else:
            named = set(map(int, request.POST.getlist(ACTION_CHECKBOX_NAME)))
            found = rows.filter(pk__in=named)
        ids = list(found.order_by("pk").values_list("pk", flat=True)[: MAX_ROWS + 1])
        is_in_turn = is_across and verb.among is not None
        kept = ids[:MAX_ROWS] if is_in_turn else ids
        return cls(kept, len(named.difference(ids)), rows, verb, is_across)

    @property
    def is_too_large(self) -> bool:
        """Whether there are too many for one request, and they cannot be taken in turn."""
        return len(self.ids) > MAX_ROWS

    def count_rest(self, now: datetime) -> int:
        """Return how many more rows of the list it is of use to, up to a bound."""
        if not (self.is_across and self.verb.among):
            return 0
        return capped_count(self.verb.among(self.rows, now).exclude(pk__in=self.ids))


class RowActions(RowPages):
    """Rows with actions in their list and buttons on their pages, by the same verbs."""

    verbs: ClassVar[Mapping[str, Verb]] = {}

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

    def target(self, row: Any, result: Any) -> Any:
        """Return the row whose page is shown after a button was pressed."""
        return row

    def _perform(self, request: HttpRequest, row: Any, verb: Verb) -> tuple[Any, str]:
        """Do it and write it down, both or neither; return the row it led to, and what was done.

        Of what takes many transactions the beginning is written down, too: it may be interrupted.
        """
        before, chosen = copy(row), verb.chosen(request)
        is_atomic = verb.is_atomic and (chosen is None or chosen.is_atomic)

        def said() -> str:
            return str(chosen.done) if chosen else self.said(verb, before, result)

        if not is_atomic:
            with_others = f" with {chosen.name}" if chosen else ""
            self.log_change(request, row, f"Began to {verb.name}{with_others}.")
        with write_transaction(self.database) if is_atomic else nullcontext():
            if verb.is_locked:
                self._check_once_more(request, row, verb)
            result = verb.perform(row, **({chosen.name: True} if chosen else {}))
            with override(None):  # the history is English
                self.write_down(request, row, result, said())
        return self.target(row, result), said()

    def _try(self, request: HttpRequest, row: Any, verb: Verb) -> tuple[Any, str]:
        """Do it; raise `HipqError` also where the database refuses it, or does not wait longer."""
        try:
            return self._perform(request, row, verb)
        except DatabaseError as error:
            if not (is_refusal(error) or is_locked_out(error)):
                raise
            text = _("The database refused it: %(error)s")
            raise _RefusedError(text % {"error": said_of(error)}) from error

    def _check_once_more(self, request: HttpRequest, row: Any, verb: Verb) -> None:
        """Lock the row; raise `_LeftError` if it is of no use any more, or warns of something new.

        The page sends the whole text of its warnings: of several rows, that of all of them.
        """
        rows = self.model._default_manager.using(self.database)
        current = locked(rows.filter(pk=row.pk)).first()
        if current is None:
            return
        if self._is_useless(current, verb):
            raise _LeftError(self._left(self.called(row), verb))
        warning = str(verb.warning(current))
        if warning not in request.POST.get("warned", ""):
            text = _("%(row)s was left as it is. Your page did not say this yet: %(warning)s")
            raise _LeftError(text % {"row": self.called(row), "warning": warning})

    # From the list

    def perform_each(
        self, request: HttpRequest, rows: QuerySet[Any], name: str
    ) -> HttpResponse | None:
        """Do it to each row on its own; what is refused does not stop the others.

        Ask before, with nothing done, where a row has a warning or a choice.
        """
        verb = self.verbs[name]
        selection = Selection.of(request, rows, verb, self.now)
        if selection.is_too_large:
            most = _("Nothing was done: select at most %(count)s %(rows)s at a time.")
            values = {"count": format_number(MAX_ROWS), "rows": self.opts.verbose_name_plural}
            self.message_user(request, most % values, messages.ERROR)
            return None
        if "confirmed" not in request.POST:
            found = self.get_queryset(request).filter(pk__in=selection.ids).order_by("pk")
            if asked := self._questions(found.defer(*self.list_defer), verb):
                return self._ask(request, verb, asked, selection)
        self._do_each(request, selection.ids, verb)
        self._report_rest(request, selection)
        return None

    def _report_rest(self, request: HttpRequest, selection: Selection) -> None:
        """Say of which rows nothing was done, and what to do about it."""
        if selection.missing:
            text = ngettext(
                "%(count)s selected %(rows)s was left as it is: it is not in this list any more.",
                "%(count)s selected %(rows)s were left as they are: they are not in this list any "
                "more.",
                selection.missing,
            )
            self._warn(request, text, selection.missing)
        if rest := selection.count_rest(self.now):
            self._warn(request, REST, rest)
        if not (selection.ids or selection.missing):
            none = _("Nothing was done: this list has no %(rows)s to which it can be done.")
            values = {"rows": self.opts.verbose_name_plural}
            self.message_user(request, none % values, messages.WARNING)

    def _warn(self, request: HttpRequest, text: _StrOrPromise, number: int) -> None:
        self.message_user(request, text % self._counted(number), messages.WARNING)

    def _counted(self, number: int) -> dict[str, str]:
        rows = model_ngettext(self.opts, number)
        return {"count": format_count(number, format_number), "rows": rows}

    def _do_each(self, request: HttpRequest, ids: Sequence[int], verb: Verb) -> None:
        refusals = [text for pk in ids if (text := self._refusal(request, pk, verb))]
        if done := len(ids) - len(refusals):
            values = {
                "done": (verb.chosen(request) or verb).done,
                "count": format_number(done),
                "rows": model_ngettext(self.opts, done),
            }
            text = _("%(done)s: %(count)s %(rows)s.") % values
            self.message_user(request, text, messages.SUCCESS)
        self.report(request, refusals)

    def _refusal(self, request: HttpRequest, pk: int, verb: Verb) -> str:
        """Do it to one row; return why it was refused, '' where it was not."""
        row = self.get_queryset(request).filter(pk=pk).first()
        if row is None:
            text = _("%(kind)s %(id)s does not exist any more; it was pruned.")
            return text % {"kind": self.opts.verbose_name, "id": pk}
        what = self.called(row)
        if self._is_useless(row, verb):
            return self._left(what, verb)
        try:
            self._try(request, row, verb)
        except _LeftError as error:
            return str(error)
        except HipqError as error:
            return _("%(row)s: %(error)s") % {"row": what, "error": error}
        return ""

    def _is_useless(self, row: Any, verb: Verb) -> bool:
        """Return whether it can be done to a row and would change nothing but what it hides."""
        return verb.is_possible(row) and not verb.is_of_use(row, self.now)

    def _left(self, what: str, verb: Verb) -> str:
        text = _("%(row)s was left as it is: %(reason)s")
        return text % {"row": what, "reason": verb.useless}

    def called(self, row: Model) -> str:
        """Return what a row is called where it is refused."""
        return title(row)

    # From the page

    def is_offered(self, request: HttpRequest, row: Any, verb: Verb) -> bool:
        """Return whether this user may do this to this row now."""
        can_be = verb.is_possible(row) and verb.is_of_use(row, self.now)
        return can_be and self.may(request, verb.permission)

    def buttons(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        """Return what this user may do to this row now."""
        return [
            {
                "label": verb.label,
                "name": verb.name,
                "url": self.url(self.model, verb.name, row.pk),
                **self._confirmation(row, verb),
            }
            for verb in self.verbs.values()
            if self.is_offered(request, row, verb)
        ]

    def get_urls(self) -> list[Any]:
        """Return the pages with one more address for each button."""
        own = [self.address(name, self._button_view(verb)) for name, verb in self.verbs.items()]
        return [*own, *super().get_urls()]

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Put the buttons above the form."""
        row = context["original"]
        context["buttons"] = self.buttons(request, row) if row is not None else []
        return super().render_change_form(request, context, *args, **kwargs)

    @staticmethod
    def _button_view(verb: Verb) -> Callable[..., HttpResponse]:
        @method_decorator(require_POST)
        def press(pages: RowActions, request: HttpRequest, object_id: str) -> HttpResponse:
            pages.require(request, verb.permission)
            return pages._press(request, unquote(object_id), verb)

        return press

    def _press(self, request: HttpRequest, object_id: str, verb: Verb) -> HttpResponse:
        row = self.get_object(request, object_id)
        if row is None:
            return self.gone(request, object_id)
        if self._is_useless(row, verb):
            return self.refused(request, object_id, self._left(title(row), verb))
        if "confirmed" not in request.POST and (asked := self._questions([row], verb)):
            return self._ask(request, verb, asked)
        try:
            row, said = self._try(request, row, verb)
        except HipqError as error:
            return self.refused(request, object_id, str(error))
        text = _("%(done)s: %(row)s.") % {"done": said, "row": title(row)}
        self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(self.url(self.model, "change", row.pk))

    # The confirmation

    def _questions(self, rows: Iterable[Any], verb: Verb) -> list[tuple[Any, dict[str, Any]]]:
        """Return the rows of which something is to be confirmed, or chosen, with what is asked."""
        now = self.now
        asked = [
            (row, self._confirmation(row, verb))
            for row in rows
            if verb.is_possible(row) and verb.is_of_use(row, now)
        ]
        return [(row, question) for row, question in asked if question["is_asked"]]

    def _confirmation(self, row: Any, verb: Verb) -> dict[str, Any]:
        """Return what is said and asked before it is done to a row."""
        warning, choice = verb.warning(row), verb.choice_for(row)
        return {
            "is_asked": bool(warning or choice),
            "warning": warning,
            "choice": choice,
            "is_ticked": choice is not None and choice.is_ticked(row),
            "is_dangerous": verb.is_dangerous,
            "confirm": verb.confirm or verb.label,
        }

    def _ask(
        self,
        request: HttpRequest,
        verb: Verb,
        asked: Sequence[tuple[Any, dict[str, Any]]],
        selection: Selection | None = None,
    ) -> HttpResponse:
        """Show what would be done, to one row, or to those that were selected in the list."""
        ids = selection.ids if selection else ()
        rest = selection.count_rest(self.now) if selection else 0
        named = [self.link(self.model, row.pk, title(row)) for row, _ in asked[:MAX_SHOWN]]
        number = max(len(ids), 1)
        what = f"{format_number(number)} {model_ngettext(self.opts, number)}"
        row, question = (None, _merged(asked, verb)) if ids else asked[0]
        page = self.url(self.model, "change", row.pk) if row is not None else ""
        context = {
            **question,
            "title": f"{verb.label}: {what if row is None else title(row)}?",
            "original": row,
            "verb": verb,
            "effect": question["warning"],
            "rows": named,
            "more": len(asked) - len(named),
            "ids": ids,
            "across": bool(selection and selection.is_across),
            "rest": REST % self._counted(rest) if rest else "",
            "checkbox": ACTION_CHECKBOX_NAME,
            "label": question["confirm"],
            "back": page or request.get_full_path(),
        }
        return self.shown_page(request, "hipq_django/admin/confirm.html", context)


def _merged(asked: Sequence[tuple[Any, dict[str, Any]]], verb: Verb) -> dict[str, Any]:
    """Return what is asked of several rows at once: all warnings, and what any of them offers."""
    questions = [question for _, question in asked]
    offers = [question for question in questions if question["choice"]]
    warnings = dict.fromkeys(str(q["warning"]) for q in questions if q["warning"])
    return {
        **(offers or questions)[0],
        "warning": " ".join(warnings),
        "is_ticked": bool(offers) and all(question["is_ticked"] for question in offers),
        "confirm": verb.label,
    }
