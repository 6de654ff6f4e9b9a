"""Other systems have no account: their messages are taken although all views need a log-in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.views.decorators.csrf import csrf_exempt
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.callback_urls import Token
from hipq_django.models import Job
from hipq_django.web.receiving import ReceivingView
from tests.integration.webhooks import FORMAT, Partner, succeeded
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

LOG_IN = "django.contrib.auth.middleware.LoginRequiredMiddleware"


@pytest.fixture(autouse=True)
def _every_view_needs_a_log_in(settings: Settings) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, LOG_IN]


@pytest.fixture
def partner(settings: Settings) -> Partner:
    partner = Partner(settings)
    partner.serve()
    return partner


@pytest.fixture
def job(partner: Partner) -> Job:
    """A job that waits for its answer."""
    job = hipq.enqueue("ask", job_key="order-1")
    run_due_jobs()
    return job


class BankView(hipq.WebhookView):
    """A project's own view, with its own `dispatch`."""

    job_type = FORMAT["job_type"]
    key = FORMAT["key"]
    outcome = staticmethod(FORMAT["outcome"])
    verify = FORMAT["verify"]

    def dispatch(self, request: HttpRequest, *args: Any, **captured: Any) -> Any:
        """Dispatch as usual."""
        return super().dispatch(request, *args, **captured)


class AsyncView(ReceivingView):
    """A view of async code."""

    async def post(  # type: ignore[override]  # Django takes both
        self, request: HttpRequest, *_: Any, **captured: Any
    ) -> JsonResponse:
        """Take whatever comes."""
        return JsonResponse({})


def answered(job: Job) -> Any:
    job.refresh_from_db()
    return job.outcome, job.result


def test_another_view_needs_a_log_in(partner: Partner) -> None:
    partner.serve(csrf_exempt(lambda request: JsonResponse({})))

    assert partner.send(succeeded()).status_code == 302


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_callback_is_taken(job: Job, slash: str) -> None:
    url = f"/hipq/callback/{Token('default', job.pk, 1).sign()}{slash}"
    response = Client().post(url, json.dumps({"response": 7}), content_type="application/json")

    assert response.status_code == 200
    assert answered(job) == ("succeeded", 7)


@pytest.mark.parametrize("view", [None, BankView.as_view()], ids=["options", "subclass"])
def test_a_webhook_is_taken(partner: Partner, job: Job, view: Any) -> None:
    partner.serve(view)

    assert partner.is_told(succeeded(receipt="R-1")) == (200, {"status": "accepted"})
    assert answered(job) == ("succeeded", "R-1")


def test_a_view_of_async_code_is_reached(partner: Partner) -> None:
    partner.serve(AsyncView.as_view())

    assert partner.is_told({}) == (200, {})
