"""The README's code, as written, in a project made by `startproject`: worker, bank and callback."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.conftest import ROOT
from tests.docs.documents import README
from tests.docs.project import FreshProject, free_port, listens
from tests.processes.conftest import eventually

MOST_WORDS = 800
MOST_WORDS_BEFORE_CODE = 60

# The addresses of README's settings, which belong to the reader, are those of this test.
ADDRESSES = """
BANK_URL = {bank!r}
HIPQ["default"]["CALLBACK_BASE_URL"] = {site!r}
"""


class Bank(HTTPServer):
    """Takes payments and keeps them; the test answers them when it wants to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Counter)
        self.payments: list[dict[str, Any]] = []


class _Counter(BaseHTTPRequestHandler):
    server: Bank

    def do_POST(self) -> None:
        """Take a payment."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.payments.append(json.loads(body))
        self.send_response(202)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def bank() -> Iterator[Bank]:
    with Bank() as bank:
        thread = threading.Thread(target=bank.serve_forever)
        thread.start()
        yield bank
        bank.shutdown()
        thread.join()


def post(url: str, content: Any) -> int:
    """POST JSON; return the status of the answer."""
    request = Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as response:
        return int(response.status)


def commands() -> list[str]:
    """The commands of manage.py that the README tells the reader to run."""
    return [
        line.removeprefix("$ python manage.py ")
        for block in README.blocks()
        if block.language == "console"
        for line in block.text.splitlines()
    ]


@pytest.mark.conformance
@pytest.mark.processes
def test_the_code_of_the_readme_pays_an_order_through_a_bank_that_answers_later(
    fresh_project: FreshProject, bank: Bank, tmp_path: Path
) -> None:
    project, port = fresh_project, free_port()
    site = f"http://127.0.0.1:{port}"
    project.create("shop")
    addresses = ADDRESSES.format(bank=f"http://127.0.0.1:{bank.server_port}/payments", site=site)
    project.write([block for block in README.blocks() if block.language == "python"], addresses)
    migrate, worker = commands()

    project.manage(migrate)
    project.manage("shell", "-c", "from shop.checkout import pay; pay(42, '9.90')")
    project.manage(worker, "--until-idle")

    [payment] = bank.payments
    assert (payment["order"], payment["amount"]) == ("order-42", "9.90")
    assert "waiting for answer" in project.manage("hipq_status")
    server = ("manage.py", "runserver", "--noreload", str(port))
    with project.running(*server, log=tmp_path / "web.log"):
        eventually(lambda: listens(port), "the web server listens")
        assert post(payment["callback"], {"response": {"receipt": "R-1"}}) == 200
    project.manage(worker, "--until-idle")
    assert "succeeded {'receipt': 'R-1'} 1 attempt" in project.manage("shell", "-c", LOOK)
    assert len(bank.payments) == 1


LOOK = """
from hipq_django.models import Job
job = Job.objects.get(job_key="order-42")
print(job.outcome, job.result, job.attempt, "attempt")
"""


def test_the_readme_is_short_and_comes_to_code_at_once() -> None:
    before_code = README.text.partition("```")[0]

    assert len(README.text.split()) <= MOST_WORDS
    assert len(before_code.split()) <= MOST_WORDS_BEFORE_CODE


def test_every_make_target_that_the_readme_names_is_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"`make ([a-z-]+)`", README.text)

    assert set(named) == {"demo", "demo-flow", "test"}
    assert set(named) <= set(targets)
