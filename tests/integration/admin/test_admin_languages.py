"""The admin in other languages: every word of a page can be translated, and is."""

from __future__ import annotations

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
from hipq_django.flow.admin.node_actions import VERBS
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
from tests.rolling_back import rolled_back

pytestmark = pytest.mark.django_db

START, END = "⟦", "⟧"
MODELS = [Answer, Batch, Graph, Job, JobType, Node, Queue, Schedule, Worker]


PLACEHOLDER = re.compile(r"(%\((?!error\))\w+\)[sd]|%[sd]|\{\w*\}|: )")
"""Where a value is put into a text, or a text is divided.

A value named `error` was raised, and is English everywhere.
"""


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
    of_each_kind = {(node.status, node.paused): node for node in Node.objects.all()}
    for node in of_each_kind.values():
        found += [
            page_url(node, name) for name, v in VERBS.items() if v.is_of_use(node, timezone.now())
        ]
    found += [page_url(node, "graph") for node in Node.objects.filter(job_type__name="flow.graph")]
    found += [page_url(graph, "start") for graph in Graph.objects.all()]
    ports = NodePort.objects.exclude(name="*")
    like = {(p.name, p.direction, p.has_default, p.messages.exists()): p for p in ports}
    for port in like.values():
        found.append(f"{list_url(Node)}{port.node_id}/port/{port.pk}/")
    for row in Message.objects.filter(as_default=False).select_related("port"):
        found += [
            f"{list_url(Node)}{row.port.node_id}/{page}/{row.pk}/"
            for page in ("message", "edit", "drop")
        ]
    return found


def addresses() -> list[str]:
    """Return those of all lists, with their filters, and of all pages."""
    shown = [model for model in MODELS if model not in (Graph, Node)]
    found = [list_url(model) for model in shown]
    found += [page_url(row) for model in shown for row in model._default_manager.all()]
    [free, *_] = [answer for answer in Answer.objects.all() if answer.is_free]
    [taken] = Answer.objects.filter(status=Answer.Status.ACCEPTED)
    final = Job.objects.final().earliest("pk")
    return [*found, page_url(free, "match"), page_url(taken, "match"), page_url(final, "history")]


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
    left = {}
    for url in urls:
        page = html(admin_client, url)
        for component in flow.components():  # what their code says of them is not translated
            page = page.replace(component["description"].partition("\n")[0], "")
        left[url] = left_in_english(page) - NAMES

    assert {url: words for url, words in left.items() if words} == {}


def told(response: Any) -> set[str]:
    """Return the English words of the messages that a page shows; there are messages."""
    messages = messages_of(response)
    assert messages
    return words_of(unmarked(" ".join(messages)))


def test_no_word_of_what_an_action_says_stays_english(
    admin_client: Client, rows: None, made_up_language: None
) -> None:
    later = {"scheduled_run_time": timezone.now() + timedelta(days=1)}
    possible: dict[str, dict[str, Any]] = {
        "run_now": later,
        "requeue": {"state": State.FINAL},
        "cancel": {},
    }
    left = {}
    for action, values in possible.items():
        one, other = (JobFactory.create(**values) for _ in range(2))
        left[action] = told(act(admin_client, action, one, confirmed="1"))
        left[f"button {action}"] = told(press(admin_client, action, other))
    for action in ("pause", "resume"):
        queue = Queue.objects.get(name="bank")
        left[f"{action} queue"] = told(act(admin_client, action, queue))
        left[f"{action} queue again"] = told(act(admin_client, action, queue))
    for action in ("run_now", "pause"):
        left[f"{action} schedule"] = told(act(admin_client, action, Schedule.objects.get()))
    batch = Batch.objects.get()
    left["batch"] = left_in_english(act(admin_client, "cancel", batch).content.decode())
    left["cancel batch"] = told(act(admin_client, "cancel", batch, confirmed="1"))

    assert {action: words for action, words in left.items() if words} == {}


def test_no_word_of_an_edit_stays_english(
    admin_client: Client, rows: None, made_up_language: None
) -> None:
    job = Job.objects.waiting().filter(queue__name="bank")[0]
    opened = form_values(admin_client, job)
    Job.objects.filter(pk=job.pk).update(priority=7)

    refused = save(admin_client, job, opened, priority="5")
    saved = save(admin_client, job, priority="5")

    assert refused.context["adminform"].form.errors
    assert messages_of(saved)
    for response in (refused, saved):
        assert left_in_english(response.content.decode()) == set()


def test_no_word_of_what_is_done_to_nodes_stays_english(
    admin_client: Client, nodes: Node, made_up_language: None
) -> None:
    some, left = list(Node.objects.all()), {}
    for verb in VERBS:
        with rolled_back():
            left[verb] = told(confirm(admin_client, verb, nodes, extent="tree", force="on"))
            left[verb] |= told(act(admin_client, verb, *some, confirmed="1", extent="tree"))

    assert {verb: words for verb, words in left.items() if words} == {}


def test_the_history_is_kept_in_english(admin_client: Client, made_up_language: None) -> None:
    hourly = hipq.schedule("hourly", hipq.NewJob("echo"), "0 * * * *")

    confirm(admin_client, "resume", paused_node())
    act(admin_client, "cancel", JobFactory.create(), confirmed="1")
    act(admin_client, "run_now", hourly)

    kept = LogEntry.objects.values_list("change_message", flat=True)
    assert any("Cancelled." in message for message in kept)
    assert any("Resumed." in message for message in kept)
    assert any("Run" in message for message in kept)
    assert not any(START in message for message in kept)


def test_a_job_page_speaks_the_language_of_its_reader(admin_client: Client) -> None:
    texts = {
        "de": ("Warteschlange", "Warum er nicht läuft", "Angehalten", "Jetzt ausführen"),
        "fr": ("Ouvrir la file", "exécute pas", "pause", "Exécuter maintenant"),
    }
    job = JobFactory.create(scheduled_run_time=timezone.now() + timedelta(days=1))
    Queue.objects.update(paused=True)

    for language, expected in texts.items():
        with translation.override(language):
            shown = html(admin_client, page_url(job)).lower()
        assert [text for text in expected if text.lower() not in shown] == []


def test_an_error_is_stored_in_english(made_up_language: None) -> None:
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
