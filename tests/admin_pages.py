"""The pages of the admin, as a test opens and submits them."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.db.models import Model
from django.test import Client
from django.urls import reverse

ACTION_BOX = "_selected_action"


def list_url(model: type[Model]) -> str:
    """Return the address of a model's list."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def page_url(row: Model, page: str = "change") -> str:
    """Return the address of a row's page, or of one of its buttons."""
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}_{page}"
    return reverse(name, args=[row.pk])


def html(client: Client, url: str, **query: Any) -> str:
    """Return the page as a browser gets it."""
    response = client.get(url, query)
    assert response.status_code == 200, response
    return response.content.decode()


def submit(client: Client, url: str, page: str, label: str, **sent: str) -> Any:
    """Send the form of a page that has this label, encoded as a browser does it."""
    before, _, after = page.partition(f'aria-label="{label}"')
    options = before.rpartition("<form")[2]
    hidden = re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', after.split("</form>")[0])
    values = {name: unescape(value) for name, value in hidden} | sent
    if 'enctype="multipart/form-data"' in options:
        return client.post(url, values)  # so does the test client by itself
    return client.post(url, urlencode(values), content_type="application/x-www-form-urlencoded")


def form_values(client: Client, row: Model) -> dict[str, str]:
    """Return what a browser would send if nothing was edited."""
    return form_of(html(client, page_url(row)), row)


def form_of(page: str, row: Model) -> dict[str, str]:
    """Return what a browser would send of the form on a page that it was shown."""
    form = _Form(f"{row._meta.model_name}_form")
    form.feed(page)
    return form.values


class _Form(HTMLParser):
    """Collects the values of one form of a page."""

    def __init__(self, form_id: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._form_id = form_id
        self._inside = False
        self._name = ""
        self._is_text = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the values of inputs and of chosen options."""
        given = dict(attrs)
        value, kind = given.get("value") or "", given.get("type")
        self._inside = given.get("id") == self._form_id if tag == "form" else self._inside
        if tag in ("select", "textarea"):
            self._name, self._is_text = given.get("name") or "", tag == "textarea"
        if tag == "option" and "selected" in given:
            self._keep(self._name, value)
        if tag == "input" and kind != "submit" and (kind != "checkbox" or "checked" in given):
            self._keep(given.get("name") or "", value or ("on" if kind == "checkbox" else ""))

    def handle_data(self, data: str) -> None:
        """Take the text of a textarea."""
        if self._is_text:
            self._keep(self._name, data.removeprefix("\n"))

    def handle_endtag(self, tag: str) -> None:
        """Leave the textarea, or the form."""
        self._is_text = self._is_text and tag != "textarea"
        self._inside = self._inside and tag != "form"

    def _keep(self, name: str, value: str) -> None:
        if self._inside and name:
            self.values[name] = value


def save(client: Client, row: Model, values: dict[str, str] | None = None, /, **edits: Any) -> Any:
    """Submit a row's form with some values edited; `values` are those of a page opened before."""
    sent = {**(form_values(client, row) if values is None else values), **edits}
    sent = {name: value for name, value in sent.items() if value is not None}
    return client.post(page_url(row), {**sent, "_continue": "1"}, follow=True)


def act(client: Client, action: str, *rows: Model, **more: Any) -> Any:
    """Choose an action of the list for some rows; where `confirmed` is given, say yes if asked."""
    url = list_url(type(rows[0]))
    sent = {"action": action, ACTION_BOX: [row.pk for row in rows], **more}
    confirmed = {"confirmed": sent.pop("confirmed")} if "confirmed" in sent else {}
    response = client.post(url, sent, follow=True)
    if not confirmed or response.redirect_chain or response.status_code != 200:
        return response
    warned = warned_of(response.content.decode())
    return client.post(url, {**sent, **confirmed, **warned}, follow=True)


def warned_of(page: str) -> dict[str, str]:
    """Return what a confirmation sends of its warning."""
    return {name: unescape(text) for name, text in _WARNED.findall(page)}


_WARNED = re.compile(r'name="(warned)" value="([^"]*)"')


def button_values(client: Client, button: str, row: Model) -> dict[str, str]:
    """Return what a button on a row's page sends, where it warns that below the warning.

    Where the page has no such button, what an old page or another program may send.
    """
    form = _Form(f"hipq-{button}")
    form.feed(client.get(page_url(row)).content.decode())
    return form.values or {"confirmed": "1"}


def press(client: Client, button: str, row: Model) -> Any:
    """Press a button on a row's page; where it warns, the one below the warning."""
    return confirm(client, button, row)


def confirm(client: Client, button: str, row: Model, **sent: Any) -> Any:
    """Press a button that asks first, with something chosen, and say yes."""
    values = button_values(client, button, row)
    return client.post(page_url(row, button), {**values, **sent}, follow=True)


def messages_of(response: Any) -> list[str]:
    """Return the messages that the page shows."""
    return [str(message) for message in get_messages(response.wsgi_request)] or [
        str(message) for message in response.context["messages"]
    ]


def history(row: Model) -> list[str]:
    """Return what the admin's history says of a row, the oldest first."""
    entries = LogEntry.objects.filter(
        content_type__model=row._meta.model_name, object_id=str(row.pk)
    )
    return [entry.get_change_message() for entry in entries.order_by("pk")]


def log_in(client: Client, *permissions: str, is_staff: bool = True) -> User:
    """Log a new user with these permissions in."""
    user = User.objects.create_user("operator", password="pw", is_staff=is_staff)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    return user
