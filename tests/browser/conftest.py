"""The browser, and a page in which an operator has logged in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

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


@pytest.fixture(scope="package")
def window(browser: Browser, live_server: LiveServer) -> Page:
    """A window for all tests, which keeps the styles and scripts of the pages."""
    window = browser.new_page(base_url=live_server.url)
    window.set_default_timeout(PATIENCE)
    return window


@pytest.fixture
def page(window: Page, live_server: LiveServer) -> Iterator[Page]:
    """A page in which an operator has logged in, as wide as a screen."""
    operator = Client()
    operator.force_login(User.objects.create_superuser("operator"))
    name, url = settings.SESSION_COOKIE_NAME, live_server.url
    window.context.add_cookies([{"name": name, "value": operator.cookies[name].value, "url": url}])
    window.set_viewport_size({"width": 1400, "height": 900})
    window.emulate_media(color_scheme="light")
    yield window
    window.goto("about:blank")  # so that it asks for nothing any more
    window.context.clear_cookies()
