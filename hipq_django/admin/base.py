"""What all pages share: the rows of one database, listed without counting them all."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.forms import ModelChoiceField
from django.http import HttpResponseRedirect
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html

from hipq_django import clock
from hipq_django.admin.display import shown, when
from hipq_django.admin.fields import OutdatedFormError
from hipq_django.conf import get_instance
from hipq_django.database import locked, write_transaction
from hipq_django.figures import COUNT_LIMIT, capped_count
from hipq_django.setting import DEFAULT

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import Model, QuerySet
    from django.forms import ModelForm
    from django.http import HttpRequest, HttpResponse

    from hipq_django.admin.fields import EditForm


class CappedPaginator(Paginator):  # type: ignore[type-arg]
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

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Return the rows of the list."""
        rows = super().get_queryset(request, *args, **kwargs)
        return rows.defer(*self.model_admin.list_defer)  # type: ignore[attr-defined]


class HipqAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows that the queue itself adds and deletes; some of their values may be edited.

    `using` is the alias of the database whose rows are shown; '' means the default instance's.
    """

    using = ""
    change_list_template = "hipq_django/admin/change_list.html"
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
    def now(self) -> datetime:
        """The time of the database, which ages are counted from."""
        return clock.now(self.database)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of this page's database, whatever a router would say."""
        return super().get_queryset(request).using(self.database)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the class of the list."""
        return RowList

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: rows come from code and settings."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: `hipq_prune` deletes what is finished and old."""
        return False

    def construct_change_message(  # type: ignore[override]
        self, request: HttpRequest, form: ModelForm[Any], formsets: Any, add: bool = False
    ) -> str:
        """Return what the history keeps of an edit: old and new values."""
        changes = [
            f"{name.replace('_', ' ')} from {shown(_before(form, name))} to "
            f"{shown(getattr(form.instance, name))}"
            for name in form.changed_data
        ]
        return f"Changed {', '.join(changes)}." if changes else "No fields changed."

    def save_changes(self, row: Any, form: EditForm) -> None:
        """Write the edited fields only, where nobody else changed them; others may be written.

        Raise `OutdatedFormError`, with nothing changed, where somebody did.
        """
        if not form.edited:
            return
        rows = self.model._default_manager.using(self.database).filter(pk=row.pk)
        with write_transaction(self.database):
            form.check_current(locked(rows).get())
            rows.update(**form.edited, update_time=self.now)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Save nothing, and say so, where somebody else changed an edited value meanwhile."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except OutdatedFormError as error:
            return self.refused(request, object_id, str(error))

    def refused(self, request: HttpRequest, object_id: str | None, reason: str) -> HttpResponse:
        """Say why nothing was saved, and show the row as it is now."""
        self.message_user(request, reason, messages.ERROR)
        return HttpResponseRedirect(self.url(self.model, "change", object_id))

    @admin.display(description="created")
    def created(self, row: Any) -> str:
        """When the row was created."""
        return when(row.create_time, self.now)

    @admin.display(description="updated")
    def updated(self, row: Any) -> str:
        """When the row was last written."""
        return when(row.update_time, self.now)

    def link(self, model: type[Model], pk: object, text: object) -> str:
        """Return a link to the page of a row, the text alone where this site has no such page."""
        try:
            url = self.url(model, "change", pk)
        except NoReverseMatch:
            return str(text)
        return format_html('<a href="{}">{}</a>', url, text)

    def url(self, model: type[Model], page: str, *args: Any) -> str:
        """Return the address of a page of this admin site."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
        return reverse(name, args=args, current_app=self.admin_site.name)


class ReadOnlyAdmin(HipqAdmin):
    """Rows that nobody edits."""

    actions = None

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False."""
        return False


def _before(form: ModelForm[Any], name: str) -> Any:
    field, value = form.fields[name], form.initial.get(name)
    if isinstance(field, ModelChoiceField) and field.queryset is not None:
        return field.queryset.filter(pk=value).first()
    return value
