"""The token of a callback URL is as good as a password: no log holds it, whatever is answered."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import django
import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.core import mail
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.db import OperationalError
from django.test import Client
from django.utils.log import AdminEmailHandler
from django.views.debug import ExceptionReporter
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.callback_urls import Token
from hipq_django.domain.redaction import WithoutTokens
from hipq_django.models import Attempt, Job
from hipq_django.web import callback_view
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)

LOGGERS = ["", "django", "django.request", "django.security", "django.server", "hipq_django"]

Post = Callable[..., int]


class Everything(logging.Handler):
    """Keeps all that a formatter, an error tracker or a mail may make of a record."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write down the record, its request and the values in its traceback."""
        line = logging.Formatter("%(name)s %(message)s").format(record)
        self.lines.append(line)
        self.texts += [line, repr(vars(record))]
        request: Any = getattr(record, "request", None)
        if hasattr(request, "META"):
            told = record.exc_info or (None, record.getMessage(), None)
            report = ExceptionReporter(request, *told)
            self.texts += [report.get_traceback_html(), report.get_traceback_text()]
            self.texts += [repr(request), repr(request.META), request.build_absolute_uri()]


@pytest.fixture
def logs(settings: Settings) -> Iterator[Everything]:
    """All that any logger is told, and the mails to the admins."""
    address = "ops@shop.example"
    settings.ADMINS = [address if django.VERSION >= (6, 0) else ("ops", address)]
    everything, mails = Everything(), AdminEmailHandler(include_html=True)
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).addHandler(everything)
        logging.getLogger(name).setLevel(logging.DEBUG)
    mails.setLevel(logging.ERROR)
    logging.getLogger("django").addHandler(mails)
    logging.getLogger("django.server").addFilter(only := WithoutTokens())
    yield everything
    logging.getLogger("django.server").removeFilter(only)
    logging.getLogger("django").removeHandler(mails)
    for name, level in before.items():
        logging.getLogger(name).removeHandler(everything)
        logging.getLogger(name).setLevel(level)


def wsgi(method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    """Send a request over a real connection, to the server that `runserver` uses."""
    server = ThreadedWSGIServer(("127.0.0.1", 0), WSGIRequestHandler)
    server.daemon_threads = False  # so that closing it waits for the last line of the log
    server.set_app(WSGIHandler())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        connection.request(method, path, body, {"Host": "testserver", **headers})
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asgi(method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    """Hand a request over as an ASGI server does."""
    parts = urlsplit(f"http://testserver{path}")
    given = {"host": "testserver", "content-length": str(len(body)), **headers}
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
    }

    @async_to_sync
    async def talk() -> int:
        server = ApplicationCommunicator(ASGIHandler(), scope)
        await server.send_input({"type": "http.request", "body": body, "more_body": False})
        start = await server.receive_output(timeout=60)
        await server.receive_output(timeout=60)
        await server.wait(timeout=60)
        return int(start["status"])

    return talk()


@pytest.fixture(params=[wsgi, asgi], ids=["wsgi", "asgi"])
def send(request: pytest.FixtureRequest) -> Any:
    """How a request reaches the site."""
    return request.param


@pytest.fixture
def job(transactional_db: None) -> Job:
    """A job that waits for its answer."""
    job = hipq.enqueue("ask", {"order": 42}, job_key="order-42")
    run_due_jobs()
    return job


def token_of(job: Job, part: str = "") -> str:
    return Token("default", job.pk, 1, part).sign()


def check(logs: Everything, token: str) -> None:
    """Fail if the token, or the signature in it, is in a log or a mail."""
    signature = token.rpartition(".")[2][:40]
    texts = [*logs.texts, *(str(message.message()) for message in mail.outbox)]
    assert texts
    assert not [text for text in texts if signature in text.replace("=\n", "")]


JSON = {"Content-Type": "application/json"}
REQUESTS: list[tuple[int, str, bytes]] = [
    (200, "POST", b'{"progress": {"percent": 4}}'),
    (400, "POST", b"{"),
    (400, "POST", b'{"progress": 1}'),
    (405, "GET", b""),
    (405, "PUT", b"{}"),
    (413, "POST", b" " * 1_100_000),
    (413, "POST", b" " * 3_000_000),
    (200, "POST", b'{"response": 1}'),
    (410, "POST", b'{"response": 2}'),
    (409, "POST", b'{"progress": {"percent": 4}}'),
]


def test_no_log_of_a_reply_holds_the_token(send: Post, logs: Everything, job: Job) -> None:
    token = token_of(job)

    for status, method, body in REQUESTS:
        logs.lines.clear()
        assert send(method, f"/hipq/callback/{token}/", body, JSON) == status
        if status >= 400:
            assert any(line.startswith("django.request ") for line in logs.lines)
    check(logs, token)


MANGLED = ["{0}x/", "{0}/x/", "x/{0}/", "{0}%00/", "{0}%ff/", "{dots}x/", "{0}/?token={0}"]


def test_no_log_of_a_mangled_token_holds_it(send: Post, logs: Everything, job: Job) -> None:
    token = token_of(job)

    for mangled in MANGLED:
        path = f"/hipq/callback/{mangled.format(token, dots=token.replace('.', '%2E'))}"
        assert send("POST", path, b'{"progress": {"percent": 4}}', JSON) in {200, 403}, mangled
    check(logs, token)


def test_a_url_without_its_slash_is_taken(send: Post, logs: Everything, job: Job) -> None:
    token = token_of(job)

    assert send("POST", f"/hipq/callback/{token}", b'{"response": 1}', JSON) == 200

    job.refresh_from_db()
    assert job.outcome == "succeeded"
    check(logs, token)


@pytest.mark.parametrize("debug", [False, True])
def test_no_log_of_a_failure_holds_the_token(
    send: Post,
    logs: Everything,
    job: Job,
    debug: bool,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.DEBUG = debug
    failures = [(RuntimeError("a bug"), 500), (OperationalError("away"), 503), (SystemError(), 500)]
    token = token_of(job, part="a b/c")
    headers = {**JSON, "X-Original-URI": f"/hipq/callback/{quote(token)}/"}

    for failure, expected in failures:

        def fails(*_: Any, failure: Exception = failure) -> Any:
            raise failure

        monkeypatch.setattr(callback_view, "answer_callback", fails)
        status = send("POST", f"/hipq/callback/{quote(token)}/", b'{"response": 1}', headers)
        assert status == expected
        check(logs, token)
        if status == 500 and not debug:
            told = "Internal Server Error: /hipq/callback/<hipq_token:token>/"
            assert told in mail.outbox[0].subject
        logs.texts.clear()
        mail.outbox.clear()


# Access logs


def test_the_access_log_of_runserver_holds_the_token_unless_it_is_filtered(
    logs: Everything, job: Job
) -> None:
    token = token_of(job)

    wsgi("POST", f"/hipq/callback/{token}/", b'{"response": 1}', JSON)

    (line,) = [line for line in logs.lines if line.startswith("django.server ")]
    head = token.rpartition(".")[0]
    assert line == f'django.server "POST /hipq/callback/{head}.•••/ HTTP/1.1" 200 22'


@pytest.mark.parametrize(
    ("message", "args"),
    [
        ('%s - "%s %s HTTP/%s" %d', ("127.0.0.1:1", "POST", "/hipq/callback/{}/", "1.1", 200)),
        ("%(h)s %(r)s %(s)s", ({"h": "::1", "r": "POST /hipq/callback/{}/ HTTP/1.1", "s": 200},)),
        ("POST /hipq/callback/{}/ took 3 ms", ()),
    ],
)
def test_the_filter_knows_the_access_logs_of_servers(job: Job, message: str, args: Any) -> None:
    token = token_of(job, part="north")
    filled = json.loads(json.dumps(args).replace("{}", token))
    record = logging.LogRecord(
        "access", logging.INFO, "", 0, message.replace("{}", token), tuple(filled), None
    )

    assert WithoutTokens().filter(record)

    assert f"/hipq/callback/default-{job.pk}-1-north.•••/" in record.getMessage()
    assert token not in record.getMessage()


# What a handler does with its URL


def test_an_error_that_quotes_the_url_is_stored_and_logged_without_the_token(
    declare: Declare, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.HIPQ = {"default": {"CALLBACK_BASE_URL": "https://shop.example"}}
    tokens: list[str] = []

    @declare("charge")
    def charge(job: Job) -> None:
        url = hipq.callback_url(job)
        tokens.append(url.rstrip("/").rpartition("/")[2])
        raise OSError(f"POST failed: {{'callback': '{url}'}}")

    caplog.set_level(logging.DEBUG)
    job = charge.enqueue()
    run_due_jobs()

    job.refresh_from_db()
    attempt = Attempt.objects.get()
    stored = f"{job.error}{attempt.error}{attempt.traceback}{caplog.text}"
    assert re.search(rf"https://shop\.example/hipq/callback/default-{job.pk}\w*-1\.•••/", job.error)
    assert tokens[0].rpartition(".")[2] not in stored


@pytest.mark.parametrize(
    ("error", "stored"),
    [
        ("no answer at URL", "no answer at SHOWN"),
        ({"at": ["URL", 1e23], "URL": None}, {"at": ["SHOWN", int(1e23)], "SHOWN": None}),
        (["callback", 0.5, {"why": 'é "x"'}], ["callback", 0.5, {"why": 'é "x"'}]),
    ],
)
def test_what_a_partner_says_of_the_url_is_stored_and_logged_without_the_token(
    job: Job, caplog: pytest.LogCaptureFixture, error: Any, stored: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    token = token_of(job)
    url, head = f"/hipq/callback/{token}/", token.rpartition(".")[0]
    error = json.loads(json.dumps(error).replace("URL", url))
    stored = json.loads(json.dumps(stored).replace("SHOWN", f"/hipq/callback/{head}.•••/"))

    progress = {"progress": {"percent": 4, "message": f"called {url}"}}
    assert Client().post(url, progress, content_type="application/json").status_code == 200
    job.refresh_from_db()
    assert job.progress_message == f"called /hipq/callback/{head}.•••/"

    assert Client().post(url, {"error": error}, content_type="application/json").status_code == 200
    job.refresh_from_db()
    assert job.error == Attempt.objects.get().error == stored
    assert token.rpartition(".")[2] not in caplog.text
