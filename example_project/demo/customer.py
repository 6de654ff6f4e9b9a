"""A customer who fills in the shop's form, as a browser would."""

import random
from http.cookiejar import CookieJar
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

ITEMS = ("Teapot", "Lamp", "Bicycle", "Atlas", "Umbrella", "Hammock")
HTTP_TIMEOUT_SECONDS = 20


class Customer:
    """Buys one thing after the other."""

    def __init__(self, shop: str, *, seed: int) -> None:
        self._shop = shop
        self._chance = random.Random(seed)  # noqa: S311 - a play
        self._cookies = CookieJar()
        self._browser = build_opener(HTTPCookieProcessor(self._cookies))
        self._open()  # the page brings the cookie that protects the form

    def buy(self) -> None:
        """Send one order; each fifth or so is a big one."""
        big = self._chance.random() < 0.2
        amount = self._chance.randint(1_000, 3_000) if big else self._chance.randint(5, 300)
        order = {"item": self._chance.choice(ITEMS), "amount": amount}
        self._open(order | {"csrfmiddlewaretoken": self._csrf_token()})

    def _csrf_token(self) -> str:
        return next(str(c.value) for c in self._cookies if c.name == "csrftoken")

    def _open(self, form: dict[str, object] | None = None) -> None:
        data = urlencode(form).encode() if form else None
        with self._browser.open(self._shop, data, HTTP_TIMEOUT_SECONDS) as page:
            page.read()
