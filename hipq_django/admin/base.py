"""What all pages share: the rows of one database, listed without counting them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.contrib import admin, messages
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.forms import ModelChoiceField, ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, path, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.display import NOTHING, badge, format_number, shown, when
from hipq_django.admin.fields import EditForm
from hipq_django.admin.shards import SHARD, chosen_shard, instance_on, shard_of_row, working_on
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.answering import answers
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.sharding import Shard
from hipq_django.domain.validation import id_from
from hipq_django.exceptions import HipqError
from hipq_django.models import Job
from hipq_django.models.base import name_in_its_kind, title
from hipq_django.monitoring.counts import COUNT_LIMIT, capped_count
from hipq_django.monitoring.endings import Trend
from hipq_django.sharding.map import map_of

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

FIELD_LOOKUPS = ("", "__exact", "__isnull", "__gte", "__lt", "__id__exact")
"""What Django's own filters of a field ask for."""


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # generic in the stubs only
    """Counts up to a bound, so that a page costs the same however many rows there are."""

    @cached_property
    def count(self) -> int:
        """The number of rows that can be paged through."""
        return min(self._found, COUNT_LIMIT)

    @property
    def is_capped(self) -> bool:
        """Whether there are more rows than can be paged through."""
        return self._found > COUNT_LIMIT

    @cached_property
    def _found(self) -> int:
        rows: Any = self.object_list
        return capped_count(rows)


class RowList(ChangeList):
    """Leaves the values on the database's side that may be large and are not listed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = capfirst(str(self.opts.verbose_name_plural))

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Return the rows of the list."""
        rows = super().get_queryset(request, *args, **kwargs)
        return rows.defer(*self.model_admin.list_defer)  # type: ignore[attr-defined]  # a HipqAdmin

    def get_results(self, request: HttpRequest) -> None:
        """Prepare the rows of the page."""
        super().get_results(request)
        self.result_list = list(self.result_list)
        self.model_admin.prepare(request, self.result_list)  # type: ignore[attr-defined]  # a HipqAdmin

    def get_filters_params(self, *args: Any) -> dict[str, Any]:
        """Return what the address asks for; the shard is no filter of its rows."""
        found: dict[str, Any] = super().get_filters_params(*args)
        found.pop(SHARD, None)
        return found

    def get_ordering_field(self, field_name: Any) -> Any:
        """Return the field of a column that may be sorted by: any other has no index."""
        sortable = self.sortable_by or ()
        return super().get_ordering_field(field_name) if field_name in sortable else None


def column(name: _StrOrPromise, show: Callable[[Any, Any], Any]) -> Any:
    """Return a column of a list, or a line of a page: what `show(page, row)` makes of a row."""
    return admin.display(description=name)(show)


class HipqAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    """Rows that the queue itself adds and deletes; some of their values may be edited.

    `using` is the alias of the database whose rows are shown; '' means the default instance's.
    """

    using = ""
    reader: HttpRequest | None = None
    """Whose permissions decide what links there are; None where links are for everybody."""
    shard: Shard | None = None
    """The shard whose rows are shown; None without SHARDS."""

    change_form_template = "hipq_django/admin/change_form.html"
    change_list_template = "hipq_django/admin/change_list.html"
    list_class: ClassVar[type[RowList]] = RowList
    list_defer: ClassVar[tuple[str, ...]] = ()
    list_max_show_all = 0
    list_per_page = 50
    paginator = CappedPaginator
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by: ClassVar[tuple[str, ...]] = ()

    class Media:
        css = {"all": ["hipq_django/admin.css"]}

    @property
    def database(self) -> str:
        """The alias of the database whose rows are shown."""
        return self.using or get_instance(DEFAULT).database

    @property
    def sharded(self) -> InstanceSettings | None:
        """The instance whose shards there are to choose from; ids of flows name no shard."""
        is_own = self.opts.app_label == Job._meta.app_label
        return instance_on(self.database) if is_own else None

    @property
    def shards(self) -> Sequence[Shard]:
        """The shards to choose from."""
        return map_of(self.sharded).shards if self.sharded else ()

    @property
    def now(self) -> datetime:
        """The time of the database, which ages are counted from."""
        return clock.now(self.database)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of this page's database, whatever a router would say."""
        return super().get_queryset(request).using(self.database)

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Let the title say what row the page shows, with what else there is to say of it."""
        if row := context["original"]:
            context.update({"title": self.heading(row), "subtitle": None})
            context.update(self.beside_form(request, row))
        return super().render_change_form(request, context, *args, **kwargs)

    def beside_form(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return what the template of a row's page shows beside the form."""
        return {}

    def prepare(self, request: HttpRequest, rows: Sequence[Any]) -> None:
        """Give the rows of a list, or of a page, what few queries find for all of them."""

    def label(self, row: Any) -> str:
        """Return what a row is called in the reader's language; `str(row)` is English."""
        return title(row)

    def heading(self, row: Any) -> str:
        """Return the title of a row's page, by which other pages lead back to it."""
        return capfirst(self.label(row))

    def action_checkbox(self, obj: Any) -> Any:
        """Return the box before a row of the list, which names the row to who cannot see it."""
        return super().action_checkbox(_Called(obj))

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Say which row was changed, and show the page that follows."""
        return super().response_change(request, _Called(obj, name_in_its_kind))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show what was done to a row."""
        context = extra_context or {}
        return self.shown_on(
            self.shard_of(object_id), request, lambda it: it._history(request, object_id, context)
        )

    def _history(
        self, request: HttpRequest, object_id: str, context: dict[str, Any]
    ) -> HttpResponse:
        called: dict[str, Any] = {}
        if row := self.get_object(request, unquote(object_id)):
            text = _("History of %(row)s")
            called = {"object": _Called(row), "title": text % {"row": self.label(row)}}
        return super().history_view(request, object_id, {**called, **context})

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row of a page."""
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            self.prepare(request, [row])
        return row

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the class of the list."""
        return self.list_class

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Return whether the list has a filter that asks for this; nothing else is looked up.

        Django lets an address ask for any field of the model, in any way: for the beginning of a
        value that is masked, digit by digit, or by a pattern that keeps the database busy.
        """
        asked = {name for item in self.get_list_filter(request) for name in _asks(item)}
        return lookup in asked

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return the rows that are searched for."""
        term = search_term.strip()
        return (self.find(queryset, term) if term else queryset), False

    def find(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Return the rows that a search finds: by a part of their names, unless there is more."""
        return rows.filter(name__icontains=term)

    def page_of(self, model: type[Model]) -> admin.ModelAdmin[Any] | None:
        """Return what shows the rows of another model on this site, None where nothing does."""
        try:
            return self.admin_site.get_model_admin(model)
        except NotRegistered:
            return None

    def may_view(self, request: HttpRequest, model: type[Model]) -> bool:
        """Return whether the user may see rows of another model, as its own pages would say."""
        page = self.page_of(model)
        if page is not None:
            return page.has_view_or_change_permission(request)
        return request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: rows come from code and settings."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: `hipq_prune` deletes what is finished and old."""
        return False

    def construct_change_message(  # type: ignore[override]  # the stubs name other types
        self, request: HttpRequest, form: ModelForm[Any], formsets: Any, add: bool = False
    ) -> str:
        """Return what the history keeps of an edit, in English: old and new values."""
        changes = [
            f"{name.replace('_', ' ')} from {shown(_before(form, name))} to "
            f"{shown(getattr(form.instance, name))}"
            for name in form.changed_data
        ]
        return f"Changed {', '.join(changes)}." if changes else "No fields changed."

    def save_changes(self, row: Any, form: EditForm) -> None:
        """Write the edited fields only."""
        if form.edited:
            rows = self.model._default_manager.using(self.database).filter(pk=row.pk)
            rows.update(**form.edited, update_time=self.now)

    def read_by(self, request: HttpRequest) -> Self:
        """Return these pages with links to what the user may see, and texts in place of others.

        A copy: columns and fields are not told who reads them, and requests share this object.
        """
        pages = copy(self)
        pages.reader = request
        return pages

    def shard_of(self, object_id: str | None) -> Shard | None:
        """Return the shard of a row; None without SHARDS."""
        return shard_of_row(self.sharded, object_id) if self.sharded else None

    def shown_on(
        self, shard: Shard | None, request: HttpRequest, view: Callable[[Any], HttpResponse]
    ) -> HttpResponse:
        """Return what `view` makes of these pages, as this user may read them, of a shard."""
        pages = self.read_by(request)
        if shard is None:
            return view(pages)
        pages.shard, pages.using = shard, shard.alias
        with working_on(shard.alias):
            return view(pages) if answers(shard.alias) else pages._silence(request, shard)

    def _silence(self, request: HttpRequest, shard: Shard) -> HttpResponse:
        """Say that the shard does not answer, and let another one be chosen."""
        context = {"title": silence_of(shard), "pages": self}
        return self.shown_page(request, "hipq_django/admin/silent_shard.html", context)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with the links that the user may follow.

        Its address names the shard, so that actions act in the shard that the page shows, though
        another one was chosen meanwhile.
        """
        shard = chosen_shard(request, self.sharded) if self.sharded else None
        if shard and request.method == "GET" and request.GET.get(SHARD) != str(shard.number):
            query = request.GET.copy()
            query[SHARD] = str(shard.number)
            return HttpResponseRedirect(f"{request.path}?{query.urlencode()}")
        return self.shown_on(shard, request, lambda it: it._list(request, extra_context))

    def _list(self, request: HttpRequest, context: dict[str, Any] | None) -> HttpResponse:
        return super().changelist_view(request, context)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show a row's page, or save what was edited there."""
        page = (request, object_id, form_url, extra_context)
        return self.shown_on(self.shard_of(object_id), request, lambda it: it.form_page(*page))

    def form_page(self, request: HttpRequest, object_id: str | None, *more: Any) -> Any:
        """Save nothing, and say so, where what happened meanwhile stands in the way.

        The row is locked before its form is checked, and stays as it is until that is written.
        """
        if request.method != "POST":
            return super().changeform_view(request, object_id, *more)
        pk = id_from(unquote(object_id or ""))
        try:
            with write_transaction(self.database):
                locked(self.model._default_manager.using(self.database).filter(pk=pk)).first()
                return super().changeform_view(request, object_id, *more)
        except HipqError as error:
            reason = str(error)
        except PermissionDenied:
            reason = self.why_not_edited(request, object_id) if object_id else ""
            if not reason:
                raise
        self.message_user(request, reason, messages.ERROR)
        return HttpResponseRedirect(request.path)

    def why_not_edited(self, request: HttpRequest, object_id: str) -> str:
        """Return why this row cannot be edited by a user who may edit others, '' otherwise."""
        return ""

    created = column(_("created"), lambda self, row: when(row.create_time, self.now))
    updated = column(_("updated"), lambda self, row: when(row.update_time, self.now))

    def endings(self, row: Any, name: str) -> str:
        """Return how the jobs of a row ended in the last hour; `name` is how jobs are filtered."""
        lately = row.trend.lately
        more = "+" if row.trend.is_capped else ""
        parts = [_("%(count)s ended") % {"count": f"{format_number(lately.ended)}{more}"}]
        for outcome, number, text in (
            ("failed", lately.failed, _("%(count)s failed")),
            ("timed_out", lately.timed_out, _("%(count)s timed out")),
        ):
            if number:
                shown_number = text % {"count": format_number(number)}
                query = {name: row.pk, "outcome": outcome, "ended": "hour"}
                parts.append(self.list_link(Job, shown_number, query))
        return format_html_join(", ", "{}", ((part,) for part in parts))

    def trend_badges(self, trend: Trend, *, is_unanswered: bool = False) -> Iterator[str]:
        """Yield what is wrong with how jobs end."""
        if trend.is_failing:
            yield badge(gettext("failing"), "error")
        if trend.is_timing_out:
            yield badge(gettext("timing out"), "timed_out")
        if is_unanswered:
            yield badge(gettext("not answered"), "timed_out")

    def link(self, model: type[Model], pk: object, text: object) -> str:
        """Return a link to the page of a row, the text alone where `url_if_any` knows none."""
        return _linked(self.url_if_any(model, "change", pk), text)

    def job_link(self, pk: int | None) -> str:
        """Return a link to a job that is named by its id; the sign for nothing for None."""
        return NOTHING if pk is None else self.link(Job, pk, _("job %(id)s") % {"id": pk})

    def list_link(self, model: type[Model], text: object, query: Mapping[str, Any]) -> str:
        """Return a link to a filtered list, the text alone where `url_if_any` knows none."""
        url = self.list_url(model, query)
        return _linked(url, text)

    def list_url(self, model: type[Model], query: Mapping[str, Any]) -> str:
        """Return the address of a filtered list, '' where `url_if_any` knows none."""
        url = self.url_if_any(model, "changelist")
        shard = {SHARD: self.shard.number} if self.shard else {}
        return f"{url}?{urlencode({**shard, **query})}" if url else ""

    def url_if_any(self, model: type[Model], page: str, *args: Any) -> str:
        """Return the address of a page, '' where this site or this user does not see the model."""
        if self.reader is not None and not self.may_view(self.reader, model):
            return ""
        try:
            return self.url(model, page, *args)
        except NoReverseMatch:
            return ""

    def url(self, model: type[Model], page: str, *args: Any) -> str:
        """Return the address of a page of this admin site."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
        return reverse(name, args=args, current_app=self.admin_site.name)

    # More pages than those to view and to change

    def may(self, request: HttpRequest, permission: str) -> bool:
        """Return whether the user has a permission of this app, and may see these rows."""
        permitted = request.user.has_perm(f"{self.opts.app_label}.{permission}")
        return permitted and self.has_view_or_change_permission(request)

    def require(self, request: HttpRequest, permission: str) -> None:
        """Raise `PermissionDenied` unless the user has a permission of this app."""
        if not self.may(request, permission):
            raise PermissionDenied

    def address(self, name: str, view: Callable[..., HttpResponse]) -> Any:
        """Return the address of one more page of a row.

        `view(pages, request, …)` gets these pages as the user may read them.
        """

        def shown(request: HttpRequest, object_id: str) -> HttpResponse:
            shard = self.shard_of(object_id)
            return self.shown_on(shard, request, lambda it: view(it, request, object_id))

        names = f"{self.opts.app_label}_{self.opts.model_name}_{name}"
        guarded = self.admin_site.admin_view(shown)
        return path(f"<path:object_id>/{name}/", guarded, name=names)

    def row_url(self, row: Any, page: str = "change") -> str:
        """Return the address of a page of a row."""
        return self.url(self.model, page, row.pk)

    def gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say that there is no such row, and show the list."""
        text = _("There is no %(kind)s %(id)s.")
        values = {"kind": self.opts.verbose_name, "id": object_id[:100]}
        self.message_user(request, text % values, messages.ERROR)
        return HttpResponseRedirect(self.url(self.model, "changelist"))

    def shown_page(
        self, request: HttpRequest, template: str, context: dict[str, Any]
    ) -> HttpResponse:
        """Return one more page of this admin, made by a template of its own."""
        request.current_app = self.admin_site.name
        shared = {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media}
        if context.get("original") is not None:
            shared["row_label"] = self.heading(context["original"])
        return TemplateResponse(request, template, {**shared, **context})


class ReadOnlyAdmin(HipqAdmin):
    """Rows that nobody edits."""

    actions: Any = None

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False."""
        return False


class _Called:
    """A row that Django calls by `str`, which is English, with its title in place of that."""

    def __init__(self, row: Model, called: Callable[[Model], str] = title) -> None:
        self._row = row
        self._called = called

    def __getattr__(self, name: str) -> Any:
        return getattr(self._row, name)

    def __str__(self) -> str:
        return self._called(self._row)


def silence_of(shard: Shard) -> str:
    """Return what is said of a shard that does not answer."""
    return gettext("%(shard)s does not answer") % {"shard": shard.alias}


def _linked(url: str, text: object) -> str:
    return format_html('<a href="{}">{}</a>', url, text) if url else str(text)


def _asks(item: Any) -> Iterator[str]:
    """Yield the names in the address by which a filter of the list asks."""
    if isinstance(item, type) and issubclass(item, admin.SimpleListFilter):
        yield str(item.parameter_name)
        return
    field = item if isinstance(item, str) else item[0]
    for lookup in FIELD_LOOKUPS:
        yield f"{field}{lookup}"


def _before(form: ModelForm[Any], name: str) -> Any:
    field, value = form.fields[name], form.initial.get(name)
    if isinstance(field, ModelChoiceField) and field.queryset is not None:
        return field.queryset.filter(pk=value).first()
    return value
