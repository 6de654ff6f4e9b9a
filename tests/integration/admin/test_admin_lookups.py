"""What the address of an admin page may ask for: the filters that are there, and nothing else."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.contrib import admin
from django.db.models import Model
from django.test import Client, RequestFactory
from django.urls import reverse
from hypothesis import HealthCheck, given, settings, strategies as st

import hipq_django as hipq
from hipq_django.admin import JobAdmin
from hipq_django.admin.filters import QueueFilter
from hipq_django.models import Answer, Batch, Job, JobType, Queue, Schedule, Worker
from tests.admin_pages import ACTION_BOX, html, list_url, page_url
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory, WorkerFactory
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

MODELS: list[type[Model]] = [Answer, Batch, Job, JobType, Queue, Schedule, Worker]
EACH_MODEL = pytest.mark.parametrize("model", MODELS)
FINE = {200, 302, 400, 403, 404, 405}
CARD = "4111111111111111"

fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def rows() -> list[Model]:
    """A row of each model."""
    answer = AnswerFactory.create(status="unmatched")
    job = JobFactory.create(job_key="k")
    schedule = hipq.schedule("nightly", hipq.NewJob(job.job_type.name), "0 2 * * *")
    batch = Batch.objects.create(name="reports", create_time=job.create_time)
    others = [batch, schedule, WorkerFactory.create()]
    return [answer, job, job.job_type, job.queue, *others]


@pytest.fixture
def operator(admin_client: Client) -> Client:
    """One whose browser shows an error where a test would raise it."""
    admin_client.raise_request_exception = False
    return admin_client


# Look-ups

REFUSED = [
    (Job, "job_data__card__startswith=41"),
    (Job, "job_data__card=4111111111111111"),
    (Job, "job_data__contains=4"),
    (Job, "result__card__gt=1"),
    (Job, "error__contains=41"),
    (Job, "error=NONE"),
    (Job, "progress_message__contains=41"),
    (Job, "job_key__regex=^(a%2B)%2B$"),
    (Job, "job_key__regex=("),
    (Job, "job_key=%00"),
    (Job, "job_key__exact=k"),
    (Job, "attempts__error__contains=41"),
    (Job, "attempts__traceback__regex=."),
    (Job, "answers__payload__card__startswith=41"),
    (Job, "origin__job_data__card__startswith=41"),
    (Job, "job_type__jobs__job_data__card__startswith=41"),
    (Job, "job_type__declared__contains=x"),
    (Job, "queue__throttler_problem__contains=41"),
    (Job, "worker__name__regex=("),
    (Job, "queue__id__exact=1"),
    (Job, "pk__in=1,2"),
    (Job, "no_such_field=1"),
    (Answer, "payload__card__startswith=41"),
    (Answer, "problem__contains=41"),
    (Answer, "job__job_data__card__startswith=41"),
    (Answer, "job__job_type__name__regex=("),
    (Answer, "kind__regex=("),
    (JobType, "jobs__job_data__card__startswith=41"),
    (JobType, "queue__jobs__job_data__card__startswith=41"),
    (JobType, "sensitive__contains=card"),
    (Queue, "jobs__job_data__card__startswith=41"),
    (Queue, "throttler_state__contains=1"),
    (Worker, "jobs__job_data__card__startswith=41"),
    (Worker, "name__regex=("),
]


def test_what_no_filter_asks_for_is_refused(operator: Client) -> None:
    sent = {"action": "cancel", "select_across": "1", ACTION_BOX: ["1"]}
    answered = []
    for model, lookup in REFUSED:
        address = f"{list_url(model)}?{lookup}"
        pages = {
            "list": operator.get(address),
            "pop-up": operator.get(f"{address}&_popup=1"),
            "action": operator.post(address, sent),
        }
        answered += [(address, page) for page, got in pages.items() if got.status_code != 400]

    assert answered == []


def test_a_masked_value_cannot_be_found_out_by_asking(operator: Client, declare: Declare) -> None:
    declared = declare("charge", sensitive=["card"])(lambda job: hipq.WAIT)
    declared.enqueue({"card": CARD})
    run_due_jobs()

    statuses = {
        operator.get(list_url(Job), {f"job_data__card__{way}": text}).status_code
        for way in ("startswith", "exact", "gt", "regex", "contains", "isnull", "in")
        for text in (CARD, CARD[:1], "9")
    }

    assert statuses == {400}


@pytest.mark.conformance
def test_what_is_there_to_ask_is_answered(admin_client: Client, rows: list[Model]) -> None:
    expected: list[tuple[type[Model], dict[str, str], int]] = [
        (Job, {"state": "initial"}, 1),
        (Job, {"state": "final"}, 0),
        (Job, {"outcome": "failed"}, 0),
        (Job, {"q": "k"}, 1),
        (Job, {"o": "-1"}, 1),
        (Job, {"state": "initial", "o": "1", "p": "1", "_popup": "1", "_to_field": "id"}, 1),
        (Answer, {"status": "unmatched"}, 1),
        (Answer, {"status": "late"}, 0),
        (Answer, {"kind": "response"}, 1),
        (Answer, {"kind": "malformed"}, 0),
        (JobType, {"q": "k_no_such"}, 0),
    ]
    counts = [
        (model, query, admin_client.get(list_url(model), query).context["cl"].result_count)
        for model, query, _ in expected
    ]

    assert counts == expected


def test_the_job_types_are_found_by_a_part_of_their_name(
    admin_client: Client, rows: list[Model]
) -> None:
    (name,) = JobType.objects.values_list("name", flat=True)

    page = admin_client.get(list_url(JobType), {"q": name[1:].upper()})

    assert page.context["cl"].result_count == 1


class FilteredAdmin(JobAdmin):
    """The pages of a project that wants to filter by more."""

    list_filter = (  # type: ignore[assignment]  # inferred from those of the class above
        "priority", ("create_time", admin.DateFieldListFilter), "queue", QueueFilter,
    )  # fmt: skip


def test_a_project_may_filter_by_fields_of_its_choice(rf: RequestFactory) -> None:
    page, request = FilteredAdmin(Job, admin.site), rf.get("/")
    asked = ["priority", "create_time__gte", "queue__id__exact", "queue"]
    others = ["state", "priority__regex", "queue__name__exact", "job_data__gte", "job_data"]

    assert [page.lookup_allowed(name, "1", request) for name in asked] == [True] * 4
    assert [page.lookup_allowed(name, "1", request) for name in others] == [False] * 5


def test_a_pop_up_of_another_app_gets_the_choice_that_its_field_allows(
    operator: Client, rows: list[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [{"job_key": "k"}, lambda: {"priority": 7}]
    monkeypatch.setattr(Job._meta, "related_fkey_lookups", limits)

    statuses = [
        operator.get(list_url(Job), {name: value, "_popup": "1"}).status_code
        for name, value in [("job_key", "k"), ("priority", "7"), ("job_key", "j")]
    ]

    assert statuses == [200, 200, 400]


# Sorting


def sorted_by(client: Client, model: type[Model], order: str) -> Any:
    return client.get(list_url(model), {"o": order}).context["cl"].queryset.query.order_by[0]


def test_jobs_are_sorted_by_their_id_only(admin_client: Client, rows: list[Model]) -> None:
    assert sorted_by(admin_client, Job, "1") == "id"
    assert sorted_by(admin_client, Job, "-1") == "-id"
    assert {sorted_by(admin_client, Job, f"{column}") for column in range(2, 12)} <= {"-id", "-pk"}


def test_an_order_is_never_too_long_or_too_odd(operator: Client, rows: list[Model]) -> None:
    for order in ["1." * 3_000, "-", "x", "9" * 30, "9" * 5_000, "-1.1.\0"]:
        for model in MODELS:
            status = operator.get(list_url(model), {"o": order}).status_code
            assert status == 200, (model, order[:20])


# Whatever else an address may hold

ODD = ["\0(", "\ud800", "a " * 3_000, "9" * 19, "9" * 5_000]
PARAMETERS = [
    "q", "p", "o", "all", "state", "outcome", "queue", "type", "status", "kind", "_to_field",
    "_popup", "_changelist_filters", "a__b",
]  # fmt: skip


def query(**values: str) -> str:
    return urlencode(values, errors="replace")


@pytest.mark.conformance
@EACH_MODEL
def test_no_parameter_of_a_list_fails(
    operator: Client, rows: list[Model], model: type[Model]
) -> None:
    """Those that a list has no filter for are all refused in the same way."""
    statuses = {
        (name, odd[:20]): operator.get(f"{list_url(model)}?{query(**{name: odd})}").status_code
        for name in PARAMETERS
        for odd in (ODD if name in ("q", "p", "o") or model in (Job, Answer) else ODD[:1])
    }

    assert {asked: status for asked, status in statuses.items() if status not in FINE} == {}


@pytest.mark.conformance
@EACH_MODEL
def test_no_id_in_a_path_fails(operator: Client, rows: list[Model], model: type[Model]) -> None:
    statuses = {}
    for page in ("change", "history", "match", "cancel"):
        for odd in ODD:
            address = f"{list_url(model)}{quote(odd, errors='replace')}/{page}/"
            got = {operator.get(address).status_code, operator.post(address).status_code}
            statuses[page, odd[:20]] = got

    assert {asked: got for asked, got in statuses.items() if not got <= FINE} == {}


@pytest.mark.conformance
def test_no_parameter_of_a_page_fails(operator: Client, rows: list[Model]) -> None:
    pages = [(page_url(row), name) for row in rows for name in ("_to_field", "_changelist_filters")]
    pages.append((page_url(rows[0], "match"), "job"))

    for page, name in pages:
        for odd in ODD:
            status = operator.get(f"{page}?{query(**{name: odd})}").status_code
            assert status in FINE, (page, name, odd[:20])


@pytest.mark.conformance
def test_no_selection_of_an_action_fails(operator: Client, rows: list[Model]) -> None:
    encoded = "application/x-www-form-urlencoded"
    for model in MODELS:
        known = "cancel" if model is Job else "pause"
        for odd in ODD:
            for action, across in ((known, "0"), (known, "1"), (odd, "1")):
                sent = {"action": action, ACTION_BOX: odd, "select_across": across, "index": odd}
                response = operator.post(list_url(model), query(**sent), content_type=encoded)
                assert response.status_code in FINE, (model, action[:20], odd[:20])


@pytest.mark.conformance
def test_no_term_of_an_autocomplete_fails(operator: Client, rows: list[Model]) -> None:
    fields = {"job": ["queue", "job_type", "origin", "worker"], "answer": ["job"]}
    for model, field in [(m, f) for m in fields for f in fields[m]] + [("jobtype", "queue")]:
        for odd in ODD:
            asked = {"app_label": "hipq", "model_name": model, "field_name": field, "term": odd}
            status = operator.get(f"{reverse('admin:autocomplete')}?{query(**asked)}").status_code
            assert status in FINE, (model, field, odd[:20])


@pytest.mark.conformance
@pytest.mark.parametrize("model", [Job, JobType, Queue])
def test_no_value_of_a_form_fails(operator: Client, rows: list[Model], model: type[Model]) -> None:
    row = next(row for row in rows if isinstance(row, model))
    page = operator.get(page_url(row))
    names = [*page.context["adminform"].form.fields, "scheduled_run_time_0", "scheduled_run_time_1"]

    for odd in ODD:
        values = dict.fromkeys([*names, *(f"initial-{name}" for name in names)], odd)
        sent = urlencode({**values, "_continue": "1"}, errors="replace")
        response = operator.post(
            page_url(row), sent, content_type="application/x-www-form-urlencoded"
        )
        assert response.status_code in FINE, odd[:20]


text = st.text(st.characters(exclude_categories=()), max_size=30)
fields = st.sampled_from(
    ["job_data", "result", "error", "job_key", "job", "job_type", "queue", "attempts", "answers",
     "payload", "id", "pk", "worker", "state", "kind", "status", "q", "p", "o"]
)  # fmt: skip
ways = st.sampled_from(
    ["", "exact", "regex", "iregex", "in", "isnull", "range", "gt", "contains", "year", "card", "0"]
)
lookups = st.lists(fields, min_size=1, max_size=3).flatmap(
    lambda path: ways.map(lambda way: "__".join([*path, *([way] if way else [])]))
)


@pytest.mark.conformance
@fuzzed
@given(model=st.sampled_from(MODELS), asked=st.dictionaries(lookups | text, text, max_size=3))
def test_no_address_of_a_list_fails(
    operator: Client, rows: list[Model], model: type[Model], asked: dict[str, str]
) -> None:
    response = operator.get(f"{list_url(model)}?{urlencode(asked, errors='replace')}")

    assert response.status_code in FINE


def test_the_list_of_jobs_links_only_to_what_is_allowed(
    admin_client: Client, rows: list[Model]
) -> None:
    for model in (Queue, JobType, Job, Answer):
        page = html(admin_client, list_url(model))
        links = {part.partition('"')[0] for part in page.split(' href="')[1:]}
        for link in (link.replace("&amp;", "&") for link in links if "?" in link):
            address = link if link.startswith("/") else list_url(model) + link
            assert admin_client.get(address).status_code == 200, address
