"""What pages of their own share: who may see them, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import model_ngettext
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext_lazy as _, ngettext

from hipq_django.admin.base import HipqAdmin
from hipq_django.admin.display import format_number

MAX_SHOWN = 10
"""How many refusals, and how many rows before a confirmation, are named."""


class RowPages(HipqAdmin):
    """Rows that have more pages than those to view, to change and to delete."""

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

        def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return view(self.read_by(request), request, *args, **kwargs)

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
