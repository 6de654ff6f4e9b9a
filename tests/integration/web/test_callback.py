"""The callback URL: what the other system POSTs, and what it is told."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest
from django.test import Client, RequestFactory
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.exceptions import ConfigurationError
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.models import Answer, Job
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

LIMIT = 1_000


@pytest.fixture(autouse=True)
def _base_url(settings: Settings) -> None:
    settings.HIPQ = {
        "default": {"CALLBACK_BASE_URL": "https://shop.example/", "CALLBACK_MAX_BYTES": LIMIT}
    }


class Charge:
    """A job type that writes down the callback URL of each attempt."""

    def __init__(self, declare: Declare) -> None:
        self.urls: list[str] = []
        self.type: JobTypeSpec = declare("charge", retry=hipq.Fixed(seconds=0))(self.ask)

    def ask(self, job: Job) -> Any:
        self.urls.append(hipq.callback_url(job))
        return hipq.WAIT

    def asked(self) -> Job:
        job = self.type.enqueue()
        run_due_jobs()
        return job


@pytest.fixture
def charge(declare: Declare) -> Charge:
    return Charge(declare)


def post(url: str, body: Any, *, client: Client | None = None, **options: Any) -> Any:
    path = url.removeprefix("https://shop.example")
    client = client or Client()
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    return client.post(path, content, content_type="application/json", **options)


def told(response: Any) -> tuple[int, Any]:
    return response.status_code, json.loads(response.content)


def row(job: Job) -> dict[str, Any]:
    return dict(Job.objects.filter(pk=job.pk).values().get())


PAID, NO = {"response": "paid"}, {"error": "declined"}
OK, AGAIN, GONE = (200, "accepted"), (200, "duplicate"), (410, "late")
STORIES: dict[str, tuple[list[Any], tuple[str, int]]] = {
    "a response": ([(1, PAID, OK)], ("succeeded", 1)),
    "an error": ([(1, NO, OK)], ("running", 2)),
    "the same again": ([(1, PAID, OK), (1, PAID, AGAIN)], ("succeeded", 1)),
    "another one": ([(1, PAID, OK), (1, NO, GONE)], ("succeeded", 1)),
    "to a final job": (["cancel", (1, PAID, GONE)], ("cancelled", 1)),
    "to an attempt that was never answered": (["timeout", (1, PAID, OK)], ("succeeded", 2)),
    "an error about that": (["timeout", (1, NO, GONE)], ("running", 2)),
    "to an attempt that is over": ([(1, NO, OK), (1, PAID, GONE)], ("running", 2)),
    "to the next one": ([(1, NO, OK), (2, NO, OK)], ("running", 3)),
}
"""What happens: the attempt by whose URL something comes, and what its sender is told."""


@pytest.mark.conformance
@pytest.mark.parametrize("name", STORIES)
def test_what_comes_by_the_urls_of_a_job(name: str, charge: Charge, frozen_time: Any) -> None:
    job = charge.asked()
    steps, end = STORIES[name]

    for step in steps:
        if step == "cancel":
            hipq.cancel(job)
        elif step == "timeout":
            frozen_time.shift(86_401)
            run_due_jobs()
        else:
            attempt, body, (status, word) = step
            assert told(post(charge.urls[attempt - 1], body)) == (status, {"status": word})
            run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome if job.is_final else job.state, job.attempt) == end
    assert Answer.objects.filter(job=job).count() == sum(isinstance(step, tuple) for step in steps)


@pytest.mark.conformance
def test_a_job_that_was_pruned_is_gone(charge: Charge) -> None:
    job = charge.asked()
    Job.objects.filter(pk=job.pk).delete()

    assert post(charge.urls[0], PAID).status_code == 410

    assert Answer.objects.get().job is None


@pytest.mark.parametrize("body", [{"response": None}, {"response": None, "error": None}])
def test_null_is_a_response_like_any_other(charge: Charge, body: Any) -> None:
    job = charge.asked()

    assert post(charge.urls[0], body).status_code == 200

    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", None)


# Forged


def forged_urls(url: str) -> list[str]:
    head, _, token = url.rstrip("/").rpartition("/")
    other = token.replace("default-", "default-1", 1)
    unsigned = token.partition(".")[0]
    return [f"{head}/{text}/" for text in (other, unsigned, f"{token}x", token[:-1], "x.y", "%00")]


@pytest.mark.conformance
def test_a_forged_url_is_forbidden(charge: Charge) -> None:
    job = charge.asked()
    before = row(job)

    for url in forged_urls(charge.urls[0]):
        assert post(url, {"response": "paid"}).status_code == 403, url
        assert (row(job), Answer.objects.count()) == (before, 0)


def test_a_url_signed_with_the_former_key_is_good(charge: Charge, settings: Settings) -> None:
    charge.asked()
    before, settings.SECRET_KEY = settings.SECRET_KEY, "another"
    assert post(charge.urls[0], {"response": "paid"}).status_code == 403

    settings.SECRET_KEY_FALLBACKS = [before]
    assert post(charge.urls[0], {"response": "paid"}).status_code == 200


# Malformed

MALFORMED: list[Any] = [
    *("", "paid", "{", '{"response": NaN}', '{"response": Infinity}', "[]", "null", '"x"', "5"),
    *("{}", '{"answer": 1}', '{"response": 1, "error": "x"}', '{"error": null}', '{"error": ""}'),
    *('{"error": "NONE"}', b"\xff\xfe", '{"response": "\\ud800"}', '{"response": "\\u0000"}'),
    '{"response": ' + "[" * 400 + "]" * 399 + "}",
]


def test_a_body_of_another_form_is_a_bad_request(charge: Charge) -> None:
    job = charge.asked()
    before = row(job)

    for body in MALFORMED:
        assert post(charge.urls[0], body).status_code == 400, body
        assert (row(job), Answer.objects.count()) == (before, 0), body


@pytest.mark.parametrize("excess", [1, 3_000_000])
def test_a_body_that_is_too_large_is_refused(charge: Charge, excess: int) -> None:
    job = charge.asked()
    body = json.dumps({"response": "x" * (LIMIT - 16 + excess)})

    response = post(charge.urls[0], body)

    assert response.status_code == 413
    assert (row(job)["state"], Answer.objects.count()) == ("running", 0)


def test_only_post_is_allowed(charge: Charge) -> None:
    job = charge.asked()

    for method in ("get", "head", "put", "patch", "delete", "options"):
        response = getattr(Client(), method)(charge.urls[0].removeprefix("https://shop.example"))

        assert (response.status_code, response["Allow"]) == (405, "POST"), method
        assert row(job)["state"] == "running"


# Making the URL


def test_the_base_of_a_url_is_the_setting_or_the_request(charge: Charge) -> None:
    job = charge.asked()
    request = RequestFactory().get("/", headers={"host": "localhost:8000"})

    assert charge.urls[0].startswith("https://shop.example/hipq/callback/")
    assert hipq.callback_url(job, request=request).startswith("http://localhost:8000/hipq/callb")


def test_without_a_base_there_is_no_url(charge: Charge, settings: Settings) -> None:
    job = charge.type.enqueue()
    settings.HIPQ = {}

    with pytest.raises(ConfigurationError, match="no CALLBACK_BASE_URL; set it to the address"):
        hipq.callback_url(job)


def test_without_the_urls_of_hipq_there_is_no_url(charge: Charge, settings: Settings) -> None:
    job = charge.type.enqueue()
    settings.ROOT_URLCONF = "django.conf.urls.i18n"

    with pytest.raises(ConfigurationError, match=r"include\(\"hipq_django.urls\"\)"):
        hipq.callback_url(job)


# A body in pieces, whose length no header tells


def in_pieces(url: str, body: bytes, **environ: Any) -> Any:
    """POST a body as a WSGI server hands it over that can tell where it ends."""
    return post(
        url,
        body,
        CONTENT_LENGTH="",
        HTTP_TRANSFER_ENCODING="chunked",
        **{"wsgi.input": Pieces(body), "wsgi.input_terminated": True, **environ},
    )


class Pieces(BytesIO):
    """Gives a few bytes at a time, as a server does whose client is slow."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes."""
        return super().read(min(size, 7) if size and size > 0 else size)


def test_a_body_in_pieces_is_taken(charge: Charge) -> None:
    job = charge.asked()

    response = in_pieces(charge.urls[0], b'{"response": {"receipt": "R-1"}}')

    assert (response.status_code, row(job)["result"]) == (200, {"receipt": "R-1"})


def test_of_a_body_in_pieces_no_more_is_read_than_the_limit(charge: Charge) -> None:
    job, pieces = charge.asked(), Pieces(b"x" * LIMIT * 3)

    response = in_pieces(charge.urls[0], b"", **{"wsgi.input": pieces})

    assert (response.status_code, pieces.tell()) == (413, LIMIT + 1)
    assert row(job)["state"] == "running"


def test_a_body_in_pieces_is_refused_where_the_server_cannot_tell_its_end(charge: Charge) -> None:
    job = charge.asked()

    response = in_pieces(charge.urls[0], b'{"response": 1}', **{"wsgi.input_terminated": False})

    assert (response.status_code, row(job)["state"]) == (411, "running")
    assert "Content-Length" in response.json()["error"]


def test_a_byte_order_mark_is_passed_over(charge: Charge) -> None:
    job = charge.asked()

    assert post(charge.urls[0], '\ufeff{"response": "é"}').status_code == 200
    assert row(job)["result"] == "é"
