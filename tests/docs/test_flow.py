"""What the document of flows shows is what `curl` gets, what commands print and what code does."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.job_types import registry
from tests.conftest import ROOT
from tests.declaring import Declare
from tests.docs.documents import Document, codes_of

FLOW = Document(ROOT / "docs" / "flow.md")
[CONSOLE] = [b.text for b in FLOW.blocks() if b.language == "console" and "curl" in b.text]
[COMMANDS] = [b.text for b in FLOW.blocks() if "hipq_flow run" in b.text]


def typed(block: str) -> list[list[str]]:
    """Return the commands of a block, each with what it shows below it."""
    return [part.split("\n", 1) for part in block.removeprefix("$ ").strip().split("\n$ ")]


EXCHANGES = typed(CONSOLE)


@pytest.fixture
def module_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """A function that returns a module with the code that the document gives for it.

    What it declares is forgotten after the test: names such as `shop.invoice` are others' too.
    """
    before = registry.remember()

    def module_of(name: str) -> ModuleType:
        file = f"{name.replace('.', '/')}.py"
        module = ModuleType(name)
        [text] = [block.text for block in FLOW.blocks() if block.file == file]
        exec(compile(text, file, "exec"), vars(module))
        monkeypatch.setitem(sys.modules, "shop", sys.modules.get("shop", ModuleType("shop")))
        monkeypatch.setitem(sys.modules, name, module)
        return module

    yield module_of
    registry.restore(before._replace(modules=before.modules | {"shop.flows", "shop.tokens"}))


@pytest.mark.django_db(transaction=True, reset_sequences=True)
def test_curl_gets_what_is_shown(
    live_server: LiveServer, settings: Settings, module_of: Callable[[str], ModuleType]
) -> None:
    module_of("shop.flows")
    tokens: Any = module_of("shop.tokens")
    settings.HIPQ = {"default": {"FLOW": {"API_USER": "shop.tokens.user_of"}}}
    user = User.objects.create_user("ann")
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="hipq_flow"))
    flow.start("shop.fraud", alias="fraud", run=False)

    assert len(EXCHANGES) == 3
    for command, shown in EXCHANGES:
        result = subprocess.run(
            ["bash", "-c", command.replace("http://127.0.0.1:8000", live_server.url)],
            env={**os.environ, "TOKEN": tokens.signer.sign("ann")},
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert without_times(json.loads(result.stdout)) == without_times(json.loads(shown))


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without what differs each time."""
    for entry in answer.get("entries", []):
        del entry["time"], entry["id"]
    return {name: value for name, value in answer.items() if name != "run"}


@pytest.mark.django_db(transaction=True, reset_sequences=True)
def test_commands_print_what_is_shown(
    monkeypatch: pytest.MonkeyPatch, declare: Declare, module_of: Callable[[str], ModuleType]
) -> None:
    declare("charge_card")(lambda job: hipq.WAIT)
    module_of("shop.flows")
    stage = {"jobs": "charge_card", "key": "id", "limit": 50}
    flow.start("shop.fraud", alias="fraud", data={"order": [{"id": "4711"}]})
    shop = flow.start({"nodes": {"charge": stage}}, alias="shop")
    shop.children["charge"].inputs["in"].write({"id": "4711", "total": 70})
    testing.drain(errors=False)

    for command, shown in typed(COMMANDS):
        assert printed(command, monkeypatch) == shown.strip(), command


def printed(line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a command of manage.py prints, which may read what comes by a pipe."""
    piped, _, command = line.rpartition(" | ")
    if piped:
        monkeypatch.setattr(sys, "stdin", StringIO(shlex.split(piped)[1]))
    program, manage, name, *arguments = shlex.split(command)
    assert (program, manage) == ("python", "manage.py")
    output = StringIO()
    with redirect_stdout(output):
        try:
            call_command(name, *arguments, stdout=output, verbosity=0)
        except CommandError as error:
            output.write(f"CommandError: {error}")
    return output.getvalue().strip()


@pytest.mark.django_db
def test_the_code_of_the_guide_runs_in_its_order(
    declare: Declare, module_of: Callable[[str], ModuleType]
) -> None:
    declare("charge_card")(lambda job: {"paid": job.job_data["total"]})
    module_of("shop.flows")
    names: dict[str, Any] = {"flow": flow}
    for block in FLOW.blocks():
        if block.language == "python" and not block.file and "INSTALLED_APPS" not in block.text:
            run = block.text.replace("def test_small_orders_pass(db):", "def test_small_orders():")
            exec(compile(run, "docs/flow.md", "exec"), names)
    testing.drain()

    assert names["invoices"].outputs["out"].read() == {"order": "4711", "currency": "EUR"}
    assert flow.get("totals").outputs["invoice"].read() == {"order": "4713", "currency": "EUR"}
    [paid] = flow.get("shop").outputs["paid"]
    assert paid["result"] == {"paid": 70}
    names["test_small_orders"]()
    rates = flow.start("shop.rates", data={"currency": ["USD"]})
    testing.drain()
    assert rates.outputs["out"].read() == {"currency": "USD", "rate": 1.1}


def test_every_standard_component_is_in_the_table() -> None:
    rows = FLOW.headed("Component")
    written = {name: row[1] for row in rows for name in codes_of(row[0])}
    known = {entry["name"]: entry for entry in flow.components() if entry["name"][:5] == "flow."}

    assert set(written) == set(known)
    for name, ports in written.items():
        ins, outs = ports.replace("`", "").split(" → ")
        assert sorted(ins.split(", ")) == sorted(known[name]["inputs"] or ["none"]), name
        assert sorted(outs.split(", ")) == sorted(known[name]["outputs"]), name
