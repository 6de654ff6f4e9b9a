"""The admin in other languages: every word of a page can be translated, and is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone, translation
from django.utils.safestring import SafeData, mark_safe

import hipq_django as hipq
from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.domain.states import Outcome, State
from hipq_django.flow import testing
from hipq_django.flow.admin.descriptions import SHIPPED
from hipq_django.flow.admin.verbs import VERBS
from hipq_django.flow.declaring import all_components
from hipq_django.flow.models import Graph, Message, Node, NodePort
from hipq_django.maintenance.recovery import time_out_overdue
from hipq_django.models import Answer, Batch, Job, JobType, Queue, Schedule, Worker
from tests.admin_pages import (
    act,
    confirm,
    form_values,
    html,
    list_url,
    messages_of,
    page_url,
    press,
    save,
)
from tests.factories import (
    AnswerFactory,
    AttemptFactory,
    JobFactory,
    JobTypeFactory,
    QueueFactory,
    WorkerFactory,
)

pytestmark = pytest.mark.django_db

START, END = "⟦", "⟧"
MODELS = [Answer, Batch, Graph, Job, JobType, Node, Queue, Schedule, Worker]


PLACEHOLDER = re.compile(r"(%\((?!error\))\w+\)[sd]|%[sd]|\{\w*\})")
"""Where a value is put into a text; one named `error` was raised, and is English everywhere."""


def marked(message: str) -> str:
    """Return a text with marks around its own words, as a translation that leaves no doubt.

    What is put into it stands outside of them, and has to be data or translated by itself.
    """
    if translation.get_language() is None:  # switched off
        return message
    text = START + PLACEHOLDER.sub(rf"{END}\1{START}", f"{message}") + END
    return mark_safe(text) if isinstance(message, SafeData) else text


MARKING: dict[str, Callable[..., str]] = {
    "gettext": marked,
    "ngettext": lambda one, many, number: marked(one if number == 1 else many),
    "pgettext": lambda context, message: marked(message),
    "npgettext": lambda context, one, many, number: marked(one if number == 1 else many),
}


@pytest.fixture
def made_up_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything that is translated, by Django too, come out in marks."""
    for name, function in MARKING.items():
        monkeypatch.setattr(translation._trans, name, function)  # type: ignore[attr-defined]  # the stubs hide it


class _Seen(HTMLParser):
    """Collects what somebody sees of a page, or is read to him."""

    ATTRIBUTES = ("aria-label", "placeholder", "title")
    DATA = ("code", "pre", "script", "style", "textarea")

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.attributes: list[str] = []
        self._hidden = False
        self._in_names = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        # What says itself that it is English, and names to choose from, are no words of the page.
        is_data = given.get("lang") == "en" or (self._in_names and tag == "option")
        self._hidden = tag in self.DATA or is_data
        self._in_names = given.get("name") == "type_name" if tag == "select" else self._in_names
        self.attributes += [given[name] for name in self.ATTRIBUTES if name in given]
        if given.get("type") == "submit" and tag == "input":
            self.attributes.append(given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.texts.append(data)


def unmarked(text: str) -> str:
    """Return what is outside of all marks."""
    depth, outside = 0, []
    for part in re.split(f"([{START}{END}])", text):
        if part == START:
            depth += 1
        elif part == END:
            depth -= 1
        elif depth == 0:
            outside.append(part)
    assert depth == 0, text
    return " ".join(outside)


DATA = {
    # What the rows below are called.
    "admin", "back", "bank", "boom", "charge", "default", "echo", "front", "hourly", "import",
    "kafka", "order", "worker",
    # What is the same in all languages.
    "UTC", "CET", "CEST", "ID",
}  # fmt: skip
NAMES = {
    # Of graphs, nodes and queues.
    "shop", "one", "two", "three", "four", "child",
    "asking", "chaos", "held", "limited", "partner", "stopping", "suspects",
    # Of ports and types.
    "in", "out", "error", "number", "question", "answer", "aa", "xx", "yy", "int",
    # Of what was raised.
    "CodeError", "TypeError",
}  # fmt: skip
"""What is called by somebody on the pages of flows."""


def left_in_english(page: str) -> set[str]:
    """Return the words of a page that no translation touches, and that are not data."""
    seen = _Seen()
    seen.feed(page)
    outside = unmarked(" ".join(seen.texts)) + " ".join(map(unmarked, seen.attributes))
    return words_of(outside)


def words_of(text: str) -> set[str]:
    """Return the words that are no data; names of code have points in them, ids a colon."""
    return set(re.findall(r"[A-Za-z]{2,}", re.sub(r"\w+(\.\w+)+|\w+:\d+", "", text))) - DATA


@pytest.fixture
def rows() -> None:
    """Rows of all kinds, in all states."""
    worker = WorkerFactory.create(name="worker 1", excluded_queues=["default"])
    WorkerFactory.create(name="worker 2", silent=True)
    WorkerFactory.create(name="worker 3", source="kafka", queues=[])
    queue = QueueFactory.create(name="bank", throttle_limit=1)
    charge = JobTypeFactory.create(name="charge", queue=queue, default_time_windows=["01:00-02:00"])
    live_jobs(charge, worker)
    ended_jobs(charge)
    for status in (Answer.Status.EARLY, Answer.Status.UNMATCHED):
        AnswerFactory.create(job_type="charge", job_key="order-7", status=status)
    with hipq.batch("import") as batch:
        member = batch.enqueue(hipq.NewJob("echo"))
    hipq.enqueue("echo", after=[member])
    hourly = hipq.Cron("0 * * * *", "Europe/Paris", overlap="allow")
    hipq.schedule("hourly", hipq.NewJob("echo"), hourly)
    hipq.run_schedule("hourly")


def live_jobs(charge: JobType, worker: Worker) -> None:
    for state in (State.INITIAL, State.RETRY, State.ERROR, State.RUNNING):
        JobFactory.create(job_type=charge, state=state)
    in_three_days = timezone.now() + timedelta(days=3)
    JobFactory.create(job_type=charge, scheduled_run_time=in_three_days)
    JobFactory.create(job_type=charge, time_windows=["01:00-02:00"])
    running = {"job_type": charge, "state": State.RUNNING}
    JobFactory.create(**running, worker=worker)
    JobFactory.create(**running, worker=worker, prefetched=True)
    JobFactory.create(**running, has_pending_answer=True)
    JobFactory.create(**running, progress=20, extended_seconds=60)
    JobFactory.create(**running, expects=["front", "back"])


def ended_jobs(charge: JobType) -> None:
    final = {"job_type": charge, "state": State.FINAL}
    for outcome in (Outcome.SUCCEEDED, Outcome.CANCELLED):
        JobFactory.create(**final, outcome=outcome)
    failed = JobFactory.create(**final, outcome=Outcome.FAILED, error="boom", attempt=2)
    JobFactory.create(job_type=charge, parent=failed, origin=failed)
    AttemptFactory.create(job=failed, traceback="boom\n" * 30)
    AnswerFactory.create(
        job=failed,
        job_type="charge",
        job_key="order-1",
        status=Answer.Status.ACCEPTED,
        part="front",
    )


PUBLIC = {
    "one": {"component": "flow.each"},
    "two": {"component": "flow.merge"},
    "four": {"component": "flow.widget"},
}
SPEC: dict[str, Any] = {
    "nodes": {**PUBLIC, "three": {"jobs": "echo"}},
    "edges": ["one.out -> two.aa"],
    "inputs": {"xx": "one.in"},
    "outputs": {"yy": "two.out"},
}


@pytest.fixture
def nodes() -> Node:
    """Nodes of all kinds, in all states; return one that has its two messages, and is paused."""
    Graph.objects.create(name="shop", spec={**SPEC, "nodes": PUBLIC})
    shop = flow.start(SPEC, data={"xx": [[1]]}, alias="shop")
    shop.children["four"].inputs["question"].write(1)
    failed = flow.start("t.recorder", run=False)
    failed.state.set(perform=["raise"])
    failed.run()
    both = flow.start("t.both", data={"a": [1]})
    flow.start("t.asks", data={"question": [7]})
    testing.drain(errors=False, timeout=60)
    both.lock(600)
    flow.start("t.sum", run=False).terminate(force=True)
    flow.start("t.sum")  # queued
    parent = flow.start("t.sum", run=False)
    parent.spawn("child", "t.sum", run=False)
    return paused_node()


def paused_node() -> Node:
    paused = flow.start("t.double", run=False)
    paused.pause()
    paused.inputs["number"].write_many([1, 2])
    paused.inputs["number"].default = 3
    source = flow.start("t.double", run=False)
    source.outputs["out"].connect(paused.inputs["number"])
    source.inputs["number"].write(2)
    testing.drain(timeout=60)
    return paused


def addresses_of_nodes() -> list[str]:
    """Return those of the pages that belong to a node or to a graph."""
    found = [f"{list_url(Graph)}add/", *(f"{list_url(Node)}?status={s}" for s in ("failed", "x"))]
    for node in Node.objects.all():
        found += [page_url(node, verb) for verb in VERBS]
    found += [page_url(node, "graph") for node in Node.objects.filter(job_type__name="flow.graph")]
    found += [page_url(graph, "start") for graph in Graph.objects.all()]
    for port in NodePort.objects.exclude(name="*"):
        found.append(f"{list_url(Node)}{port.node_id}/port/{port.pk}/")
    for row in Message.objects.filter(as_default=False).select_related("port"):
        found += [
            f"{list_url(Node)}{row.port.node_id}/{page}/{row.pk}/" for page in ("message", "drop")
        ]
    return found


def addresses() -> list[str]:
    """Return those of all lists, with their filters, and of all pages."""
    shown = [model for model in MODELS if model not in (Graph, Node)]
    found = [list_url(model) for model in shown]
    found += [page_url(row) for model in shown for row in model._default_manager.all()]
    [free, *_] = [answer for answer in Answer.objects.all() if answer.is_free]
    [taken] = Answer.objects.filter(status=Answer.Status.ACCEPTED)
    waiting = Job.objects.running().filter(worker=None, has_pending_answer=False).first()
    final = Job.objects.final().earliest("pk")
    of_another_type = Job.objects.filter(job_type__name="echo").first()
    match = page_url(free, "match")
    found += [match, *(f"{match}?job={job.pk}" for job in (waiting, final, of_another_type) if job)]
    return [*found, f"{page_url(taken, 'match')}?job={final.pk}", page_url(final, "history")]


def test_no_word_of_a_page_stays_english(
    admin_client: Client, rows: None, made_up_language: None
) -> None:
    left = {
        url: words for url in addresses() if (words := left_in_english(html(admin_client, url)))
    }

    assert left == {}


def test_no_word_of_a_page_of_flows_stays_english(
    admin_client: Client, nodes: Node, made_up_language: None
) -> None:
    urls = [list_url(model) for model in (Node, Graph)] + addresses_of_nodes()
    urls += [page_url(row) for model in (Node, Graph) for row in model.objects.all()]
    left = {url: left_in_english(html(admin_client, url)) - NAMES for url in urls}

    assert {url: words for url, words in left.items() if words} == {}


def test_no_word_of_an_empty_list_stays_english(
    admin_client: Client, made_up_language: None
) -> None:
    left = {model: left_in_english(html(admin_client, list_url(model))) for model in MODELS}

    assert {model: words for model, words in left.items() if words} == {}


def told(response: Any) -> set[str]:
    """Return the English words of the messages that a page shows; there are messages."""
    messages = messages_of(response)
    assert messages
    return words_of(unmarked(" ".join(messages)))


@pytest.mark.parametrize("action", ["run_now", "requeue", "cancel"])
def test_no_word_of_what_an_action_on_jobs_says_stays_english(
    admin_client: Client, rows: None, made_up_language: None, action: str
) -> None:
    due = JobFactory.create()
    possible = due if action != "requeue" else JobFactory.create(state=State.FINAL)
    if action == "run_now":
        possible = JobFactory.create(scheduled_run_time=timezone.now() + timedelta(days=1))

    assert told(act(admin_client, action, possible, confirmed="1")) == set()
    again = JobFactory.create(state=possible.state, scheduled_run_time=possible.scheduled_run_time)
    assert told(press(admin_client, action, again)) == set()


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_no_word_of_what_an_action_on_queues_says_stays_english(
    admin_client: Client, rows: None, made_up_language: None, action: str
) -> None:
    queue = Queue.objects.get(name="bank")

    assert told(act(admin_client, action, queue)) == set()
    assert told(act(admin_client, action, queue)) == set()


@pytest.mark.parametrize("action", ["run_now", "pause"])
def test_no_word_of_what_an_action_on_schedules_says_stays_english(
    admin_client: Client, rows: None, made_up_language: None, action: str
) -> None:
    assert told(act(admin_client, action, Schedule.objects.get())) == set()


def test_no_word_of_what_cancelling_a_batch_says_stays_english(
    admin_client: Client, rows: None, made_up_language: None
) -> None:
    batch = Batch.objects.get()

    assert left_in_english(act(admin_client, "cancel", batch).content.decode()) == set()
    assert told(act(admin_client, "cancel", batch, confirmed="1")) == set()


def test_no_word_of_a_refused_edit_stays_english(
    admin_client: Client, rows: None, made_up_language: None
) -> None:
    job = Job.objects.waiting().filter(queue__name="bank")[0]
    opened = form_values(admin_client, job)
    Job.objects.filter(pk=job.pk).update(priority=7)

    refused = save(admin_client, job, opened, priority="5")

    assert refused.context["adminform"].form.errors
    assert left_in_english(refused.content.decode()) == set()


def test_no_word_of_what_an_edit_says_stays_english(
    admin_client: Client, rows: None, made_up_language: None
) -> None:
    job = Job.objects.waiting().filter(queue__name="bank")[0]

    saved = save(admin_client, job, priority="5")

    assert messages_of(saved)
    assert left_in_english(saved.content.decode()) == set()


@pytest.mark.parametrize("verb", list(VERBS))
def test_no_word_of_what_is_done_to_nodes_stays_english(
    admin_client: Client, nodes: Node, made_up_language: None, verb: str
) -> None:
    some = list(Node.objects.all())

    assert told(confirm(admin_client, verb, nodes, extent="tree", force="on")) == set()
    sent = {"confirmed": "1", "extent": "tree"}
    assert told(act(admin_client, verb, *some, **sent)) == set()


@pytest.mark.parametrize(
    ("do", "sent"),
    [
        ("write", {"value": "5"}),
        ("default", {"default": "5"}),
        ("clear", {}),
        ("move", {"direction": "out", "port": "out"}),
    ],
)
def test_no_word_of_what_is_done_to_a_port_stays_english(
    admin_client: Client, nodes: Node, made_up_language: None, do: str, sent: dict[str, str]
) -> None:
    url = f"{list_url(Node)}{nodes.pk}/port/{nodes.inputs['number'].row.pk}/"
    seen = html(admin_client, url).partition('name="seen" value="')[2].partition('"')[0]
    sent = {"do": do, "seen": seen, "node": str(nodes.pk), **sent}

    asked = admin_client.post(url, sent).content.decode()
    assert left_in_english(asked) <= {"number"}
    assert told(admin_client.post(url, {**sent, "confirmed": "1"}, follow=True)) == set()


def test_no_word_of_what_is_done_to_a_message_stays_english(
    admin_client: Client, nodes: Node, made_up_language: None
) -> None:
    for page in ("message", "drop"):
        row = Message.objects.filter(port__node=nodes.pk, as_default=False)[0]
        url = f"{list_url(Node)}{nodes.pk}/{page}/{row.pk}/"
        seen = html(admin_client, url).partition('name="seen" value="')[2].partition('"')[0]
        assert told(admin_client.post(url, {"value": "9", "seen": seen}, follow=True)) == set()


def test_no_word_of_what_is_done_to_a_graph_stays_english(
    admin_client: Client, nodes: Node, made_up_language: None
) -> None:
    row = Graph.objects.get()

    assert told(confirm(admin_client, "start", row, alias="new", seen=row.version)) == {"shop"}
    sent = {"spec": json.dumps({"nodes": PUBLIC}), "seen": "1", "_save": "1"}
    assert told(admin_client.post(page_url(row), sent, follow=True)) == {"shop"}
    assert told(admin_client.get(page_url(Node(pk=99)), follow=True)) == set()


def test_what_a_shipped_component_does_can_be_translated() -> None:
    shipped = [c.component for c in all_components("default") if c.name.startswith("flow.")]

    assert {(made.__doc__ or "").strip().partition("\n")[0] for made in shipped} == SHIPPED


def test_the_history_is_kept_in_english(
    admin_client: Client, rows: None, nodes: Node, made_up_language: None
) -> None:
    job = JobFactory.create()
    confirm(admin_client, "resume", nodes)

    act(admin_client, "cancel", job, confirmed="1")
    act(admin_client, "run_now", Schedule.objects.get())

    kept = LogEntry.objects.values_list("change_message", flat=True)
    assert any("Cancelled." in message for message in kept)
    assert any("Resumed." in message for message in kept)
    assert not any(START in message for message in kept)


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        ("de", ("Warteschlange", "Warum er nicht läuft", "Angehalten", "Jetzt ausführen")),
        (
            "fr",
            ("Ouvrir la file", "exécute pas", "pause", "Exécuter maintenant"),
        ),
    ],
)
def test_a_job_page_speaks_the_language_of_its_reader(
    admin_client: Client, rows: None, language: str, texts: tuple[str, ...]
) -> None:
    job = JobFactory.create(scheduled_run_time=timezone.now() + timedelta(days=1))
    Queue.objects.update(paused=True)

    with translation.override(language):
        page = html(admin_client, page_url(job))

    shown = page.lower()
    assert [text for text in texts if text.lower() not in shown] == []


def test_a_reason_is_in_the_active_language(rows: None) -> None:
    job = JobFactory.create()
    Queue.objects.update(paused=True)

    def said() -> str:
        return next(reason.text for reason in hipq.explain(job) if reason.code == "paused")

    with translation.override("de"):
        assert said() == f"Warteschlange {job.queue} ist angehalten."
    assert said() == f"Queue {job.queue} is paused."


def test_an_error_is_stored_in_english(rows: None, made_up_language: None) -> None:
    job_type = JobTypeFactory.create(name="ask")
    job = JobFactory.create(
        job_type=job_type,
        state=State.RUNNING,
        expects=["front", "back"],
        deadline=timezone.now() - timedelta(days=1),
    )

    time_out_overdue(get_instance("default"))

    job.refresh_from_db()
    assert job.error.endswith("(parts received: 0 of 2, missing: 'front', 'back')")
