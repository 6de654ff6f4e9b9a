"""The page about consumers: its code, as written, in a project made by `startproject`."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import fields
from pathlib import Path

import pytest

from hipq_django.answers import intake
from hipq_django.database.requirements import SQLITE_OPTIONS
from hipq_django.processes import outage
from hipq_django.sources import MessageSource, Received
from tests.conftest import ROOT
from tests.docs.documents import Document, codes_of
from tests.docs.project import FreshProject
from tests.processes.conftest import eventually

CONSUMERS = Document(ROOT / "docs" / "consumers.md")
MOST_LINES_OF_A_SOURCE = 20

# As the reference has it, under "Databases".
SEVERAL_PROCESSES = f"""
if "sqlite" in DATABASES["default"]["ENGINE"]:
    DATABASES["default"]["OPTIONS"] = {SQLITE_OPTIONS!r}
"""


def test_every_attribute_of_a_message_is_there() -> None:
    written = {
        code for row in CONSUMERS.headed("Attribute of a message") for code in codes_of(row[0])
    }

    assert written == {field.name for field in fields(Received)} - {"receipt"} | {"json()"}


def test_every_method_of_a_source_is_there() -> None:
    written = [codes_of(row[0])[0].partition("(")[0] for row in CONSUMERS.headed("Method")]

    assert written == ["receive", "acknowledge", "close"]
    assert all(callable(getattr(MessageSource, name)) for name in written)


def test_the_sizes_and_times_are_those_of_the_code() -> None:
    assert intake.MAX_KEPT_BYTES == 1024 * 1024
    assert "up to 1 MiB" in CONSUMERS.text
    assert (outage.FIRST_SECONDS, outage.LAST_SECONDS) == (0.1, 5)


def test_a_source_is_twenty_lines() -> None:
    [source] = [b.text for b in CONSUMERS.blocks() if b.file.endswith("sources.py")]
    own = source[source.index("class ") :]

    assert len(re.findall(r"\S.*", own)) <= MOST_LINES_OF_A_SOURCE


@pytest.mark.processes
def test_the_examples_work_together(fresh_project: FreshProject, tmp_path: Path) -> None:
    folder = fresh_project.folder / "dropped"
    folder.mkdir()
    fresh_project.create("shop")
    fresh_project.write(
        [block for block in CONSUMERS.blocks() if block.language == "python"], SEVERAL_PROCESSES
    )
    assert "no issues" in fresh_project.manage("check")
    fresh_project.manage("migrate", "-v0")
    enqueue = "from shop.jobs import charge_card\nfor n in '123': charge_card.enqueue(job_key=n)"
    fresh_project.manage("shell", "-v0", "-c", enqueue)
    fresh_project.manage("hipq_worker", "--until-idle")
    for name, content in {
        "1": {"shop": "ours", "reference": "1", "receipt": "R-1"},
        "2": {"shop": "ours", "reference": "2", "problem": "declined"},
        "3": {"shop": "theirs", "reference": "3"},
        "4": {"shop": "ours", "receipt": "R-4"},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))

    log = tmp_path / "log"
    with fresh_project.running("manage.py", "hipq_consume", "dropped", log=log) as consumer:
        eventually(lambda: not list(folder.iterdir()), "every file was taken")
        consumer.send_signal(signal.SIGTERM)
        assert consumer.wait(60) == 0, log.read_text()
    fresh_project.manage("hipq_worker", "--until-idle")
    look = (
        "from hipq_django.models import *\n"
        "print(list(Job.objects.order_by('pk').values_list('state', 'result', 'error')))\n"
        "print(list(Answer.objects.order_by('pk').values_list('kind', 'problem')))"
    )
    jobs, answers = fresh_project.manage("shell", "-v0", "-c", look).splitlines()[-2:]
    assert jobs == str(
        [("final", "R-1", "NONE"), ("final", None, "declined"), ("running", None, "NONE")]
    )
    assert sorted(eval(answers)) == [
        ("error", "NONE"),
        ("malformed", "KeyError: 'reference'"),
        ("response", "NONE"),
    ]
