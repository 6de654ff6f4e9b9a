"""The browser, and a page in which an operator has logged in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Browser, Page, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

from hipq_django.models import Queue
from tests.admin_pages import list_url
from tests.conftest import CHROMIUM

# What a page and what an assertion wait for on a busy machine, in milliseconds.
PATIENCE = 20_000


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A browser for all tests: its start takes longer than what they do in it."""
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as environment:
        # Playwright keeps an event loop in this thread, which Django takes for an async caller.
        environment.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        expect.set_options(timeout=PATIENCE)
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        connections.close_all()  # beside that loop the thread had connections of its own


@pytest.fixture
def page(browser: Browser, live_server: LiveServer) -> Iterator[Page]:
    """A page in which an operator has logged in, without the cookies of earlier ones."""
    User.objects.create_superuser("operator", password="3 a.m.")
    page = browser.new_page(base_url=live_server.url, viewport={"width": 1400, "height": 900})
    page.set_default_timeout(PATIENCE)
    log_in(page)
    yield page
    page.close()


def log_in(page: Page) -> None:
    page.goto(list_url(Queue))
    page.get_by_label("Username").fill("operator")
    page.get_by_label("Password").fill("3 a.m.")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Queues", level=1)).to_be_visible()
